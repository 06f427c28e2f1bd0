"""The table of a comparison as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from manyhot.comparison.measure import AT_K
from manyhot.comparison.statistics import PAPER_METRICS, RULES

Statistics = Mapping[str, Any]
COSTS = (
    ("epoch_seconds", "seconds per epoch"),
    ("predict_seconds", "seconds to predict 1,000 rows"),
    ("peak_bytes", "peak memory in training, MiB"),
)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers.

    Example:
        >>> print(markdown_table(["a", "b"], [["x", "1"]]))
        | a | b |
        |---|---:|
        | x | 1 |
    """
    lines = ["| " + " | ".join(headings) + " |", "|---|" + "---:|" * (len(headings) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def rank_rows(statistics: Statistics, rule: str, metrics: Sequence[str] = PAPER_METRICS) -> list[list[str]]:
    """Average rank of each method by metric, the best in bold; a dash if the method is missing in a group."""
    tests = {metric: statistics["tests"][rule][metric] for metric in metrics}
    lowest = {metric: min(test["average_ranks"].values(), default=0) if test else 0 for metric, test in tests.items()}
    rows = []
    for method in statistics["methods"]:
        row = [statistics["titles"][method]]
        for metric in metrics:
            rank = (tests[metric] or {"average_ranks": {}})["average_ranks"].get(method)
            text = "-" if rank is None else f"{rank:.2f}"
            row.append(f"**{text}**" if rank is not None and rank <= lowest[metric] + 1e-9 else text)
        rows.append(row)
    return rows


def value_rows(statistics: Statistics, rule: str, group: str, metrics: Sequence[str] = PAPER_METRICS) -> list[list[str]]:
    """``mean +- deviation`` in percent of each method in a group; bold if it is not significantly worse than the best."""
    rows = []
    for method in statistics["methods"]:
        row = [statistics["titles"][method]]
        for metric in metrics:
            cell = statistics["values"][rule][metric].get(group, {}).get(method)
            test = statistics["tests"][rule][metric]
            text = "-" if cell is None else f"{100 * cell['mean']:.1f} ± {100 * cell['std']:.1f}"
            best = test is not None and method in test["significant_best"].get(group, [])
            row.append(f"**{text}**" if best and cell is not None else text)
        rows.append(row)
    return rows


def at_k_of(statistics: Statistics, group: str) -> list[str]:
    """The metrics P@k and PSP@k that were computed for a group."""
    return [name for name in AT_K if statistics["values"]["tuned"].get(name, {}).get(group)]


def mean_rows(statistics: Statistics, rule: str, metrics: Sequence[str] = PAPER_METRICS) -> list[list[str]]:
    """Mean of each method over groups, in percent; a dash if the method is missing in a group."""
    rows = []
    for method in statistics["methods"]:
        row = [statistics["titles"][method]]
        for metric in metrics:
            values = statistics["values"][rule][metric]
            cells = [values.get(group, {}).get(method) for group in statistics["groups"]]
            known = [cell["mean"] for cell in cells if cell is not None]
            row.append(f"{100 * sum(known) / len(known):.1f}" if known and len(known) == len(cells) else "-")
        rows.append(row)
    return rows


def cost_rows(statistics: Statistics) -> list[list[str]]:
    """Mean costs of each method over groups and seeds: seconds of training and prediction, and memory in MiB."""
    rows = []
    for method in statistics["methods"]:
        row = [statistics["titles"][method]]
        for key, _ in COSTS:
            known = [group[method][key] for group in statistics["costs"].values() if key in group.get(method, {})]
            mean = sum(known) / len(known) / (2**20 if key == "peak_bytes" else 1) if known else None
            row.append("-" if mean is None else f"{mean:.3g}")
        rows.append(row)
    return rows


def comparison_text(statistics: Statistics) -> str:
    """The whole comparison as Markdown: ranks over groups if there are several, then every group."""
    parts = ["# Comparison of losses", ""]
    groups = statistics["groups"]
    metrics = list(PAPER_METRICS)
    parts += [
        f"Groups (data set x model): {len(groups)}. Methods: {len(statistics['methods'])}. Seeds: {len(statistics['seeds'])}."
        " Natural: the natural decision of the loss. Tuned: one threshold for each metric, tuned on validation rows.",
        "",
    ]
    for rule in RULES:
        if len(groups) > 1:
            parts += [
                f"## Means over groups, {rule} rule",
                "",
                markdown_table(["percent", *metrics], mean_rows(statistics, rule)),
                "",
            ]
            parts += [f"## Average ranks, {rule} rule", "", markdown_table(["", *metrics], rank_rows(statistics, rule)), ""]
            parts += [*(f"- {line}" for line in test_lines(statistics, rule)), ""]
    for group in groups:
        for rule in RULES:
            rows = value_rows(statistics, rule, group)
            parts += [f"## {group}, {rule} rule", "", markdown_table(["percent", *metrics], rows), ""]
        measured = at_k_of(statistics, group)
        if measured:
            rows = value_rows(statistics, "tuned", group, measured)
            parts += [f"## {group}, metrics of the k best labels", "", markdown_table(["percent", *measured], rows), ""]
    parts += ["## Cost", "", markdown_table(["mean per model", *(words for _, words in COSTS)], cost_rows(statistics)), ""]
    parts.append("Bold in a group: not significantly worse than the best over seeds (Welch's test, Holm's correction, 0.05).")
    return "\n".join(parts) + "\n"


def test_lines(statistics: Statistics, rule: str) -> list[str]:
    """One sentence per metric: Friedman's test, the critical difference, and the methods that differ from the reference."""
    lines = []
    title = statistics["titles"].get(statistics["reference"], statistics["reference"])
    for metric in PAPER_METRICS:
        test = statistics["tests"][rule][metric]
        if test is None or test["friedman"] is None:
            continue
        ahead: list[str] = []
        behind: list[str] = []
        for other, found in test["wilcoxon"].items():
            if found["p_holm"] < 0.05:
                (ahead if found["median_difference"] > 0 else behind).append(statistics["titles"][other])
        lines.append(
            f"{metric}: Friedman p = {test['friedman']['iman_davenport_p']:.2g}, critical difference"
            f" {test['nemenyi']['critical_difference']:.2f}; {title} ahead of {', '.join(ahead) or 'none'},"
            f" behind {', '.join(behind) or 'none'} (Wilcoxon, Holm)."
        )
    return lines
