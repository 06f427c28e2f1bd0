"""manyhot: multi-label learning with the ease of softmax and cross-entropy."""

from typing import TYPE_CHECKING, Any

from manyhot.data.examples import Examples, concatenate_examples
from manyhot.data.files.input_file import fingerprint
from manyhot.data.files.problems import DataError
from manyhot.data.inspect import Inspection, inspect_examples
from manyhot.data.read import read_examples
from manyhot.data.sets.digit_scenes import DigitScenes, digit_scenes
from manyhot.data.sets.openml import fetch_openml_examples
from manyhot.data.spans.alignment import align_examples
from manyhot.data.spans.examples import SpanExamples, TextSpan
from manyhot.data.spans.jsonl import write_span_examples
from manyhot.data.spans.read import read_span_examples
from manyhot.data.tables.missing import fill_missing
from manyhot.data.write import write_examples
from manyhot.decisions.calibrate import Calibration, fit_calibration
from manyhot.decisions.decide import DecisionRule, decide, decide_sparse
from manyhot.decisions.decode_spans import CharacterSpan, Span, character_spans, decode_spans, merge_windows, token_windows
from manyhot.decisions.links import probabilities
from manyhot.decisions.tune import TunedRule, tune_rule
from manyhot.engines.registry import engines
from manyhot.heads.global_pointer import EfficientGlobalPointer, GlobalPointer
from manyhot.heads.rotary import rotary
from manyhot.labels.describe import LabelPair, LabelStatistics, Leaks, describe_labels, find_leaks
from manyhot.labels.encode import decode_label_sets, encode_label_sets, label_names
from manyhot.labels.soften import cutmix, flip_labels, mix_labels, mixup, smooth_labels, soft_labels_from
from manyhot.labels.spans import SpanLabels
from manyhot.labels.sparse import SparseLabels
from manyhot.labels.split import stratified_folds, stratified_split
from manyhot.losses.bce import BCELoss, bce_loss
from manyhot.losses.catalog import LOSSES, get_loss
from manyhot.losses.core.logsumexp import LazyScores, two_sided_logsumexp
from manyhot.losses.dice import DiceLoss, dice_loss
from manyhot.losses.divergence import RDropLoss, prediction_divergence, rdrop_loss
from manyhot.losses.focal import AsymmetricLoss, FocalLoss, asymmetric_loss, focal_loss
from manyhot.losses.info import LossInfo, LossOption
from manyhot.losses.lsep import LSEPLoss, lsep_loss
from manyhot.losses.pairwise import PairwiseLoss, pairwise_loss
from manyhot.losses.softmax import SoftmaxLoss, softmax_loss
from manyhot.losses.two_way import TwoWayLoss, two_way_loss
from manyhot.losses.zlpr import TLPRLoss, ZLPRLoss, tlpr_loss, zlpr_loss
from manyhot.metrics.at_k import label_propensities
from manyhot.metrics.names import METRICS, MetricInfo, parse_metric
from manyhot.metrics.spans.errors import count_span_errors, find_span_errors
from manyhot.metrics.spans.scores import SpanMetrics, span_f1_score
from manyhot.scores.linear import LinearScores
from manyhot.scores.spans import SpanScores
from manyhot.scores.top import TopScores

if TYPE_CHECKING:
    from manyhot.estimator import ManyhotClassifier
    from manyhot.metrics.running import Metrics
    from manyhot.training.rows.bundle import TrainedModel, load_model
    from manyhot.training.rows.settings import TrainSettings
    from manyhot.training.spans.bundle import FoundSpan, TrainedSpanModel, load_span_model
    from manyhot.training.spans.settings import SpanSettings
    from manyhot.training.spans.train import score_spans, train_spans

__version__ = "0.1.0"

_LAZY = {
    "FoundSpan": "manyhot.training.spans.bundle",
    "ManyhotClassifier": "manyhot.estimator",
    "Metrics": "manyhot.metrics.running",
    "SpanSettings": "manyhot.training.spans.settings",
    "TrainSettings": "manyhot.training.rows.settings",
    "TrainedModel": "manyhot.training.rows.bundle",
    "TrainedSpanModel": "manyhot.training.spans.bundle",
    "load_model": "manyhot.training.rows.bundle",
    "load_span_model": "manyhot.training.spans.bundle",
    "score_spans": "manyhot.training.spans.train",
    "train_spans": "manyhot.training.spans.train",
}


def __getattr__(name: str) -> Any:
    """Names whose home imports a package that is slow to load come in when they are asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'manyhot' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)


__all__ = [
    "LOSSES",
    "METRICS",
    "AsymmetricLoss",
    "BCELoss",
    "Calibration",
    "CharacterSpan",
    "DataError",
    "DecisionRule",
    "DiceLoss",
    "DigitScenes",
    "EfficientGlobalPointer",
    "Examples",
    "FocalLoss",
    "FoundSpan",
    "GlobalPointer",
    "Inspection",
    "LSEPLoss",
    "LabelPair",
    "LabelStatistics",
    "LazyScores",
    "Leaks",
    "LinearScores",
    "LossInfo",
    "LossOption",
    "ManyhotClassifier",
    "MetricInfo",
    "Metrics",
    "PairwiseLoss",
    "RDropLoss",
    "SoftmaxLoss",
    "Span",
    "SpanExamples",
    "SpanLabels",
    "SpanMetrics",
    "SpanScores",
    "SpanSettings",
    "SparseLabels",
    "TLPRLoss",
    "TextSpan",
    "TopScores",
    "TrainSettings",
    "TrainedModel",
    "TrainedSpanModel",
    "TunedRule",
    "TwoWayLoss",
    "ZLPRLoss",
    "align_examples",
    "asymmetric_loss",
    "bce_loss",
    "character_spans",
    "concatenate_examples",
    "count_span_errors",
    "cutmix",
    "decide",
    "decide_sparse",
    "decode_label_sets",
    "decode_spans",
    "describe_labels",
    "dice_loss",
    "digit_scenes",
    "encode_label_sets",
    "engines",
    "fetch_openml_examples",
    "fill_missing",
    "find_leaks",
    "find_span_errors",
    "fingerprint",
    "fit_calibration",
    "flip_labels",
    "focal_loss",
    "get_loss",
    "inspect_examples",
    "label_names",
    "label_propensities",
    "load_model",
    "load_span_model",
    "lsep_loss",
    "merge_windows",
    "mix_labels",
    "mixup",
    "pairwise_loss",
    "parse_metric",
    "prediction_divergence",
    "probabilities",
    "rdrop_loss",
    "read_examples",
    "read_span_examples",
    "rotary",
    "score_spans",
    "smooth_labels",
    "soft_labels_from",
    "softmax_loss",
    "span_f1_score",
    "stratified_folds",
    "stratified_split",
    "tlpr_loss",
    "token_windows",
    "train_spans",
    "tune_rule",
    "two_sided_logsumexp",
    "two_way_loss",
    "write_examples",
    "write_span_examples",
    "zlpr_loss",
]
