"""The HTML page of a run, built only from the measured values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from manyhot.decisions.links import LINK_WORDS
from manyhot.report.parts.markup import Markup, data_block, element, join
from manyhot.report.parts.page import Section, page, table
from manyhot.report.run.charts import (
    curves_figure,
    learning_figures,
    reliability_figure,
)
from manyhot.report.run.label_table import labels_section
from manyhot.report.run.mistakes_sections import mistakes_section, worst_section
from manyhot.report.run.reasons_sections import explanations_section, suspects_section
from manyhot.report.run.settings_section import settings_section
from manyhot.report.run.slider import slider_data, slider_section
from manyhot.report.run.words import lead_words, made_words, rows_words, rule_words, training_words, value_words

HEADLINE = 4


def run_page(report: Mapping[str, Any], *, title: str) -> str:
    """The HTML of a run's report.

    Args:
        report: the result of ``measure_run``, or the content of ``report.json``.
        title: the title of the page.
    """
    sections = [
        Section("summary", "Summary", None, metric_tiles(report), metric_table(report, _empty_words(report))),
        slider_section(report),
        labels_section(report),
        _curves(report),
        mistakes_section(report),
        worst_section(report),
        explanations_section(report),
        suspects_section(report),
        learning_section(learning_figures(report["learning"])),
        _settings(report),
    ]
    note = element("p", rows_words(report))
    data = [data_block("slider-data", slider_data(report))]
    return page(title, lead_words(report), note, sections, made_words(report), data)


def metric_tiles(report: Mapping[str, Any]) -> Markup:
    """The main metrics of a report as tiles."""
    tiles = [
        element(
            "div",
            element("dt", each["name"]),
            element("dd", value_words(each["value"], 3), _half(each)),
            element("dd", each["summary"], class_="what"),
        )
        for each in report["metrics"][:HEADLINE]
    ]
    return element("dl", tiles, class_="tiles")


def _half(metric: Mapping[str, Any]) -> Markup | None:
    return None if metric["half_width"] is None else element("small", f" ± {metric['half_width']:.3f}")


def metric_table(report: Mapping[str, Any], about: str) -> Markup:
    """All metrics of a report, with a sentence below."""
    rows = [
        element(
            "tr",
            element("th", each["name"], scope="row"),
            element("td", value_words(each["value"], 4), class_="n"),
            element("td", "" if each["half_width"] is None else f"± {each['half_width']:.4f}", class_="n dim"),
            element("td", each["better"], class_="way"),
            element("td", each["summary"]),
        )
        for each in report["metrics"]
    ]
    headings = (("metric", False), ("value", True), ("95 %", True), ("better", False), ("meaning", False))
    return join(element("div", table(headings, rows, kind="metrics"), class_="scroll"), element("p", about, class_="soft"))


def _empty_words(report: Mapping[str, Any]) -> str:
    empty, count = report["empty"], max(report["rows"]["count"], 1)
    return (
        f"{empty['predicted']:,} rows ({empty['predicted'] / count:.1%}) have no predicted label; {empty['true']:,} rows"
        f" ({empty['true'] / count:.1%}) have no true label. ± is half the width of a 95 % confidence interval over rows."
    )


def _curves(report: Mapping[str, Any]) -> Section | None:
    if report["reliability"] is None:
        return None
    content = element("div", curves_figure(report["curves"]), reliability_figure(report["reliability"]), class_="pair")
    return Section("curves", "Precision, recall and probabilities", None, content, short="Curves")


def learning_section(figures: Sequence[Markup]) -> Section | None:
    """The learning curves; None if there are none."""
    return Section("learning", "Learning curves", None, element("div", figures, class_="pair")) if figures else None


def _probability_words(model: Mapping[str, Any]) -> str:
    if model["calibration"]:
        return f"calibrated, {model['calibration']}"
    return LINK_WORDS[model["link"]] if model["link"] else "none: the scores only rank"


def _input_words(model: Mapping[str, Any]) -> str:
    if "features" not in model:
        return str(model["inputs"])
    return f"{model['inputs']}, {model['features']:,} {'channels' if model['inputs'] == 'images' else 'features'}"


def _settings(report: Mapping[str, Any]) -> Section:
    model = report["model"]
    about = [
        ("body", f"{model['body']}, {model['parameters']:,} parameters"),
        ("inputs", _input_words(model)),
        ("labels", f"{model['labels']:,}"),
        ("loss", model["loss"]),
        ("decision", rule_words(model)),
        ("probabilities", _probability_words(model)),
        *training_words(model),
    ]
    return settings_section(model, about, chosen_words="Chosen settings")
