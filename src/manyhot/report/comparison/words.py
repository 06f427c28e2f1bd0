"""The sentences of a comparison's report, the same on the page and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

RULES = {"natural": "the natural decision", "tuned": "threshold tuned on validation rows"}


def lead_words(report: Mapping[str, Any]) -> str:
    """A comparison in a sentence."""
    found = report["statistics"]
    seeds = len(found["seeds"])
    each = f"{seeds} seed{'s' if seeds != 1 else ''} each"
    return f"{len(found['methods'])} methods on {len(found['groups'])} groups (data set and body), {each}."


def note_words(report: Mapping[str, Any]) -> str:
    """How the results were obtained, and how reliable they are."""
    found = report["statistics"]
    text = (
        "All methods share the splits, the bodies and the budget. Settings were tuned on validation rows; results are on test"
        " rows."
    )
    if len(found["seeds"]) < 3:
        text += " With fewer than three seeds, hardly any difference within a group can be significant."
    if report["failed"]:
        text += f" {len(report['failed']):,} cells failed; they are listed at the end."
    return text


def cell_class(method: str, best: Sequence[str]) -> str:
    """The style of a value: ``best`` for the single best method of a group; ``tied`` for the best method and those that do not
    differ significantly from it, if there are several; otherwise none.
    """
    if method not in best:
        return ""
    return "best" if len(best) == 1 else "tied"


def mean_cost(costs: Mapping[str, Any], method: str, key: str) -> float | None:
    """The mean of a cost over groups; None if it was not measured."""
    known = [group[method][key] for group in costs.values() if group.get(method, {}).get(key) is not None]
    return sum(known) / len(known) if known else None


def fact_words(facts: Mapping[str, Any]) -> str:
    """The main properties of a data set."""
    names = (
        ("num_train", "training rows"),
        ("num_labels", "labels"),
        ("cardinality", "labels per row"),
        ("imbalance", "imbalance"),
    )
    parts = []
    for name, words in names:
        value = facts.get(name)
        if value is not None:
            number = f"{value:,.0f}" if float(value).is_integer() else f"{value:.2f}"
            parts.append(f"imbalance {number}" if name == "imbalance" else f"{number} {words}")
    return ", ".join(parts)
