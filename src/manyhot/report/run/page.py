"""The page of a run, made from what was measured and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from manyhot.report.parts.markup import Markup, data_block, element, join, name_of
from manyhot.report.parts.page import Section, facts, page, table
from manyhot.report.run.charts import (
    counts_figure,
    curves_figure,
    learning_figures,
    missed_figure,
    reliability_figure,
    slider_chart,
)
from manyhot.report.run.sweep import unpack_counts
from manyhot.report.run.words import LINKS, lead_words, rows_words, rule_words, setting_words, training_words, value_words

HEADLINE = 4
PRINTED_LABELS = 40
SLIDER_OUTPUTS = (
    ("micro-F1", "micro-F1"),
    ("macro-F1", "macro-F1"),
    ("micro-precision", "micro-precision"),
    ("micro-recall", "micro-recall"),
    ("SubACC", "SubACC"),
    ("labels", "labels a row"),
    ("empty", "empty rows"),
)


def run_page(report: Mapping[str, Any], *, title: str) -> str:
    """The HTML of a run's report.

    Args:
        report: what ``measure_run`` gave, or the same read back from ``report.json``.
        title: of the page.
    """
    sections = [
        Section("summary", "Summary", None, _tiles(report), _all_metrics(report)),
        _slider(report),
        _labels(report),
        _curves(report),
        _mistakes(report),
        _worst(report),
        _learning(report),
        _settings(report),
    ]
    foot = f"Made by manyhot {report['versions']['manyhot']}, measured {report['made']}."
    note = element("p", rows_words(report["rows"]))
    kept = [section for section in sections if section is not None]
    return page(title, lead_words(report), note, kept, foot, [data_block("slider-data", _slider_data(report))])


def _tiles(report: Mapping[str, Any]) -> Markup:
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


def _all_metrics(report: Mapping[str, Any]) -> Markup:
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
    headings = (("metric", False), ("value", True), ("95 %", True), ("better", False), ("what it is", False))
    empty, count = report["empty"], max(report["rows"]["count"], 1)
    about = (
        f"{empty['predicted']:,} rows ({empty['predicted'] / count:.1%}) get no label; {empty['true']:,}"
        f" ({empty['true'] / count:.1%}) have none. ± is half of a 95 % interval over rows."
    )
    return join(element("div", table(headings, rows, kind="metrics"), class_="scroll"), element("p", about, class_="soft"))


def slider_values(report: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """``(micro-F1, macro-F1)`` at each position."""
    slider, labels = report["slider"], report["labels"]
    size, rest = len(slider["shifts"]), report["slider"]["rest"]
    hits, wrong = unpack_counts(slider["hits"], size), unpack_counts(slider["wrong"], size)
    positive = torch.tensor(labels["listed"]["positive"]).unsqueeze(1)
    whole = hits + wrong + positive
    f1 = torch.where(whole > 0, 2 * hits.double() / whole.clamp(min=1), 0.0).sum(dim=0) + torch.tensor(
        rest["f1_sum"], dtype=torch.float64
    )
    found = hits.sum(dim=0) + torch.tensor(rest["hits"])
    said = (hits + wrong).sum(dim=0) + torch.tensor(rest["predicted"])
    micro = 2 * found.double() / (said + int(positive.sum()) + rest["positive"]).clamp(min=1)
    return micro.tolist(), (f1 / max(labels["count"], 1)).tolist()


def _slider_data(report: Mapping[str, Any]) -> dict[str, Any]:
    listed = report["labels"]["listed"]
    return {
        **report["slider"],
        "positive": listed["positive"],
        "threshold": listed["threshold"],
        "rows": report["rows"]["count"],
    }


def _slider(report: Mapping[str, Any]) -> Section:
    slider = report["slider"]
    micro, macro = slider_values(report)
    outputs = [
        element(
            "div",
            element("dt", words),
            element(
                "dd",
                element("output", id=f"slider-{name}", for_="slider"),
                element("span", id=f"change-{name}", class_="change"),
            ),
        )
        for name, words in SLIDER_OUTPUTS
    ]
    controls = element(
        "div",
        element(
            "div",
            element("label", "Move", element("select", element("option", "all labels", value=""), id="slider-label")),
            element("button", "Reset", id="slider-reset", type="button"),
            element("span", id="slider-words", class_="figure", aria_live="polite"),
            class_="tools",
        ),
        element(
            "input",
            type="range",
            id="slider",
            min=0,
            max=len(slider["shifts"]) - 1,
            step=1,
            aria_label="Position of the thresholds",
        ),
        element("dl", outputs, class_="outputs"),
        class_="slide no-print",
        id="slider-panel",
        hidden=True,
    )
    base = "the model's own thresholds" if slider["own"] >= 0 else "one threshold for all labels"
    about = (
        f"What other thresholds would do on the same rows: a shift is added to {base}. The slider has {len(slider['shifts'])}"
        " positions; at each the figures are exact counts over all rows, not interpolated."
        + (" The model's rule takes the best labels of a row and has no threshold of its own." if slider["own"] < 0 else "")
    )
    return Section("thresholds", "Thresholds", about, controls, slider_chart(slider, micro, macro))


def _labels(report: Mapping[str, Any]) -> Section:
    listed = report["labels"]["listed"]
    thresholds = listed["threshold"] or [None] * len(listed["name"])
    order = sorted(range(len(listed["name"])), key=lambda place: (-listed["positive"][place], listed["name"][place]))
    rows = []
    for rank, place in enumerate(order):
        scores = [listed[key][place] for key in ("precision", "recall", "F1", "AP")]
        threshold = thresholds[place]
        never = listed["threshold"] is not None and threshold is None
        rows.append(
            element(
                "tr",
                element("th", name_of(listed["name"][place], 80), scope="row", class_="name"),
                [
                    element("td", f"{listed[key][place]:,}", class_="n", data_value=listed[key][place])
                    for key in ("positive", "predicted")
                ],
                [element("td", f"{score:.3f}", class_="n", data_value=score) for score in scores[:2]],
                element(
                    "td",
                    f"{scores[2]:.3f}",
                    element("span", element("i"), class_="meter", style=f"--v:{scores[2]:.3f}", aria_hidden="true"),
                    class_="n",
                    data_value=scores[2],
                ),
                element("td", f"{scores[3]:.3f}", class_="n", data_value=scores[3]),
                element(
                    "td",
                    "never" if never else value_words(threshold, 3),
                    class_="n",
                    data_value="" if threshold is None else threshold,
                ),
                data_place=place,
                class_="beyond-print" if rank >= PRINTED_LABELS else None,
            )
        )
    headings = (
        ("label", False),
        ("support", True),
        ("predicted", True),
        ("precision", True),
        ("recall", True),
        ("F1", True),
        ("AP", True),
        ("threshold", True),
    )
    search = element(
        "div",
        element("label", "Search", element("input", type="search", data_searches="labels-table", data_tells="labels-found")),
        element("span", id="labels-found", class_="soft", aria_live="polite"),
        class_="tools no-print",
    )
    wanted = "Support is the number of rows that have the label; AP is its average precision over rows. Headings sort."
    about = join(wanted, " " + report["labels"]["cut"] if report["labels"]["cut"] else None)
    printed = None
    if len(order) > PRINTED_LABELS:
        printed = element(
            "p", f"Printed are the {PRINTED_LABELS} labels with most rows; the page has them all.", class_="only-print soft"
        )
    whole = table(headings, rows, name="labels-table", kind="sortable")
    scrolled = element("div", whole, class_="long scroll", tabindex=0, role="region", aria_label="Labels")
    return Section("labels", "Labels", about, search, scrolled, printed)


def _curves(report: Mapping[str, Any]) -> Section:
    content = element("div", curves_figure(report["curves"]), reliability_figure(report["reliability"]), class_="pair")
    return Section("curves", "Precision, recall and probabilities", None, content, short="Curves")


def _mistakes(report: Mapping[str, Any]) -> Section:
    missed = report["missed"]
    heat = missed_figure(missed)
    pairs = [
        element(
            "tr",
            element("td", name_of(each["missed"], 40)),
            element("td", name_of(each["predicted"], 40)),
            element("td", f"{each['rows']:,}", class_="n"),
        )
        for each in missed["instead"][:10]
    ]
    both = [
        element(
            "tr",
            element("td", name_of(each["labels"][0], 40)),
            element("td", name_of(each["labels"][1], 40)),
            element("td", f"{each['rows']:,}", class_="n"),
        )
        for each in missed["pairs"][:10]
    ]
    told = (
        [
            element("h3", "Missed, and predicted instead"),
            table((("missed", False), ("predicted wrongly", False), ("rows", True)), pairs),
        ]
        if pairs
        else []
    )
    together = (
        [element("h3", "Missed together"), table((("label", False), ("label", False), ("rows", True)), both)] if both else []
    )
    if heat is None and not told:
        heat = element("p", "Hardly a label is missed.", class_="soft")
    content = element(
        "div", element("div", counts_figure(report["counts"]), told), element("div", heat, together), class_="pair"
    )
    return Section("mistakes", "What goes wrong", None, content, short="Mistakes")


def _worst(report: Mapping[str, Any]) -> Section | None:
    if not report["worst"]:
        return None
    about = (
        "The rows whose mistaken labels lie farthest, added up, on the wrong side of their thresholds. A dashed label is"
        " missed, one struck through is predicted wrongly, the others are right; beside each is its score."
    )
    items = [_example(each) for each in report["worst"]]
    return Section("worst", "Worst examples", about, element("ul", items, class_="examples"))


def _example(told: Mapping[str, Any]) -> Markup:
    words = {"missed": "missed", "wrong": "predicted wrongly", "right": "right"}
    tags = [
        element(
            "li",
            name_of(each["label"], 40),
            element("span", value_words(each["score"], 2), class_="figure"),
            class_=kind,
            title=words[kind],
        )
        for kind in words
        for each in told[kind]
    ]
    more = sum(told[f"more_{kind}"] for kind in words)
    where = join(f"row {told['row']:,}", f" · {told['id']}" if "id" in told else None, f" · {told['far']:.3g} off")
    image = told.get("image")
    return element(
        "li",
        element("img", src=image, alt=f"the picture of row {told['row']}")
        if image and image.startswith("data:image/png;")
        else None,
        element("div", where, class_="where"),
        element("p", element("bdi", told["text"]), class_="text") if "text" in told else None,
        element("ul", tags, element("li", f"{more} more", class_="soft") if more else None, class_="tags"),
    )


def _learning(report: Mapping[str, Any]) -> Section | None:
    figures = learning_figures(report["learning"])
    return Section("learning", "Learning curves", None, element("div", figures, class_="pair")) if figures else None


def _probability_words(model: Mapping[str, Any]) -> str:
    if model["calibration"]:
        return f"calibrated, {model['calibration']}"
    return LINKS[model["link"]] if model["link"] else "none: the scores only rank"


def _settings(report: Mapping[str, Any]) -> Section:
    model, chosen = report["model"], report["model"]["chosen"]
    own = [(name, setting_words(model["settings"][name])) for name in chosen]
    others = [(name, setting_words(value)) for name, value in model["settings"].items() if name not in chosen]
    about = [
        ("body", f"{model['body']}, {model['parameters']:,} parameters"),
        ("inputs", f"{model['inputs']}, {model['features']:,} {'channels' if model['inputs'] == 'images' else 'features'}"),
        ("labels", f"{model['labels']:,}"),
        ("loss", model["loss"]),
        ("decision", rule_words(model)),
        ("probabilities", _probability_words(model)),
        *training_words(model),
    ]
    versions: Sequence[tuple[str, Any]] = [(name, value) for name, value in model["versions"].items()]
    return Section(
        "settings",
        "Settings and versions",
        None,
        element(
            "div",
            element("div", element("h3", "Model"), facts(about)),
            element(
                "div",
                element("h3", "Chosen settings"),
                facts(own) if own else element("p", "All settings are the defaults."),
                element("h3", "Versions"),
                facts(versions),
            ),
            class_="pair",
        ),
        element(
            "details",
            element("summary", f"The {len(others)} settings left at their defaults"),
            facts(others),
            class_="no-print",
        ),
    )
