"""What the cells say of the ZLPR paper's claims, of where ZLPR loses, and of what mends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from manyhot.comparison.ranks import holm
from manyhot.comparison.statistics import PAPER_METRICS, RULES, group_of, summarise
from manyhot.comparison.table import markdown_table

PAPER = ("zlpr", "bce", "focal", "dice1", "dice2", "lsep")
F1S = ("MLC-F1", "micro-F1", "macro-F1")
AUTO = "zlpr+pos_weight=auto"
MENDERS = (
    "tlpr",
    "zlpr+pos_weight=3",
    "zlpr+pos_weight=10",
    "zlpr+pos_weight=labels",
    AUTO,
    "zlpr+min_labels",
    "zlpr+smoothing",
    "zlpr+mixup",
    "zlpr+rdrop",
    "zlpr+smoothing+rdrop",
)
SEVEN = (*PAPER_METRICS, "ECE")
Statistics = dict[str, Any]
Cells = Sequence[dict[str, Any]]


def over_common_groups(cells: Cells, methods: Sequence[str]) -> Statistics:
    """The statistics of some methods over the groups that have all of them."""
    found: dict[str, set[str]] = {}
    for cell in cells:
        if "metrics" in cell:
            found.setdefault(group_of(cell), set()).add(cell["method"])
    common = {group for group, names in found.items() if names >= set(methods)}
    return summarise([c for c in cells if c["method"] in methods and group_of(c) in common], order=methods)


class Pairs:
    """Methods against plain ZLPR, each over the groups that have both."""

    def __init__(self, cells: Cells, methods: Sequence[str]) -> None:
        self.each = {name: over_common_groups(cells, ("zlpr", name)) for name in methods}
        self.each = {name: pair for name, pair in self.each.items() if len(pair["groups"]) > 1}

    def title(self, name: str) -> str:
        """How tables call it, with the number of groups."""
        return f"{self.each[name]['titles'][name]} ({len(self.each[name]['groups'])})"

    def gap(self, name: str, rule: str, metric: str) -> float:
        """By how much the method's value is higher than ZLPR's, mean over groups."""
        pair = self.each[name]
        rows = pair["values"][rule][metric].values()
        return float(np.mean([row[name]["mean"] - row["zlpr"]["mean"] for row in rows if {name, "zlpr"} <= set(row)]))

    def better(self, name: str, rule: str, metric: str) -> bool:
        """Whether that is for the better."""
        return (self.gap(name, rule, metric) < 0) == bool(self.each[name]["metrics"][metric]["error"])

    def text(self, name: str, rule: str, metric: str, *, star: bool = False) -> str:
        """``+1.23 (7 : 2)``: points, and groups won : lost by the method."""
        test = self.each[name]["tests"][rule][metric]
        if test is None or name not in test["methods"]:
            return "-"
        won, _, lost = reversed(test["plain_wins"][name])
        return f"{100 * self.gap(name, rule, metric):+.2f}{'*' if star else ''} ({won} : {lost})"

    def proven(self, rule: str, metric: str) -> set[str]:
        """The methods that Wilcoxon's test tells from ZLPR, Holm's correction over all of them."""
        tests = {name: pair["tests"][rule][metric] for name, pair in self.each.items()}
        p = {name: test["wilcoxon"][name]["p"] for name, test in tests.items() if test and name in test["wilcoxon"]}
        return {name for name, corrected in zip(p, holm(list(p.values())), strict=True) if corrected < 0.05}


def claims(few: Statistics, pairs: Pairs) -> list[str]:
    """The paper's claims, each with counts and a verdict."""
    total = len(few["groups"])
    parts = ["## 1. The paper's claims", "", f"Among the six losses of the paper, over {total} groups.", ""]
    rows = []
    for metric in PAPER_METRICS:
        for rule in RULES:
            best = few["tests"][rule][metric]["best_in"]
            rows.append([f"{metric}, {rule}", *(str(best.get(name, "-")) for name in PAPER)])
    parts += [
        "Groups in which each loss has the best mean (ties count for all, a group in which all are equal for none):",
        "",
        markdown_table(["", *(few["titles"][name] for name in PAPER)], rows),
        "",
        *subset_accuracy(few, total),
    ]
    for metric in ("AvgPrec", "RankLoss"):
        parts += [ranking(few, metric), ""]
    parts += [dice(few), ""]
    for name in ("zlpr+smoothing", "zlpr+rdrop", "zlpr+smoothing+rdrop"):
        if name in pairs.each:
            gains = "; ".join(f"{metric} {pairs.text(name, 'natural', metric)}" for metric in PAPER_METRICS)
            tuned = "; ".join(f"{metric} {pairs.text(name, 'tuned', metric)}" for metric in PAPER_METRICS)
            helps = sum(pairs.better(name, "natural", metric) for metric in PAPER_METRICS) >= 4
            parts += [
                f"**{pairs.title(name)} against plain ZLPR**, mean difference in points, groups won : lost. Natural rule:"
                f" {gains}."
                f" Tuned: {tuned}. {verdict(helps, 'It helps on most metrics', 'It does not help on most metrics')}",
                "",
            ]
    return parts + powerset(pairs)


def subset_accuracy(few: Statistics, total: int) -> list[str]:
    """Best in 16 of 22?"""
    said, shares = [], []
    for rule in RULES:
        test = few["tests"][rule]["SubACC"]
        order = sorted(test["best_in"], key=lambda name: -test["best_in"][name])
        shares.append(test["best_in"]["zlpr"] / total)
        against = ", ".join(
            f"{few['titles'][name]} {'/'.join(map(str, test['plain_wins'][name]))}"
            f" (by seeds {'/'.join(map(str, test['win_tie_loss'][name]))})"
            for name in PAPER[1:]
        )
        said.append(
            f"{rule} rule: best in {test['best_in']['zlpr']} of {total}, most often best"
            f" {few['titles'][order[0]]} with {test['best_in'][order[0]]}; won/tied/lost against {against};"
            f" ahead of {proven(few, rule, 'SubACC', ahead=True)}, behind {proven(few, rule, 'SubACC', ahead=False)}"
            " (Wilcoxon, Holm)"
        )
    holds = verdict(min(shares) >= 0.7)
    return [f"**SubACC best in 16 of 22.** ZLPR, {'. With the '.join(said)}. {holds}", ""]


def ranking(few: Statistics, metric: str) -> str:
    """Strong on a metric of order?"""
    said, places = [], []
    for rule in RULES:
        test = few["tests"][rule][metric]
        order = sorted(test["average_ranks"], key=lambda name: test["average_ranks"][name])
        places.append(order.index("zlpr") + 1)
        said.append(
            f"with models chosen for the {rule} rule its average rank is {test['average_ranks']['zlpr']:.2f}, place"
            f" {places[-1]} of {len(order)}, after {names(few, order[: places[-1] - 1]) or 'none'}; ahead of"
            f" {proven(few, rule, metric, ahead=True)}, behind {proven(few, rule, metric, ahead=False)} (Wilcoxon, Holm)"
        )
    half = "The claim holds for models chosen for a tuned cut only" if places[1] <= 2 else "The claim does not hold here"
    return f"**Strong {metric}.** ZLPR: {'; '.join(said)}. {verdict(max(places) <= 2, no=half)}"


def dice(few: Statistics) -> str:
    """Does dice 2 compete on the F1s?"""
    said, ahead = {}, {}
    for rule in RULES:
        counts = {metric: few["tests"][rule][metric]["plain_wins"]["dice2"] for metric in F1S}
        said[rule] = "; ".join(f"{metric} {lost} : {won}" for metric, (won, _, lost) in counts.items())
        ahead[rule] = sum(lost > won for won, _, lost in counts.values())
    both = verdict(ahead["natural"] >= 2 and ahead["tuned"] >= 2, no="The claim holds for the natural rule only")
    text = both if ahead["natural"] >= 2 else verdict(False)
    return (
        f"**Dice 2 competes on the F1s.** Groups won by dice 2 : by ZLPR, natural rule: {said['natural']}. With tuned cuts:"
        f" {said['tuned']}. {text}"
    )


def powerset(pairs: Pairs) -> list[str]:
    """What label powerset costs and buys."""
    if "powerset" not in pairs.each:
        return []
    costs = pairs.each["powerset"]["costs"]
    times = [row["powerset"]["epoch_seconds"] / row["zlpr"]["epoch_seconds"] for row in costs.values()]
    sizes = {group: row["powerset"]["outputs"] / row["zlpr"]["outputs"] for group, row in costs.items()}
    largest = max(sizes, key=lambda group: sizes[group])
    gains = "; ".join(f"{metric} {pairs.text('powerset', 'natural', metric)}" for metric in PAPER_METRICS)
    return [
        f"**Label powerset's cost**, {len(costs)} groups. Against ZLPR it has {np.median(list(sizes.values())):.1f} times the"
        f" outputs (median; {sizes[largest]:.0f} times on {largest}) and takes {np.median(times):.1f} times as long an epoch"
        f" (median; at most {max(times):.0f} times; where models are small a step's fixed costs hide it). What it buys by the"
        f" natural rule, points, groups won : lost: {gains}. It can only ever predict sets it has seen.",
        "",
    ]


def losing(few: Statistics, pairs: Pairs, empty: dict[str, float]) -> list[str]:
    """Where plain ZLPR loses by its own rule, and what of the family mends it."""
    rows = []
    for metric in PAPER_METRICS[:4]:
        tuned, natural = few["values"]["tuned"][metric], few["values"]["natural"][metric]
        gains = [np.mean([tuned[g][name]["mean"] - natural[g][name]["mean"] for g in few["groups"]]) for name in PAPER]
        rows.append([metric, *(f"{100 * gain:+.1f}" for gain in gains)])
    lags = []
    for group in few["groups"]:
        row = few["values"]["natural"]["micro-F1"][group]
        best = max(row, key=lambda name: row[name]["mean"])
        lag = row[best]["mean"] - row["zlpr"]["mean"]
        own = few["values"]["tuned"]["micro-F1"][group]["zlpr"]["mean"] - row["zlpr"]["mean"]
        if lag > 0.02:
            numbers = (f"{100 * lag:.1f}", f"{100 * own:.1f}", f"{100 * empty[group]:.0f}")
            lags.append([group, few["titles"][best], *numbers])
    lags.sort(key=lambda row: -float(row[2]))
    return [
        "## 2. Where ZLPR loses, why, and what mends it",
        "",
        "What a tuned cut gains over the natural rule, points, mean over groups. Where it is large, scores are fine and"
        " the rule"
        " is too shy:",
        "",
        markdown_table(["", *(few["titles"][name] for name in PAPER)], rows),
        "",
        f"Groups in which plain ZLPR is more than 2 points of micro-F1 behind the best of the six by the natural rule"
        f" ({len(lags)} of {len(few['groups'])}), what its own tuned cut gains, and the share of rows it leaves empty:",
        "",
        markdown_table(["group", "best", "behind, points", "its tuned cut gains", "empty rows, %"], lags),
        "",
        "The family's remedies against plain ZLPR, **natural rule**: mean difference in points over the groups that have both"
        " (their number in brackets), groups won : lost by the means, * where Wilcoxon's test over groups, with Holm's"
        " correction"
        " over the remedies, is below 0.05. RankLoss and ECE: negative is better.",
        "",
        menders(pairs, "natural"),
        "",
        "The same with **tuned cuts**: what is left is what a remedy changes in the scores themselves. The automatic weight"
        " changes none; where its row is not zero, training stopped at another epoch, for which both rules count, or ran on"
        " another machine.",
        "",
        menders(pairs, "tuned"),
        "",
    ]


def menders(pairs: Pairs, rule: str) -> str:
    """The table of remedies."""
    sure = {metric: pairs.proven(rule, metric) for metric in SEVEN}
    rows = [
        [pairs.title(name), *(pairs.text(name, rule, metric, star=name in sure[metric]) for metric in SEVEN)]
        for name in MENDERS
        if name in pairs.each
    ]
    return markdown_table(["", *SEVEN], rows)


def automatic(cells: Cells) -> list[str]:
    """The automatic weight: what it is, what it reaches of a tuned cut, what it costs; fixed weights beside it."""
    pair = over_common_groups(cells, ("zlpr", AUTO))
    weights = over_common_groups(cells, ("zlpr", "zlpr+pos_weight=3", "zlpr+pos_weight=10", "zlpr+pos_weight=labels", AUTO))
    reached = []
    for metric in F1S:
        natural, auto = (averages(pair, "natural", name)[metric] for name in ("zlpr", AUTO))
        tuned = averages(pair, "tuned", "zlpr")[metric]
        reached.append(f"{metric} {100 * (auto - natural) / (tuned - natural):.0f} %" if tuned > natural else f"{metric} -")
    return [
        "### The automatic weight",
        "",
        "`pos_weight=auto` weighs the positives by w and the negatives by 1 / w inside the two sums. That is exactly a"
        " shift of the"
        " scores by log w: it changes no ranking and no gradient of the model, only where zero is. log w follows the training"
        " batches: at the best cut for micro-F1 the probability of a label is half the F1 that is reached, and w moves"
        " until the"
        " entries near zero have that probability. Where a model learns its training rows by heart its scores on them say"
        " little and w would stay near 1; so w is as large at least as it takes to give validation rows as many labels as"
        " training rows have, for which no label of theirs is looked at. A weight on the positives alone is half such a shift"
        " and half another loss.",
        "",
        f"Means in percent over the {len(pair['groups'])} groups that have both:",
        "",
        averages_table(pair, [("zlpr", "natural"), (AUTO, "natural"), ("zlpr", "tuned")]),
        "",
        f"Of what a cut tuned on validation rows gains for plain ZLPR, the automatic weight reaches without one:"
        f" {', '.join(reached)}.",
        "",
        f"Beside fixed weights, over the {len(weights['groups'])} groups that have them all:",
        "",
        averages_table(weights, [*((name, "natural") for name in weights["methods"]), ("zlpr", "tuned")]),
        "",
        *torn(pair),
    ]


def averages(statistics: Statistics, rule: str, name: str) -> dict[str, float]:
    """Mean over groups by metric; those that the method does not have are left out."""
    values = statistics["values"][rule]
    found = {metric: [row[name]["mean"] for row in values[metric].values() if name in row] for metric in SEVEN}
    return {metric: float(np.mean(own)) for metric, own in found.items() if own}


def averages_table(statistics: Statistics, rows: Sequence[tuple[str, str]]) -> str:
    """Means over groups of methods under rules; a loss without a link to probabilities has no ECE."""
    lines = []
    for name, rule in rows:
        means = averages(statistics, rule, name)
        values = [f"{100 * means[metric]:.1f}" if metric in means else "" for metric in SEVEN]
        lines.append([f"{statistics['titles'][name]}, {rule}", *values])
    return markdown_table(["", *SEVEN], lines)


def torn(pair: Statistics) -> list[str]:
    """What choosing epoch and trial for decisions at zero costs plain ZLPR in ranking."""
    rows = []
    tuned, natural = (pair["values"][rule]["AvgPrec"] for rule in ("tuned", "natural"))
    for group in pair["groups"]:
        gaps = [100 * (tuned[group][name]["mean"] - natural[group][name]["mean"]) for name in ("zlpr", AUTO)]
        if gaps[0] > 2:
            rows.append([group, *(f"{gap:.1f}" for gap in gaps)])
    if not rows:
        return []
    return [
        "A shy zero rule costs ranking too: epoch and trial are chosen under the rule that is judged, and where plain"
        " ZLPR predicts"
        " too few labels the trial with the most extreme scores wins, which ranks worse. AvgPrec points lost by choosing"
        " for the"
        " natural rule instead of a tuned cut, groups with more than 2 for ZLPR:",
        "",
        markdown_table(["group", "ZLPR", "ZLPR, automatic weight"], rows),
        "",
    ]


def empty_rows(cells: Cells) -> dict[str, float]:
    """The share of rows for which plain ZLPR predicts nothing, by group."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        if cell["method"] == "zlpr" and "metrics" in cell:
            found.setdefault(group_of(cell), []).append(cell["metrics"]["natural"]["empty"])
    return {group: float(np.mean(values)) for group, values in found.items()}


def proven(statistics: Statistics, rule: str, metric: str, *, ahead: bool) -> str:
    """The methods ZLPR is surely ahead of, or behind."""
    found = statistics["tests"][rule][metric]["wilcoxon"]
    kept = [name for name, each in found.items() if each["p_holm"] < 0.05 and (each["median_difference"] > 0) == ahead]
    return names(statistics, kept) or "none"


def names(statistics: Statistics, methods: Sequence[str]) -> str:
    """Titles with commas."""
    return ", ".join(statistics["titles"].get(name, name) for name in methods)


def verdict(holds: bool, yes: str = "The claim holds here", no: str = "The claim does not hold here") -> str:
    """What follows."""
    return f"*{yes if holds else no}.*"
