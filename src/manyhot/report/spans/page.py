"""The HTML page of a run on spans, built only from the measured values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyhot.metrics.spans.errors import ERROR_KINDS
from manyhot.report.parts.markup import Markup, element, join, name_of
from manyhot.report.parts.page import Section, page, table
from manyhot.report.parts.svg import Plot, legend
from manyhot.report.run.charts import figure, learning_figures
from manyhot.report.run.label_table import meter, score_cells
from manyhot.report.run.mistakes_sections import example_item, examples_section, pair_row, score_figure
from manyhot.report.run.page import learning_section, metric_table, metric_tiles
from manyhot.report.run.settings_section import settings_section
from manyhot.report.run.words import made_words
from manyhot.report.spans.words import span_lead_words, span_model_words, texts_words


def span_run_page(report: Mapping[str, Any], *, title: str) -> str:
    """The HTML of the report of a run on spans.

    Args:
        report: the result of ``measure_spans``, or the content of ``report.json``.
        title: the title of the page.
    """
    sections = [
        Section("summary", "Summary", None, metric_tiles(report), metric_table(report, _about(report))),
        _types(report),
        _errors(report),
        _thresholds(report),
        _worst(report),
        _learning(report),
        _settings(report),
    ]
    note = element("p", texts_words(report["rows"]))
    return page(title, span_lead_words(report), note, sections, made_words(report))


def _about(report: Mapping[str, Any]) -> str:
    told = f"{report['rows']['spans']:,} true spans. ± is half the width of a 95 % confidence interval over texts."
    if report["unaligned"]["count"]:
        told += f" {report['unaligned']['told'].capitalize()}."
    if report["unseen"]:
        named = ", ".join(f"{name} ({count:,})" for name, count in sorted(report["unseen"].items()))
        told += f" Spans of types that the model does not know are all missed: {named}."
    return told


def _types(report: Mapping[str, Any]) -> Section:
    rows = [
        element(
            "tr",
            score_cells(
                each["type"],
                [each[key] for key in ("gold", "predicted", "hits")],
                [each[key] for key in ("precision", "recall")],
                each["f1"],
            ),
        )
        for each in report["types"]
    ]
    headings = (
        ("type", False),
        ("true", True),
        ("found", True),
        ("right", True),
        ("precision", True),
        ("recall", True),
        ("F1", True),
    )
    whole = table(headings, rows, name="types-table", kind="sortable")
    scrolled = element("div", whole, class_="long scroll", tabindex=0, role="region", aria_label="Types")
    about = "A span is right if its type and both ends are right. Click a heading to sort."
    return Section("types", "Types", about, scrolled)


def _errors(report: Mapping[str, Any]) -> Section:
    total = sum(report["errors"].values())
    rows = [
        element(
            "tr",
            element("th", kind, scope="row"),
            element("td", f"{count:,}", class_="n"),
            element("td", f"{count / max(total, 1):.1%}", meter(count / max(total, 1)), class_="n"),
            element("td", ERROR_KINDS[kind]),
        )
        for kind, count in report["errors"].items()
    ]
    kinds = table((("error", False), ("spans", True), ("share", True), ("meaning", False)), rows)
    confused = [pair_row(each["true"], each["found"], each["spans"]) for each in report["confused"]]
    told: list[Any] = []
    if confused:
        headings = (("true type", False), ("predicted as", False), ("spans", True))
        told = [element("h3", "Confused types"), table(headings, confused)]
    lost = [
        element("li", f"text {each['row']:,}: ", name_of(each["type"], 40), " ", name_of(each["text"], 60), f" {each['why']}")
        for each in report["unaligned"]["listed"]
    ]
    if lost:
        told += [element("h3", "True spans that do not align with tokens"), element("ul", lost)]
    content = element("div", element("div", kinds, class_="scroll"), element("div", told), class_="pair")
    return Section("mistakes", "Mistakes", "Each error is counted once.", content)


def _thresholds(report: Mapping[str, Any]) -> Section:
    found = report["thresholds"]
    places = found["threshold"]
    plot = Plot(1000, 260, x=(places[0], places[-1]), y=(0, 1), margins=(46, 12, 10, 40))
    plot.axes("threshold of the score", "share")
    names = ("F1", "precision", "recall")
    for series, name in enumerate(names, start=1):
        known = [(place, value) for place, value in zip(places, found[name], strict=True) if value is not None]
        plot.line([place for place, _ in known], [value for _, value in known], series=series)
    own = min(max(found["own"], places[0]), places[-1])
    plot.add("line", x1=plot.at_x(own), x2=plot.at_x(own), y1=float(plot.top), y2=float(plot.bottom), class_="cursor")
    best = max(range(len(places)), key=lambda place: found["F1"][place])
    described = f"F1 is highest, {found['F1'][best]:.3f}, at {places[best]:.2f}; the model's threshold is {found['own']:.2f}."
    entries: list[tuple[int, str, Markup | str]] = [(series, "line", name) for series, name in enumerate(names, start=1)]
    chart = figure(plot.drawing("F1, precision and recall by threshold", described), described, legend(entries))
    about = "Metrics for other thresholds on the same texts. The vertical line is the model's threshold."
    return Section("thresholds", "Threshold", about, chart)


def _worst(report: Mapping[str, Any]) -> Section | None:
    about = (
        "The texts with the most errors. Dashed spans are missed, struck-through spans are predicted wrongly, the others are"
        " right. The number beside a predicted span is its score."
    )
    return examples_section("Worst texts", about, [_example(each) for each in report["worst"]])


def _example(told: Mapping[str, Any]) -> Markup:
    named = f" · {told['id']}" if "id" in told else None
    where = join(f"text {told['row']:,}", named, f" · {told['errors']:,} errors")
    return example_item(told, where, _tag)


def _tag(span: Mapping[str, Any]) -> list[Markup]:
    """A span with its score; a missed one has none."""
    name = element("bdi", f"{span['type']}: {span['text']}")
    return [name] if span["score"] is None else [name, score_figure(span["score"])]


def _learning(report: Mapping[str, Any]) -> Section | None:
    tuned = report["model"]["settings"]["tune_threshold"]
    threshold = "with the best threshold of each epoch" if tuned else f"at the threshold {report['thresholds']['own']:g}"
    return learning_section(learning_figures(report["learning"], held_out=f"held-out texts, {threshold}"))


def _settings(report: Mapping[str, Any]) -> Section:
    model = report["model"]
    return settings_section(model, span_model_words(model), chosen_words="Settings, given or chosen from the data")
