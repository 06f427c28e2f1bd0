"""The report of a comparison as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyhot.report.comparison.charts import friedman_words, p_words
from manyhot.report.comparison.words import RULES, cell_class, lead_words, mean_cost, note_words
from manyhot.report.run.markdown import markdown_table, plain

MARKS = {"": "{}", "best": "**{}**", "tied": "_{}_"}


def compare_markdown(report: Mapping[str, Any], *, title: str) -> str:
    """The Markdown of a comparison's report.

    Args:
        report: ``plan``, ``statistics`` and ``failed``, from ``read_comparison``.
        title: the first heading.
    """
    found = report["statistics"]
    lines = [f"# {plain(title)}", "", plain(lead_words(report)), "", plain(note_words(report)), ""]
    lines += [
        "In the tables of values, bold marks a method that is significantly better than every other one in its group. Italics"
        " mark the methods that do not differ significantly from the best, if there are several.",
        "",
    ]
    for rule in found["tests"]:
        for metric in found["metrics"]:
            lines += _metric(found, rule, metric)
    lines += ["## Cost", "", *_costs(found), ""]
    if report["failed"]:
        lines += ["## Failed cells", ""]
        lines += [f"- {plain(each['key'])}: {plain(each['error'][:200])}" for each in report["failed"][:50]] + [""]
    return "\n".join(lines)


def _metric(found: Mapping[str, Any], rule: str, metric: str) -> list[str]:
    test = found["tests"][rule].get(metric)
    if not test:
        return []
    methods, titles = found["methods"], found["titles"]
    rows = []
    for group in found["groups"]:
        values, best = found["values"][rule][metric].get(group, {}), test["significant_best"].get(group, [])
        cells = []
        for method in methods:
            value = values.get(method)
            text = "-" if not value or value["mean"] is None else f"{value['mean']:.3f}"
            cells.append(MARKS[cell_class(method, best)].format(text))
        rows.append((plain(group), *cells))
    ranks = test.get("average_ranks") or {}
    rows.append(("average rank", *(f"{ranks[method]:.2f}" if method in ranks else "-" for method in methods)))
    rows.append(("best in", *(str(test["best_in"].get(method, "-")) for method in methods)))
    right = range(1, len(methods) + 1)
    lines = [f"## {metric}, {RULES.get(rule, rule)} ({'less' if found['metrics'][metric]['error'] else 'more'} is better)", ""]
    lines += [*markdown_table(("group", *(plain(titles[method]) for method in methods)), rows, right=right), ""]
    nemenyi = test.get("nemenyi")
    if nemenyi:
        lines += [f"{friedman_words(test)} Critical difference {nemenyi['critical_difference']:.2f}.", ""]
    against = []
    for method, wins in test["plain_wins"].items():
        told = (test.get("wilcoxon") or {}).get(method) or {}
        sure = test["win_tie_loss"].get(method)
        against.append(
            (
                plain(titles[method]),
                "-" if sure is None else " / ".join(map(str, sure)),
                " / ".join(map(str, wins)),
                p_words(told.get("p_holm")),
            )
        )
    headings = (f"{plain(titles[test['reference']])} against", "win / tie / loss", "by means only", "p, Holm")
    return [*lines, *markdown_table(headings, against, right=(1, 2, 3)), ""]


def _costs(found: Mapping[str, Any]) -> list[str]:
    keys = ("seconds", "epoch_seconds", "predict_seconds", "parameters", "peak_bytes")
    rows = []
    for method in found["methods"]:
        means = [mean_cost(found["costs"], method, key) for key in keys]
        if means[-1] is not None:
            means[-1] /= 2**20
        rows.append((plain(found["titles"][method]), *("-" if mean is None else f"{mean:,.4g}" for mean in means)))
    headings = ("method", "seconds", "seconds per epoch", "seconds to predict 1,000 rows", "parameters", "peak memory, MiB")
    return markdown_table(headings, rows, right=(1, 2, 3, 4, 5))
