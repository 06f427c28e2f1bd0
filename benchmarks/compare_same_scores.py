"""What ``benchmarks.compare_rules`` found: decision rules and calibrations on the same scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from manyhot.comparison.cell import DECISIONS
from manyhot.comparison.ranks import holm, signed_ranks
from manyhot.comparison.statistics import group_of
from manyhot.comparison.table import markdown_table

Cells = Sequence[dict[str, Any]]
Means = dict[str, dict[str, dict[str, float]]]
# What a rule needs beyond the rows that were trained on.
NEEDS = {
    "as many labels as in training": "rows without labels",
    "each label as often as in training": "rows without labels",
    "expected F1 of the row": "validation rows",
    "one cut, micro-F1": "validation rows",
    "a cut for each label, micro-F1": "validation rows",
    "a cut for each label, macro-F1": "validation rows",
}
# Methods with fewer groups than this are not shown: they would leave few that all have.
FEWEST = 5
KINDS = {"link": "by its link", "temperature": "temperature", "platt": "Platt"}


def same_scores(cells: Cells) -> list[str]:
    """Both parts of the page."""
    return [*rules(cells), *calibrations(cells)]


def rules(cells: Cells) -> list[str]:
    """Every rule on plain ZLPR's scores, against s > 0."""
    means = means_of([cell for cell in cells if cell["method"] == "zlpr"], "rules")
    names = [name for name in next(iter(means.values())) if name != "zero"]
    gaps = {
        metric: {name: np.asarray([row[name][metric] - row["zero"][metric] for row in means.values()]) for name in names}
        for metric in DECISIONS
    }
    sure = {
        metric: dict(zip(names, holm([signed_ranks(g) for g in each.values()]), strict=True)) for metric, each in gaps.items()
    }
    base = [np.mean([row["zero"][metric] for row in means.values()]) for metric in DECISIONS]
    empty = {name: np.mean([row[name]["empty"] for row in means.values()]) for name in ("zero", *names)}
    rows = [["s > 0, percent", "nothing", *(f"{100 * value:.1f}" for value in base), f"{100 * empty['zero']:.0f}"]]
    for name in names:
        texts = []
        for metric in DECISIONS:
            gap = gaps[metric][name]
            star = "*" if sure[metric][name] < 0.05 else ""
            texts.append(f"{100 * gap.mean():+.1f}{star} ({(gap > 0).sum()} : {(gap < 0).sum()})")
        rows.append([name, NEEDS.get(name, "nothing"), *texts, f"{100 * empty[name]:.0f}"])
    return [
        "### Decision rules and label priors, on the same scores",
        "",
        f"Plain ZLPR's weights that are best with a tuned cut, {len(means)} groups; the rule is all that differs. Points over"
        " s > 0, groups won : lost, * where Wilcoxon's test with Holm's correction over the rules is below 0.05. The label's"
        " share is its prior: its odds in training as threshold, or their root, half way there. Expected F1: the k best labels"
        " by probabilities that Platt's two numbers give.",
        "",
        markdown_table(["rule", "needs", *DECISIONS, "empty rows, %"], rows),
        "",
    ]


def calibrations(cells: Cells) -> list[str]:
    """Calibration error before and after, by method."""
    groups = {name: {group_of(cell) for cell in cells if cell["method"] == name} for name in {c["method"] for c in cells}}
    methods = sorted((name for name in groups if len(groups[name]) >= FEWEST), key=lambda name: (name != "zlpr", name))
    groups = {name: groups[name] for name in methods}
    common = set.intersection(*groups.values())
    rows = [calibration_row(cells, "zlpr", groups["zlpr"])] if groups["zlpr"] > common else []
    rows += [calibration_row(cells, method, common) for method in methods]
    return [
        "### Temperature and calibration",
        "",
        "A temperature divides all scores by one number: no ranking and no decision at zero changes, so for F1 it mends"
        " nothing; it mends probabilities. Expected calibration error in points, mean over groups (their number in"
        " brackets), by the link of the loss and after a temperature or Platt's slope and intercept, fitted on"
        " validation rows; in brackets the groups in which it got smaller. A weight on the positives moves the scores"
        " off their probabilities, which a temperature cannot put right and Platt's intercept can. The automatic weight"
        " leaves the scores as they are: its row is ZLPR's.",
        "",
        markdown_table(["", *KINDS.values()], rows),
        "",
    ]


def calibration_row(cells: Cells, method: str, groups: set[str]) -> list[str]:
    """Errors of one method over some groups."""
    own = [cell for cell in cells if cell["method"] == method and group_of(cell) in groups]
    means = means_of([{**cell, "ECE": {"all": cell["ECE"]}} for cell in own], "ECE")
    values = [[row["all"][kind] for row in means.values()] for kind in KINDS]
    won = [sum(after < before for after, before in zip(each, values[0], strict=True)) for each in values[1:]]
    texts = [f"{100 * np.mean(values[0]):.2f}"]
    texts += [f"{100 * np.mean(each):.2f} ({count} of {len(each)})" for each, count in zip(values[1:], won, strict=True)]
    return [f"{own[0]['title']} ({len(means)})", *texts]


def means_of(cells: Cells, part: str) -> Means:
    """Means over seeds by group, name and metric."""
    found: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for cell in cells:
        for name, values in cell[part].items():
            for metric, value in values.items():
                found[group_of(cell)][name][metric].append(value)
    return {
        group: {name: {metric: float(np.mean(each)) for metric, each in values.items()} for name, values in row.items()}
        for group, row in sorted(found.items())
    }
