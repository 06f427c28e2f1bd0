"""The charts of a comparison: critical differences, ranks as a heat map, and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from manyhot.report.parts.markup import Markup, element
from manyhot.report.parts.svg import Plot, log_ticks, tick_text
from manyhot.report.run.charts import figure

ROW = 18
TIMES = "\u00d7"
SHADES = 9


def difference_figure(test: Mapping[str, Any], titles: Mapping[str, str], metric: str) -> Markup | None:
    """The critical-difference diagram: average ranks on a line, best at the left. A bar joins methods that do not differ
    significantly by Nemenyi's test.
    """
    if not test or not test.get("nemenyi"):
        return None
    ranks = sorted(test["average_ranks"].items(), key=lambda each: each[1])
    bars = [bar for bar in test["nemenyi"]["cliques"] if len(bar) > 1]
    number, half = len(ranks), (len(ranks) + 1) // 2
    below = 62 + 9 * len(bars)
    height = below + ROW * half + 14
    side = 72 + round(6.6 * min(34, max(len(titles[name]) for name, _ in ranks)))
    plot = Plot(420 + 2 * side, height, x=(1, number), margins=(side, side, 50, 10))
    top = float(plot.top)
    plot.add("line", x1=plot.at_x(1), x2=plot.at_x(number), y1=top, y2=top, class_="axis")
    for rank in range(1, number + 1):
        place = plot.at_x(rank)
        plot.add("line", x1=place, x2=place, y1=top - 5, y2=top, class_="axis")
        plot.text(place, top - 9, str(rank), text_anchor="middle", class_="tick")
    size = test["nemenyi"]["critical_difference"]
    _difference_bar(plot, size, number)
    average = dict(ranks)
    for level, bar in enumerate(bars):
        y = top + 12 + 9 * level
        ends = min(average[name] for name in bar), max(average[name] for name in bar)
        told = element("title", "no significant difference: " + ", ".join(titles[name] for name in bar))
        plot.add("line", told, x1=plot.at_x(ends[0]) - 4, x2=plot.at_x(ends[1]) + 4, y1=y, y2=y, class_="clique")
    for place, (name, rank) in enumerate(ranks):
        left = place < half
        y = below + ROW * (place if left else number - 1 - place)
        x, end = plot.at_x(rank), (plot.left - 12.0 if left else plot.right + 12.0)
        reference = " reference" if name == test.get("reference") else ""
        plot.add("path", d=f"M{x:.1f} {top:.1f}V{y:.1f}H{end:.1f}", class_="leader" + reference)
        words = (f"{titles[name]}  {rank:.2f}") if left else f"{rank:.2f}  {titles[name]}"
        anchor = "end" if left else "start"
        plot.text(end + (-5 if left else 5), y + 4, words, text_anchor=anchor, class_="name" + reference)
    listed = ", ".join(f"{titles[name]} {rank:.2f}" for name, rank in ranks)
    described = f"Average ranks for {metric}: {listed}. Critical difference {size:.2f}."
    caption = (
        f"Average rank over {test['groups']} groups, best at the left. Methods joined by a bar do not differ significantly by"
        f" Nemenyi's test (level {test['nemenyi']['alpha']:g}; critical difference {size:.2f}). {friedman_words(test)}"
    )
    return figure(plot.drawing(f"Critical differences, {metric}", described, class_="differences"), caption)


def _difference_bar(plot: Plot, size: float, number: int) -> None:
    """The length of the critical difference, above the axis; it may be longer than the axis."""
    shown = min(size, number - 1)
    ends = plot.at_x(1), plot.at_x(1 + shown)
    plot.add("path", d=f"M{ends[0]:.1f} 12v8m0 -4H{ends[1]:.1f}m0 -4v8", class_="axis open")
    cut = "" if shown == size else " (longer than the axis)"
    plot.text(ends[1] + 7, 20, f"CD {size:.2f}{cut}", class_="tick")


def friedman_words(test: Mapping[str, Any]) -> str:
    """The result of Friedman's test in a sentence."""
    found = test.get("friedman")
    if not found:
        return ""
    return f"Friedman: chi-squared {found['chi2']:.1f}, p {p_words(found['p'])}."


def p_words(p: float | None) -> str:
    """A p-value with two digits.

    Example:
        >>> p_words(0.0312), p_words(1e-9), p_words(None)
        ('0.031', '< 0.0001', '-')
    """
    if p is None:
        return "-"
    if p < 0.0001:
        return "< 0.0001"
    return f"{p:.2f}" if p >= 0.1 else f"{p:.2g}"


def rank_shade(rank: float, number: int) -> int:
    """The shade of a rank, from 1, the best, to ``SHADES``."""
    return 1 + round((rank - 1) / max(number - 1, 1) * (SHADES - 1))


def _time_ratios(costs: Mapping[str, Any], method: str, reference: str) -> list[float]:
    """The time of a method divided by that of the reference, in each group that has both."""
    return [
        group[method]["seconds"] / group[reference]["seconds"]
        for group in costs.values()
        if reference in group and group.get(method, {}).get("seconds") and group[reference].get("seconds")
    ]


def cost_figure(costs: Mapping[str, Any], methods: Sequence[str], titles: Mapping[str, str], reference: str) -> Markup | None:
    """The time of each method relative to the reference: a dot per group, and a diamond for the geometric mean."""
    ratios = {method: _time_ratios(costs, method, reference) for method in methods}
    shown = [method for method in methods if ratios[method]]
    if len(shown) < 2:
        return None
    every = [ratio for method in shown for ratio in ratios[method]]
    low, high = min(0.5, min(every)) * 0.95, max(2.0, max(every)) * 1.05
    plot = Plot(
        560,
        46 + 22 * len(shown),
        x=(low, high),
        y=(0, len(shown)),
        margins=(24 + round(6.6 * min(34, max(len(titles[method]) for method in shown))), 14, 6, 40),
        log_x=True,
    )
    for tick in log_ticks(low, high):
        place = plot.at_x(tick)
        plot.add("line", x1=place, x2=place, y1=float(plot.top), y2=float(plot.bottom), class_="axis" if tick == 1 else "grid")
        plot.text(place, plot.bottom + 16, f"{tick_text(tick)}{TIMES}", text_anchor="middle", class_="tick")
    described = []
    for row, method in enumerate(shown):
        y = len(shown) - row - 0.5
        plot.text(plot.left - 10, plot.at_y(y) + 4, titles[method], text_anchor="end")
        for ratio in ratios[method]:
            plot.add("circle", cx=plot.at_x(ratio), cy=plot.at_y(y), r=2.6, class_="dot")
        mean = math.exp(sum(math.log(ratio) for ratio in ratios[method]) / len(ratios[method]))
        plot.mark(mean, y, series=1, shape="diamond", size=4, words=f"{titles[method]}: {mean:.2f}{TIMES}")
        described.append(f"{titles[method]} {mean:.2f}")
    plot.text(
        (plot.left + plot.right) / 2,
        plot.height - 6,
        f"time relative to {titles[reference]}",
        text_anchor="middle",
        class_="axis-title",
    )
    caption = (
        "Seconds per cell, with all trials and epochs, relative to the reference. A dot is a group; a diamond is the geometric"
        " mean."
    )
    return figure(plot.drawing("Time by method", "; ".join(described)), caption)
