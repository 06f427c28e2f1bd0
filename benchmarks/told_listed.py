"""Told models against figures that earlier pages list: means and deviations over 5 seeds, whose cells are gone.

Part of the page of ``benchmarks.told_page``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.metric_defaults import JUDGING
from manyhot.comparison.ranks import critical_difference, friedman, holm, rank_table, signed_ranks
from manyhot.comparison.table import markdown_table

RESULTS = Path(__file__).parent / "results"
GROUPS = "compare-groups-2026-11-15.md"
SEEDS = 5
TOLD = "told"
Figures = dict[tuple[str, str], dict[str, dict[str, tuple[float, float]]]]


def listed_figures() -> Figures:
    """``{(metric, rule): {group: {method: (mean, deviation)}}}`` of the page of the groups, in percent."""
    found: Figures = {}
    text = (RESULTS / GROUPS).read_text()
    for metric, rule, table in re.findall(r"^(\S+), (natural|tuned) rule, percent:\n\n((?:\|.*\n)+)", text, re.M):
        header, _, *lines = table.splitlines()
        methods = [each.strip() for each in header.strip("|").split("|")][1:]
        for line in lines:
            group, *cells = (each.strip(" *") for each in line.strip("|").split("|"))
            pairs = [re.findall(r"[\d.]+", cell) for cell in cells]
            own = {m: (float(pair[0]), float(pair[1])) for m, pair in zip(methods, pairs, strict=True) if len(pair) == 2}
            found.setdefault((metric, rule), {})[group] = own
    return found


def told_values(cells: list[dict[str, Any]], metric: str) -> dict[str, list[float]]:
    """The values of told models over seeds, in percent; a text set's model stands in both of its groups."""
    found = defaultdict(list)
    for cell in cells:
        value = cell["metrics"]["tuned"].get(metric)
        for body in ("linear", "mlp") if cell["model"] == "auto" else (cell["model"],):
            if value is not None:
                found[f"{cell['data']}/{body}"].append(100 * value)
    return found


def against_listed(cells: list[dict[str, Any]], rule: str, metrics: tuple[str, ...]) -> list[str]:
    """Average ranks with their tests, and each group beside its best method."""
    figures, lines = listed_figures(), []
    kept = [metric for metric in metrics if set(figures.get((metric, rule), {})) & set(told_values(cells, metric))]
    for judging in (False, True):
        shown, sentences, methods = {}, [], []
        for metric in kept:
            values, listed = told_values(cells, metric), figures[metric, rule]
            groups = [g for g in listed if g in values and (not judging or g.split("/")[0] in JUDGING)]
            if groups:
                methods = [TOLD, *listed[groups[0]]]
                shown[metric], sentence = _ranked(groups, values, listed, methods)
                sentences.append(f"- {metric}: {sentence}")
                count = len(groups)
        if shown:
            what = "groups that chose nothing" if judging else "all groups"
            rows = [[name, *(f"{shown[m][name]:.2f}" for m in shown)] for name in methods]
            lines += [f"**{what.capitalize()}.** Average rank, 1 is best:", ""]
            lines += [markdown_table([f"{count} groups", *shown], rows), "", *sentences, ""]
    for metric in kept:
        lines += [f"### {metric}, the others by their {rule} rule", "", *_by_group(cells, metric, figures[metric, rule]), ""]
    return lines


def _ranked(groups: list[str], values: Any, listed: Any, methods: list[str]) -> tuple[dict[str, float], str]:
    means = np.array([[np.mean(values[g]), *(listed[g][name][0] for name in methods[1:])] for g in groups])
    ranks = rank_table(means)
    average = dict(zip(methods, ranks.mean(axis=0).tolist(), strict=True))
    gaps = [means[:, 0] - means[:, place] for place in range(1, len(methods))]
    corrected = holm([signed_ranks(gap) for gap in gaps])
    sides: dict[bool, list[str]] = {True: [], False: []}
    for name, gap, p in zip(methods[1:], gaps, corrected, strict=True):
        if p < 0.05:
            sides[bool(np.median(gap) > 0)].append(name)
    best = int((ranks[:, 0] == ranks.min(axis=1)).sum())
    told = f"best mean in {best} of {len(groups)}; ahead of {', '.join(sides[True]) or 'none'}, behind"
    told += f" {', '.join(sides[False]) or 'none'} (Wilcoxon, Holm)"
    if len(groups) > 1:
        difference = critical_difference(len(methods), len(groups))
        level = [name for name in methods[1:] if abs(average[name] - average[TOLD]) <= difference]
        told += f"; Friedman p {friedman(ranks)['p']:.2g}, critical difference {difference:.2f}: level with"
        told += f" {', '.join(level) or 'none'} (Nemenyi)"
    return average, told + "."


def _by_group(cells: list[dict[str, Any]], metric: str, listed: Any) -> list[str]:
    values, rows, counts = told_values(cells, metric), [], [0, 0, 0]
    for group in sorted(set(listed) & set(values)):
        best = max(listed[group], key=lambda name: listed[group][name][0])
        mean, deviation = listed[group][best]
        corrected = dict(
            zip(listed[group], holm([welch_of(values[group], each) for each in listed[group].values()]), strict=True)
        )
        gap, p = np.mean(values[group]) - mean, corrected[best]
        counts[0 if gap > 0 else 2 if p < 0.05 else 1] += 1
        mark = "**behind**" if gap <= 0 and p < 0.05 else "ahead" if gap > 0 and p < 0.05 else ""
        chose = "" if group.split("/")[0] in JUDGING else " (chose)"
        rows.append(
            [group + chose, spread(values[group]), f"{mean:.1f} ± {deviation:.1f}", best, f"{gap:+.1f}", f"{p:.2g}", mark]
        )
    told = f"Best mean in {counts[0]}, not significantly worse in {counts[1]}, significantly worse in {counts[2]} groups."
    return [told, "", markdown_table(["group", "told", "best single method", "which", "gap", "p (Welch, Holm)", ""], rows)]


def welch_of(values: list[float], other: tuple[float, float]) -> float:
    """Welch's test against a mean and a deviation of 5 seeds; 1 with a single value."""
    from scipy.stats import ttest_ind_from_stats

    if len(values) < 2:
        return 1.0
    # Deviations are listed with one digit.
    own, listed = max(float(np.std(values, ddof=1)), 1e-6), max(other[1], 0.05)
    found = ttest_ind_from_stats(float(np.mean(values)), own, len(values), other[0], listed, SEEDS, equal_var=False)
    return float(found.pvalue)


def spread(values: list[float]) -> str:
    """The mean, and the deviation where there are several."""
    return f"{np.mean(values):.1f}" + (f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else "")
