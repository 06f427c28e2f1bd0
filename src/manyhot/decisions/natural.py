"""The natural decision of a loss, without tuning: one entry for each kind in the loss catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from manyhot._checks import check_choice
from manyhot.decisions.rule import DecisionRule


@dataclass(frozen=True)
class NaturalDecision:
    """How labels are predicted without tuning.

    Attributes:
        name: the value of ``LossInfo.decision``.
        summary: a one-line description.
        bounded: whether a score alone decides if its label is predicted; otherwise only the ranking of a row's scores counts.
        tunable: whether a threshold can be tuned on held-out rows; not if a shift of all scores of a row changes nothing.
        make: ``(cardinality, min_labels) -> rule``, with the mean number of labels per row and the least number to predict.
    """

    name: str
    summary: str
    bounded: bool
    tunable: bool
    make: Callable[[float, int], DecisionRule]

    def rule(self, *, cardinality: float = 1.0, min_labels: int = 0) -> DecisionRule:
        """The rule for labels of this cardinality.

        Example:
            >>> natural_decision("top-k").rule(cardinality=2.6).top_k
            3
        """
        return self.make(cardinality, min_labels)


def _top_cardinality(cardinality: float, min_labels: int) -> DecisionRule:
    """The k best labels, with k the rounded mean number of labels per row."""
    return DecisionRule(top_k=max(1, round(cardinality), min_labels))


_ENTRIES = (
    NaturalDecision("zero", "s > 0", True, True, lambda _, least: DecisionRule(min_labels=least)),
    NaturalDecision("threshold", "s > s0, learned or given", True, True, lambda _, least: DecisionRule(min_labels=least)),
    NaturalDecision("top-k", "the k best, k the mean number of labels", False, True, _top_cardinality),
    NaturalDecision("tuned", "a tuned threshold; untuned, the k best", False, True, _top_cardinality),
    NaturalDecision("argmax", "the best label", False, False, lambda *_: DecisionRule(top_k=1)),
)

NATURAL_DECISIONS: Mapping[str, NaturalDecision] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def natural_decision(name: str) -> NaturalDecision:
    """The entry called ``name``.

    Example:
        >>> from manyhot import get_loss
        >>> natural_decision(get_loss("zlpr").decision).rule().threshold
        0.0
    """
    check_choice("natural_decision", "name", name, tuple(NATURAL_DECISIONS))
    return NATURAL_DECISIONS[name]
