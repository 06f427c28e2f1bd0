"""Metrics of a model, or of scores, on examples. Only one batch of scores is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from manyhot._checks import check_logits
from manyhot.data.examples import Examples
from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.rule import DecisionRule, decide_sparse
from manyhot.metrics.info import DECISIONS, PROBABILITIES
from manyhot.metrics.names import parse_metric, read_metric
from manyhot.metrics.sums import Sums
from manyhot.scores.linear import LinearScores
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.steering import AUTO

DEFAULT_METRICS = ("micro-F1", "macro-F1", "MLC-F1", "SubACC", "AvgPrec", "RankLoss", "P@1", "P@3", "P@5")
PROPENSITY_METRICS = ("PSP@1", "PSP@3", "PSP@5")
EMPTY = "empty"


def evaluate(
    model_or_logits: TrainedModel | Tensor,
    examples: Examples,
    metrics: Sequence[str] | None = None,
    *,
    rule: DecisionRule | None = None,
    link: str | Calibration | None = None,
    propensities: Tensor | None = None,
    batch_size: int = 1024,
) -> dict[str, float]:
    """Evaluate predictions on labelled examples.

    Args:
        model_or_logits: a model, whose rule and link are used, or logits ``[N, L]`` in the order of ``examples``.
        examples: rows with labels. For a model, the labels are matched to its label names; unknown ones are ignored, and
            ``examples.with_labels(names).unseen`` counts their rows. A soft label above one half counts as positive
            (``Examples.hardened``).
        metrics: names of the catalog; k of ``P@k`` must not exceed the number of labels. Default: ``DEFAULT_METRICS`` and, if
            propensities are known, PSP@1, PSP@3 and PSP@5; a metric at k is left out if there are fewer than k labels. The
            metric that the model was trained for comes first.
        rule: a decision rule in place of the model's.
        link: a link or calibration in place of the model's. Metrics of probabilities are an error if the model's scores only
            rank and no link is given; for logits the default is ``"hard"``.
        propensities: ``[L]`` for PSP@k. Default: those of the model's training rows, ``TrainedModel.propensities``.
        batch_size: rows scored at a time.

    Returns:
        The value of each metric by name, and under ``"empty"`` the share of rows without a predicted label.

    Example:
        >>> from manyhot import SparseLabels
        >>> examples = Examples(SparseLabels.from_lists([[0], [1]], num_labels=2), ("cat", "dog"), texts=["a cat", "a dog"])
        >>> evaluate(torch.tensor([[2.0, -1.0], [-3.0, -1.0]]), examples, ["SubACC", "P@1"])
        {'SubACC': 0.5, 'P@1': 1.0, 'empty': 0.5}
    """
    batches: Iterable[Tensor | LinearScores]
    device, asked = torch.device("cpu"), None
    if isinstance(model_or_logits, TrainedModel):
        asked = _asked_of(model_or_logits)
        examples = examples.with_labels(model_or_logits.label_names)
        batches = model_or_logits.iter_scores(examples, batch_size=batch_size)
        device = model_or_logits.device if model_or_logits.lazy else device
        rule = rule or model_or_logits.rule
        link = link or model_or_logits.calibration or model_or_logits.link
        wanted = metrics is None or any(read_metric("evaluate", "metrics", name).kind == "PSP@k" for name in metrics)
        if propensities is None and wanted and (metrics is not None or model_or_logits.has_propensities):
            propensities = model_or_logits.propensities()
    else:
        link = link or "hard"
        check_logits("evaluate", model_or_logits)
        if tuple(model_or_logits.shape) != tuple(examples.labels.shape):
            raise ValueError(
                f"evaluate: `model_or_logits` must have the shape of the labels, {list(examples.labels.shape)};"
                f" got {list(model_or_logits.shape)}."
            )
        batches = (model_or_logits[i : i + batch_size] for i in range(0, len(model_or_logits), batch_size))
    examples = examples.hardened()
    names = _chosen_metrics(metrics, asked, examples.num_labels, with_propensities=propensities is not None)
    kind = _accumulator()
    measured = kind(names, num_labels=examples.num_labels, rule=rule, link=link, propensities=propensities).to(device)
    empty = start = 0
    for scores in batches:
        stop = start + scores.shape[0]
        part = slice(start, stop)
        where = None if examples.unknown is None else ~examples.unknown[part].dense(torch.bool).to(device)
        predictions = decide_sparse(scores, rule, where=where)
        measured.update(scores, examples.labels[part].to(device), where)
        empty += int((predictions.counts() == 0).sum())
        start = stop
    return {**{name: float(value) for name, value in measured.compute().items()}, EMPTY: empty / max(start, 1)}


def _asked_of(model: TrainedModel) -> str | None:
    """The metric that the model was trained for; None if there is none, or if its scores do not suffice for it."""
    name = model.settings.metric
    if name == AUTO:
        return None
    metric = parse_metric(name)
    lacks_scores = model.lazy and not (metric.info.lists or metric.info.needs == DECISIONS)
    only_ranks = metric.info.needs == PROBABILITIES and model.link is None and model.calibration is None
    return None if lacks_scores or only_ranks or (metric.kind == "PSP@k" and not model.has_propensities) else name


def _chosen_metrics(metrics: Sequence[str] | None, asked: str | None, num_labels: int, *, with_propensities: bool) -> list[str]:
    """The metrics to compute; a requested metric at k is an error if k exceeds the number of labels."""
    if metrics is None:
        usual = [*([] if asked is None else [asked]), *DEFAULT_METRICS, *(PROPENSITY_METRICS if with_propensities else ())]
        return [name for name in dict.fromkeys(usual) if not _k_exceeds(name, num_labels)]
    for name in metrics:
        if _k_exceeds(name, num_labels):
            raise ValueError(f"evaluate: k in `metrics` must not exceed the number of labels, {num_labels}; got {name!r}.")
    return list(dict.fromkeys(metrics))


def _k_exceeds(name: str, num_labels: int) -> bool:
    """Whether the k of a metric at k exceeds the number of labels."""
    _, at, k = name.partition("@")
    return bool(at) and k.isdigit() and int(k) > num_labels


def _accumulator() -> Any:
    """The class that accumulates metrics: with several processes, one that sums over their rows."""
    if not dist.is_available() or not dist.is_initialized():
        return Sums
    from manyhot.metrics.running import Metrics

    return Metrics
