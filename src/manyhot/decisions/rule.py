"""Decision rules: logits to predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_logits, check_where
from manyhot._suggest import nearest
from manyhot.decisions.best_labels import (
    Case,
    RunningBest,
    dense_entries,
    dense_predictions,
    label_chunks,
    lazy_entries,
    row_log_sums,
)
from manyhot.decisions.row_f1 import RowF1
from manyhot.decisions.set_values import SetValues
from manyhot.decisions.threshold_values import Cuts, checked_thresholds, filled, given_cut, number_in, number_out, round_down
from manyhot.engines.terms import accumulation_dtype
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.lazy import is_lazy
from manyhot.losses.core.logsumexp import Scores
from manyhot.scores.linear import LinearScores
from manyhot.scores.shards import any_of
from manyhot.scores.spans import SpanScores

INF = float("inf")


@dataclass(frozen=True)
class DecisionRule:
    """The rule from scores to predictions; saved with the model.

    A label is predicted if ``s > threshold``. ``min_labels`` adds the best labels of a row until it has that many.
    ``max_labels`` keeps only the best labels above the threshold, at most that many. ``top_k`` predicts exactly the k best and
    uses no threshold. The best labels have the highest score, or the highest ``s - threshold`` with a threshold per label; ties
    go to the lower label number. NaN, ``-inf`` and labels excluded by ``where`` are never predicted, not even to reach
    ``min_labels``; nor is a label whose threshold is ``inf``.

    Args:
        threshold: a number, or one per label; 0 is the boundary of ZLPR. ``inf`` never predicts.
        top_k: exactly this many labels per row; excludes the other settings.
        min_labels: at least this many labels per row.
        max_labels: at most this many labels per row.
        sets: values of whole label sets: the rule predicts the set with the highest sum of ``s - threshold`` and value; see
            ``SetValues``. None decides every label by its own score.
        softmax: compare the threshold with the logarithm of the row's softmax, ``s - log sum e^s``. For losses that only rank
            the labels of a row, such as decoupled softmax, whose scores have a different level in each row.
        row_f1: compare with the threshold of the row with the best expected F1 score, plus ``threshold``; see ``RowF1``.

    Example:
        >>> rule = DecisionRule(threshold=(0.5, float("inf")), min_labels=1)
        >>> rule.to_json()
        {'threshold': [0.5, 'inf'], 'top_k': None, 'min_labels': 1, 'max_labels': None}
        >>> DecisionRule.from_json(rule.to_json()) == rule
        True
    """

    threshold: float | tuple[float, ...] = 0.0
    top_k: int | None = None
    min_labels: int = 0
    max_labels: int | None = None
    sets: SetValues | None = None
    softmax: bool = False
    row_f1: RowF1 | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", checked_thresholds(self.threshold))
        for name, least in (("top_k", 1), ("min_labels", 0), ("max_labels", 1)):
            value = getattr(self, name)
            optional = name != "min_labels"
            if not (optional and value is None) and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                none = " or None" if optional else ""
                raise ValueError(f"DecisionRule: `{name}` must be a whole number >= {least}{none}; got {value!r}.")
        if self.max_labels is not None and self.max_labels < self.min_labels:
            raise ValueError(
                f"DecisionRule: `max_labels` must be at least `min_labels`, {self.min_labels}; got {self.max_labels}."
            )
        if self.sets is not None and not isinstance(self.sets, SetValues):
            raise TypeError(f"DecisionRule: `sets` must be SetValues or None; got {type(self.sets).__name__}.")
        if self.row_f1 is not None and not isinstance(self.row_f1, RowF1):
            raise TypeError(f"DecisionRule: `row_f1` must be RowF1 or None; got {type(self.row_f1).__name__}.")
        others = self.sets is not None or self.row_f1 is not None
        if self.softmax and (others or isinstance(self.threshold, tuple)):
            raise ValueError("DecisionRule: `softmax` needs one threshold for all labels, no `sets` and no `row_f1`.")
        others = others or self.softmax or self.min_labels > 0 or self.max_labels is not None
        if self.top_k is not None and (self.threshold != 0.0 or others):
            raise ValueError(
                "DecisionRule: `top_k` must be the only setting: it predicts exactly k labels whatever their scores."
                " For at most k labels above a threshold use `max_labels`."
            )

    @property
    def by_threshold(self) -> bool:
        """Whether a label is predicted by its own score and threshold, apart from limits on the number of labels."""
        return self.top_k is None and self.sets is None and not self.softmax and self.row_f1 is None

    @cached_property
    def cuts(self) -> Cuts:
        """The threshold, rounded down to the type of scores, as a number or on their device."""
        return Cuts(self.threshold)

    def to_json(self) -> dict[str, Any]:
        """A dict for ``json.dumps`` that ``from_json`` reads back exactly; infinite thresholds become strings."""
        threshold: Any = self.threshold
        threshold = [number_out(t) for t in threshold] if isinstance(threshold, tuple) else number_out(threshold)
        written = {
            "threshold": threshold,
            "top_k": self.top_k,
            "min_labels": self.min_labels,
            "max_labels": self.max_labels,
        }
        written |= {"softmax": True} if self.softmax else {}
        written |= {} if self.row_f1 is None else {"row_f1": self.row_f1.to_json()}
        return written if self.sets is None else {**written, "sets": self.sets.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> DecisionRule:
        """From the result of ``to_json``, as a dict or as JSON text."""
        given = json.loads(data) if isinstance(data, str) else data
        if not isinstance(given, Mapping):
            raise TypeError(f"DecisionRule.from_json: `data` must be a JSON object; got {type(given).__name__}.")
        fields = tuple(cls.__dataclass_fields__)
        for name in given:
            if name not in fields:
                raise ValueError(f"DecisionRule.from_json: unknown setting {name!r}.{nearest(str(name), fields)}")
        settings = dict(given)
        if "threshold" in settings:
            threshold = settings["threshold"]
            listed = isinstance(threshold, (list, tuple))
            settings["threshold"] = tuple(map(number_in, threshold)) if listed else number_in(threshold)
        if settings.get("sets") is not None:
            settings["sets"] = SetValues.from_json(settings["sets"])
        if settings.get("row_f1") is not None:
            settings["row_f1"] = RowF1.from_json(settings["row_f1"])
        return cls(**settings)


def decide(
    logits: Scores,
    rule: DecisionRule | None = None,
    *,
    threshold: Tensor | float | None = None,
    where: Tensor | None = None,
) -> Tensor:
    """Predict labels by a rule, as a bool tensor.

    Lazy scores are computed in parts: in chunks of labels for a linear head, in tiles for a span head. The result is dense, one
    byte per entry, but the scores are never dense. For span scores a rule has only thresholds, one for all types or one
    per type; ``decode_spans`` decides which spans may overlap. Values are not checked, so nothing syncs with the device,
    except to find the best labels of lazy scores.

    Args:
        logits: ``[..., L]``, or lazy scores.
        rule: the rule; None is ``s > 0``.
        threshold: a number or a tensor broadcastable to the rows ``[...]``, such as TLPR's threshold; it replaces the rule's.
        where: bool, broadcastable to ``logits``; False is never predicted.

    Returns:
        bool ``[..., L]``.

    Example:
        >>> logits = torch.tensor([[1.5, -0.2, 0.3], [-2.0, -1.0, -3.0]])
        >>> decide(logits).int().tolist()
        [[1, 0, 1], [0, 0, 0]]
        >>> decide(logits, DecisionRule(min_labels=1, max_labels=1)).int().tolist()
        [[1, 0, 0], [0, 1, 0]]
        >>> decide(logits, threshold=torch.tensor([1.0, -2.5])).int().tolist()
        [[1, 0, 0], [1, 1, 0]]
    """
    if isinstance(logits, SpanScores):
        return _decide_spans(logits, rule or DecisionRule(), threshold, where)
    case = _case("decide", logits, rule, threshold, where)
    with torch.no_grad():
        if isinstance(case.scores, Tensor):
            chosen = dense_predictions(case, case.scores)
        else:
            chosen = torch.zeros((case.rows, case.labels), dtype=torch.bool, device=case.scores.device)
            best = RunningBest(case)
            for first, last, key, above in label_chunks(case, case.scores):
                if case.upper is None:
                    chosen[:, first:last] = above
                best.merge(first, key, above)
            best.join(case.scores.shard)
            if case.scores.shard is not None:
                chosen = any_of(chosen, case.scores.shard.group)
            chosen[best.entries()] = True
    return chosen.reshape(case.shape)


def decide_sparse(
    logits: Scores,
    rule: DecisionRule | None = None,
    *,
    threshold: Tensor | float | None = None,
    where: Tensor | None = None,
) -> SparseLabels:
    """Predict labels by a rule, as index lists: like ``decide``, without a dense tensor.

    Args:
        logits: ``[..., L]``, or lazy scores; leading axes are flattened to R rows.
        rule: the rule; None is ``s > 0``.
        threshold: a number or a tensor broadcastable to the rows ``[...]``; it replaces the rule's.
        where: bool, broadcastable to ``logits``; False is never predicted.

    Returns:
        Hard labels ``[R, L]``.

    Example:
        >>> from manyhot import LinearScores
        >>> scores = LinearScores(torch.eye(2), torch.tensor([[1.0, -1.0], [2.0, -1.0], [-1.0, -1.0]]))
        >>> decide_sparse(scores).lists()
        [[0, 1], []]
        >>> decide_sparse(scores, DecisionRule(top_k=1)).lists()
        [[1], [0]]
    """
    case = _case("decide_sparse", logits, rule, threshold, where)
    with torch.no_grad():
        rows, columns = dense_entries(case, case.scores) if isinstance(case.scores, Tensor) else lazy_entries(case, case.scores)
        counts = torch.bincount(rows, minlength=case.rows)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return SparseLabels(columns, offsets, case.labels, validate=False)


def _decide_spans(scores: SpanScores, rule: DecisionRule, threshold: Tensor | float | None, where: Tensor | None) -> Tensor:
    if rule.min_labels or rule.max_labels is not None or not rule.by_threshold:
        raise ValueError("decide: `rule` must have only thresholds for SpanScores; decode_spans predicts the best k spans.")
    if where is not None:
        check_where("decide", where, scores.shape)
    rows = scores.shape[:2]
    cut = _cut("decide", rule, threshold, rows if threshold is None else torch.Size((*rows, 1)), scores.q)
    return scores.above(cut.reshape(rows) if cut.shape[0] > 1 else cut, where)


def _case(who: str, logits: Any, rule: DecisionRule | None, threshold: Any, where: Tensor | None) -> Case:
    rule = rule or DecisionRule()
    if not isinstance(rule, DecisionRule):
        raise TypeError(f"{who}: `rule` must be a DecisionRule or None; got {type(rule).__name__}.")
    if isinstance(logits, SpanScores):
        raise TypeError(f"{who}: `logits` must have one label axis; got SpanScores. Use decode_spans.")
    if is_lazy(logits) and not isinstance(logits, LinearScores):
        logits = logits.dense()
    if rule.sets is not None:
        logits = rule.sets.all_scores(who, logits)
    if not isinstance(logits, LinearScores):
        check_logits(who, logits)
    shape = logits.shape
    if where is not None:
        check_where(who, where, shape)
        where = where.expand(shape).reshape(-1 if shape[-1] else shape[:-1].numel(), shape[-1])
    if rule.row_f1 is not None:
        logits = logits.dense() if isinstance(logits, LinearScores) else logits
        logits = rule.row_f1.relative(logits, None if where is None else where.reshape(shape))
    sample = logits.hidden if isinstance(logits, LinearScores) else logits
    cut = _cut(who, rule, threshold, shape, sample)
    if rule.softmax:
        cut = cut + row_log_sums(logits, where).reshape(-1, 1)
    top, number = rule.top_k, None
    one = threshold is None and isinstance(rule.threshold, float) and not rule.softmax
    if one and isinstance(logits, Tensor) and not torch.compiler.is_compiling():
        number = rule.cuts.number(logits.dtype)
    return Case(
        scores=logits if isinstance(logits, LinearScores) else logits.reshape(shape[:-1].numel(), shape[-1]),
        shape=shape,
        threshold=cut,
        per_label=threshold is None and isinstance(rule.threshold, tuple),
        where=where,
        lower=rule.min_labels if top is None else top,
        upper=rule.max_labels if top is None else top,
        sets=rule.sets,
        number=number,
    )


def _cut(who: str, rule: DecisionRule, threshold: Any, shape: torch.Size, sample: Tensor) -> Tensor:
    """The threshold as ``[1, 1]``, ``[1, L]`` or ``[R, 1]``, in the type scores are compared in."""
    if threshold is not None and rule.top_k is not None:
        raise ValueError(f"{who}: `threshold` must not be given with `top_k`, which uses no threshold; got both.")
    if threshold is None:
        threshold = rule.threshold
        if isinstance(threshold, tuple) and len(threshold) != shape[-1]:
            raise ValueError(
                f"{who}: `rule` must have one threshold per label, {shape[-1]}; got {len(threshold)}."
                " Use the rule that was saved with this model."
            )
        if isinstance(threshold, tuple):
            return rule.cuts.on(sample.device, accumulation_dtype(sample.dtype)).reshape(1, -1)
        cut = filled(threshold, sample)
    else:
        cut = given_cut(who, threshold, shape, sample)
    return round_down(cut.to(sample.device), accumulation_dtype(sample.dtype))
