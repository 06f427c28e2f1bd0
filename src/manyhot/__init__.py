"""manyhot: multi-label learning with the ease of softmax and cross-entropy."""

from manyhot.data.digit_scenes import DigitScenes, digit_scenes
from manyhot.labels.encode import decode_label_sets, encode_label_sets, label_names
from manyhot.labels.soften import cutmix, flip_labels, mix_labels, mixup, smooth_labels, soft_labels_from
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.binary import asymmetric_loss, bce_loss, focal_loss
from manyhot.losses.catalog import LOSSES, LossInfo, get_loss
from manyhot.losses.divergence import prediction_divergence, rdrop_loss
from manyhot.losses.modules import (
    AsymmetricLoss,
    BCELoss,
    DiceLoss,
    FocalLoss,
    LSEPLoss,
    PairwiseLoss,
    RDropLoss,
    SoftmaxLoss,
    TLPRLoss,
    TwoWayLoss,
    ZLPRLoss,
)
from manyhot.losses.overlap import dice_loss
from manyhot.losses.ranking import lsep_loss, pairwise_loss, softmax_loss, two_way_loss
from manyhot.losses.sides import LazyScores, two_sided_logsumexp
from manyhot.losses.zlpr import tlpr_loss, zlpr_loss
from manyhot.scores.linear import LinearScores

__version__ = "0.1.0"

__all__ = [
    "LOSSES",
    "AsymmetricLoss",
    "BCELoss",
    "DiceLoss",
    "DigitScenes",
    "FocalLoss",
    "LSEPLoss",
    "LazyScores",
    "LinearScores",
    "LossInfo",
    "PairwiseLoss",
    "RDropLoss",
    "SoftmaxLoss",
    "SparseLabels",
    "TLPRLoss",
    "TwoWayLoss",
    "ZLPRLoss",
    "asymmetric_loss",
    "bce_loss",
    "cutmix",
    "decode_label_sets",
    "dice_loss",
    "digit_scenes",
    "encode_label_sets",
    "flip_labels",
    "focal_loss",
    "get_loss",
    "label_names",
    "lsep_loss",
    "mix_labels",
    "mixup",
    "pairwise_loss",
    "prediction_divergence",
    "rdrop_loss",
    "smooth_labels",
    "soft_labels_from",
    "softmax_loss",
    "tlpr_loss",
    "two_sided_logsumexp",
    "two_way_loss",
    "zlpr_loss",
]
