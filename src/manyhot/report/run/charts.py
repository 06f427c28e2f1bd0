"""The charts of a run: learning curves, thresholds, precision and recall, reliability, sizes of label sets, missed labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from manyhot.decisions.links import LINK_WORDS
from manyhot.report.parts.markup import Markup, element, join, name_of
from manyhot.report.parts.svg import Plot, legend, nice_ticks, tick_text

WIDE, TALL = 440, 290


def figure(chart: Markup, caption: Any, *more: Any) -> Markup:
    """A chart with its caption and legend."""
    return element("figure", chart, *more, element("figcaption", caption))


def learning_figures(
    fits: Sequence[Mapping[str, Any]], *, held_out: str = "held-out rows, with the best single threshold of each epoch"
) -> list[Markup]:
    """The loss, and the metric on held-out rows, by epoch."""
    known = [fit for fit in fits if any(value is not None for value in fit["loss"])]
    if not known:
        return []
    figures = [_learning(known, "loss", "mean training loss", "Training loss after each epoch.")]
    measured = [fit for fit in known if any(value is not None for value in fit["value"])]
    if measured:
        metric = measured[0]["metric"]
        caption = f"{metric} on the {held_out}; the marked epoch was kept."
        figures.append(_learning(measured, "value", f"held-out {metric}", caption, best=True))
    return figures


def _learning(fits: Sequence[Mapping[str, Any]], key: str, title: str, caption: str, *, best: bool = False) -> Markup:
    values = [value for fit in fits for value in fit[key] if value is not None]
    last = max(max(fit["epoch"]) for fit in fits)
    low, high = min(values), max(values)
    room = (high - low) * 0.08 or max(abs(high) * 0.1, 1e-3)
    plot = Plot(
        WIDE, TALL, x=(min(1, last - 1), last) if last > 1 else (0, 2), y=(low - room, high + room), margins=(56, 12, 12, 40)
    )
    whole = [tick for tick in nice_ticks(*plot.x) if float(tick).is_integer()]
    plot.axes("epoch", title, x_ticks=whole)
    final = [fit for fit in fits if fit["fit"] == "final"] or fits[-1:]
    for fit in fits:
        if fit is not final[0]:
            plot.line(fit["epoch"], fit[key], series=6, class_="solid thin")
    plot.line(final[0]["epoch"], final[0][key], series=1)
    shown = [(epoch, value) for epoch, value in zip(final[0]["epoch"], final[0][key], strict=True) if value is not None]
    if len(shown) <= 15 and not best:
        for epoch, value in shown:
            plot.mark(epoch, value, series=1, size=2.5, words=f"epoch {epoch}: {value:.4g}")
    if best:
        epoch, value = (max if final[0]["better"] == "more" else min)(shown, key=lambda each: each[1])
        plot.mark(epoch, value, series=1, shape="diamond", size=4, words=f"epoch {epoch}: {value:.4g}")
    described = f"{title} from {shown[0][1]:.4g} at epoch {shown[0][0]} to {shown[-1][1]:.4g} at epoch {shown[-1][0]}."
    entries: list[tuple[int, str, Markup | str]] = [(1, "line", "the model")]
    if len(fits) > 1:
        entries.append((6, "line", "other fits: cross-fitting for this report, and trials of the learning rate"))
    return figure(plot.drawing(title, described), caption, legend(entries) if len(fits) > 1 else None)


def slider_chart(slider: Mapping[str, Any], micro: Sequence[float], macro: Sequence[float]) -> Markup:
    """Micro- and macro-F1 against the shift of the thresholds, with a line that the page moves."""
    shifts = slider["shifts"]
    high = max([*micro, *macro, 0.05])
    plot = Plot(1000, 260, x=(shifts[0], shifts[-1]), y=(0, min(1.0, math.ceil(high * 10.5) / 10)), margins=(46, 12, 10, 40))
    plot.axes("shift of the thresholds", "F1")
    plot.line(shifts, micro, series=1)
    plot.line(shifts, macro, series=2)
    own = slider["own"]
    if own >= 0:
        place = plot.at_x(shifts[own])
        plot.add("line", x1=place, x2=place, y1=float(plot.top), y2=float(plot.bottom), class_="axis dotted")
    start = plot.at_x(shifts[max(own, 0)])
    plot.add("line", x1=start, x2=start, y1=float(plot.top), y2=float(plot.bottom), class_="cursor", id="slider-cursor")
    best = max(range(len(micro)), key=lambda place: micro[place])
    described = f"micro-F1 is highest, {micro[best]:.3f}, at a shift of {shifts[best]:.3g}."
    chart = plot.drawing(
        "F1 by shift of the thresholds", described, id="slider-chart", data_left=plot.left, data_right=plot.right
    )
    return element("figure", chart, legend([(1, "line", "micro-F1"), (2, "line", "macro-F1")]))


def curves_figure(curves: Sequence[Mapping[str, Any]]) -> Markup:
    """Precision against recall."""
    plot = Plot(WIDE, 360)
    plot.axes("recall", "precision")
    for series, curve in enumerate(curves, start=1):
        if curve["recall"]:
            recall = [0.0, *curve["recall"]]
            plot.line(recall, [curve["precision"][0], *curve["precision"]], series=series, class_="bold" if series == 1 else "")
    for series, curve in enumerate(curves, start=1):
        if curve["rule_at"]:
            words = f"{curve['name']}: recall {curve['rule_at'][0]:.3f}, precision {curve['rule_at'][1]:.3f}"
            plot.mark(curve["rule_at"][0], curve["rule_at"][1], series=series, words=words)
    entries: list[tuple[int, str, Markup | str]] = [
        (
            series,
            "line",
            join(
                name_of(curve["name"], 40),
                element("span", f" {curve['why']}, ", class_="soft") if series > 1 else ", ",
                element("span", f"AP {curve['average_precision']:.3f}", class_="figure"),
            ),
        )
        for series, curve in enumerate(curves, start=1)
    ]
    described = "; ".join(f"{curve['name']}: average precision {curve['average_precision']:.3f}" for curve in curves)
    caption = (
        "A point is the model's decision rule. With one threshold per label, the point for all labels may lie above its curve,"
        " because the curve uses one threshold for all labels."
    )
    return figure(plot.drawing("Precision and recall", described), caption, legend(entries))


def reliability_figure(reliability: Mapping[str, Any]) -> Markup:
    """The reliability diagram: the share of true labels by predicted probability, with the number of entries below."""
    plot = Plot(WIDE, 290, margins=(46, 12, 12, 40))
    plot.axes("predicted probability", "share of true labels")
    plot.add("line", x1=plot.at_x(0), x2=plot.at_x(1), y1=plot.at_y(0), y2=plot.at_y(1), class_="axis dotted")
    entries: list[tuple[int, str, Markup | str]] = []
    kinds = (
        ("before", 2, "circle", LINK_WORDS.get(reliability["link"], "")),
        ("after", 1, "square", reliability["calibration"]),
    )
    described = []
    shown = [(kind, series, shape, words) for kind, series, shape, words in kinds if reliability[kind]]
    for kind, series, shape, words in shown:
        found = reliability[kind]
        filled = [place for place, number in enumerate(found["count"]) if number]
        shares = {place: found["true"][place] / found["count"][place] for place in filled}
        plot.line([found["probability"][p] for p in filled], [shares[p] for p in filled], series=series, class_="thin")
        for place in filled:
            low, high = wilson(found["true"][place], found["count"][place])
            middle = plot.at_x(found["probability"][place])
            plot.add("line", x1=middle, x2=middle, y1=plot.at_y(low), y2=plot.at_y(high), class_=f"line thin s{series}")
            told = f"{found['count'][place]:,} entries: predicted {found['probability'][place]:.3f}, true {shares[place]:.3f}"
            plot.mark(found["probability"][place], shares[place], series=series, shape=shape, size=3, words=told)
        entries.append((series, shape, f"{kind} calibration ({words}): ECE {found['ECE']:.4f}"))
        described.append(f"{kind} calibration, the expected calibration error is {found['ECE']:.4f}")
    caption = "Probabilities on the dotted line are calibrated. Error bars are 95 % confidence intervals of the shares."
    strip = _counts_strip([(reliability[kind]["count"], series) for kind, series, _, _ in shown])
    drawing = plot.drawing("Reliability", "; ".join(described) + ".")
    return figure(join(drawing, strip), caption, legend(entries))


def _counts_strip(histograms: Sequence[tuple[Sequence[int], int]]) -> Markup:
    most = max([1, *(max(counts) for counts, _ in histograms)])
    plot = Plot(WIDE, 84, y=(0, math.log10(most) + 0.15), margins=(46, 12, 4, 22))
    powers = [power for power in range(0, math.floor(math.log10(most)) + 1) if power % max(1, round(math.log10(most) / 2)) == 0]
    for power in powers:
        place = plot.at_y(power)
        plot.add("line", x1=float(plot.left), x2=float(plot.right), y1=place, y2=place, class_="grid")
        plot.text(plot.left - 6, place + 3.5, tick_text(10**power), text_anchor="end", class_="tick")
    for place, (counts, series) in enumerate(histograms):
        size = 1 / len(counts)
        for number, each in enumerate(counts):
            if each:
                x = plot.at_x((number + 0.08 + 0.42 * place) * size)
                y = plot.at_y(math.log10(each) + 0.1)
                wide = (plot.right - plot.left) * size * 0.4
                plot.add(
                    "rect",
                    element("title", f"{each:,} entries"),
                    x=x,
                    y=y,
                    width=wide,
                    height=plot.bottom - y,
                    class_=f"bar s{series}",
                )
    plot.add("line", x1=float(plot.left), x2=float(plot.right), y1=float(plot.bottom), y2=float(plot.bottom), class_="axis")
    plot.text(
        (plot.left + plot.right) / 2,
        plot.height - 6,
        "entries by probability, logarithmic",
        text_anchor="middle",
        class_="axis-title",
    )
    return plot.drawing("Entries by probability", f"At most {most:,} entries in a bin.")


def wilson(hits: int, number: int) -> tuple[float, float]:
    """Wilson's 95 % score interval of a share.

    Example:
        >>> [round(end, 3) for end in wilson(5, 10)]
        [0.237, 0.763]
    """
    z = 1.959964
    centre = (hits + z * z / 2) / (number + z * z)
    half = z / (number + z * z) * math.sqrt(hits * (number - hits) / number + z * z / 4)
    return max(0.0, centre - half), min(1.0, centre + half)


def grouped_counts(counts: Sequence[Sequence[int]], most: int = 16) -> tuple[list[str], list[list[int]]]:
    """``(names, bars)``: at most ``most`` bars of equal width; a tail of less than 1 % of the rows joins the last one.

    Example:
        >>> grouped_counts([[0, 500, 499, 1], [500, 500, 0, 0]])
        (['0', '1', '2+'], [[0, 500, 500], [500, 500, 0]])
        >>> grouped_counts([[10] * 40], most=10)[0]
        ['0-4', '5-9', '10-14', '15-19', '20-24', '25-29', '30-34', '35-39']
    """
    rows, last = max(sum(counts[0]), 1), len(counts[0])
    while last > 2 and sum(sum(part[last - 1 :]) for part in counts) < 0.01 * rows:
        last -= 1
    wide = next(factor * 10**power for power in range(12) for factor in (1, 2, 5) if factor * 10**power * most >= last)
    starts = list(range(0, last, wide))
    names = [str(start) if wide == 1 else f"{start}-{start + wide - 1}" for start in starts]
    if last < len(counts[0]):
        names[-1] = f"{starts[-1]}+"
    ends = [*starts[1:], len(counts[0])]
    return names, [[sum(part[start:end]) for start, end in zip(starts, ends, strict=True)] for part in counts]


def counts_figure(counts: Mapping[str, Sequence[int]]) -> Markup:
    """The share of rows with 0, 1, 2, ... labels: true beside predicted."""
    rows = max(sum(counts["true"]), 1)
    names, (true, predicted) = grouped_counts([counts["true"], counts["predicted"]])
    shares = [[each / rows for each in part] for part in (true, predicted)]
    high = max(max(part) for part in shares)
    plot = Plot(WIDE, TALL, x=(0, len(true)), y=(0, high * 1.08 or 1), margins=(50, 12, 12, 40))
    ticks = nice_ticks(0, high * 1.08 or 1, 5)
    plot.axes("labels per row", "share of rows", x_ticks=[], y_ticks=ticks)
    width = plot.at_x(1) - plot.at_x(0)
    for kind, (part, numbers, word) in enumerate(zip(shares, (true, predicted), ("true", "predicted"), strict=True)):
        for place, each in enumerate(part):
            x, y = plot.at_x(place) + width * (0.1 + 0.41 * kind), plot.at_y(each)
            told = element("title", f"{names[place]} labels {word}: {numbers[place]:,} rows")
            plot.add(
                "rect", told, x=x, y=y, width=width * 0.39, height=plot.bottom - y, class_=f"bar s{2 - kind if kind else 6}"
            )
    every = math.ceil(6.5 * max(len(name) for name in names) / width)
    for place, name in list(enumerate(names))[::every]:
        plot.text(plot.at_x(place + 0.5), plot.bottom + 16, name, text_anchor="middle", class_="tick")
    means = [sum(place * each for place, each in enumerate(counts[key])) / rows for key in ("true", "predicted")]
    caption = f"On average {means[0]:.2f} labels per row are true and {means[1]:.2f} are predicted."
    entries: list[tuple[int, str, Markup | str]] = [(6, "bar", "true"), (1, "bar", "predicted")]
    return figure(plot.drawing("Labels per row", caption), caption, legend(entries))


def _missed_cell(plot: Plot, names: tuple[str, str], rows: int, share: float, box: tuple[int, int, int]) -> None:
    """Draw one cell of the missed labels. It is darker if both labels are missed in more rows; the diagonal is outlined."""
    x, y, size = box
    own = names[0] == names[1]
    words = f"{names[0]}: missed in {rows:,} rows" if own else f"{names[0]} and {names[1]}: {rows:,} rows"
    plot.add(
        "rect",
        element("title", words),
        x=x + 0.5,
        y=y + 0.5,
        width=size - 1,
        height=size - 1,
        class_="cell-own" if own else "cell",
        fill_opacity=None if own else round(0.08 + 0.84 * share, 3) if share else 0.025,
    )
    if rows:
        short = f"{rows}" if rows < 1000 else f"{rows / 1000:.1f}k" if rows < 9950 else f"{rows / 1000:.0f}k"
        kind = "cell-text strong" if share > 0.55 else "cell-text"
        plot.text(x + size / 2, y + size / 2 + 3.5, short, text_anchor="middle", class_=kind)


def missed_figure(missed: Mapping[str, Any]) -> Markup | None:
    """The number of rows in which two labels are both missed; on the diagonal, in which one label is missed."""
    names, table = missed["labels"], missed["together"]
    if len(names) < 2:
        return None
    size = len(names)
    cell, left, top = 25, 136, 8
    below = 26 + round(4.6 * min(16, max(len(name) for name in names)))
    plot = Plot(left + cell * size + 8, top + cell * size + below, margins=(left, 8, top, below))
    most = max([1, *(table[a][b] for a in range(size) for b in range(a))])
    for a in range(size):
        place = top + cell * a
        plot.text(left - 8, place + cell / 2 + 4, _short(names[a], 20), text_anchor="end", class_="tick ink")
        turn = f"rotate(-50 {left + cell * a + cell / 2 + 3:.0f} {top + cell * size + 12})"
        plot.text(
            left + cell * a + cell / 2 + 3,
            top + cell * size + 12,
            _short(names[a], 16),
            text_anchor="end",
            class_="tick ink",
            transform=turn,
        )
        for b in range(a + 1):
            share = 0.0 if a == b else table[a][b] / most
            _missed_cell(plot, (names[a], names[b]), table[a][b], share, (left + cell * b, place, cell))
    caption = (
        f"The {size} labels that are missed most often. A cell counts the rows in which both labels are missed; the outlined"
        " diagonal counts the rows in which one label is missed."
    )
    return figure(plot.drawing("Labels missed together", caption), caption)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
