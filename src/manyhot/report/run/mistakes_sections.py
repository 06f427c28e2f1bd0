"""The mistakes on a run's page: labels that are missed together or mistaken for each other, and the worst rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyhot.report.parts.markup import Markup, element, join, name_of
from manyhot.report.parts.page import Section, table
from manyhot.report.run.charts import counts_figure, missed_figure
from manyhot.report.run.words import value_words


def mistakes_section(report: Mapping[str, Any]) -> Section:
    """Which labels are missed, with which others, and what is predicted instead."""
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


def worst_section(report: Mapping[str, Any]) -> Section | None:
    """The rows that are most wrong; None where no row is."""
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
