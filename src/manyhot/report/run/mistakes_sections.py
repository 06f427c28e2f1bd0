"""The mistakes on a run's page: labels that are missed together or confused, and the worst rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from manyhot.report.parts.markup import Markup, element, join, name_of
from manyhot.report.parts.page import Section, table
from manyhot.report.run.charts import counts_figure, missed_figure
from manyhot.report.run.words import value_words

# The kinds of tags of a wrong row or text, in order, with their tooltips.
TAG_WORDS = {"missed": "missed", "wrong": "predicted wrongly", "right": "right"}


def mistakes_section(report: Mapping[str, Any]) -> Section:
    """The sizes of label sets, labels that are missed together, and labels that are predicted instead of missed ones."""
    missed = report["missed"]
    heat = missed_figure(missed)
    pairs = [pair_row(each["missed"], each["predicted"], each["rows"]) for each in missed["instead"][:10]]
    both = [pair_row(each["labels"][0], each["labels"][1], each["rows"]) for each in missed["pairs"][:10]]
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
        heat = element("p", "Hardly any labels are missed.", class_="soft")
    content = element(
        "div", element("div", counts_figure(report["counts"]), told), element("div", heat, together), class_="pair"
    )
    return Section("mistakes", "Mistakes", None, content)


def pair_row(first: str, second: str, count: int) -> Markup:
    """A row of a table of two names and how often they occur together."""
    names = (element("td", name_of(name, 40)) for name in (first, second))
    return element("tr", *names, element("td", f"{count:,}", class_="n"))


def worst_section(report: Mapping[str, Any]) -> Section | None:
    """The worst rows; None if no row is wrong."""
    about = (
        "The rows whose wrong decisions are farthest from their thresholds, summed over labels. Dashed labels are missed,"
        " struck-through labels are predicted wrongly, the others are right. The number beside a label is its score."
    )
    return examples_section("Worst examples", about, [_example(each) for each in report["worst"]])


def examples_section(title: str, about: str, items: Sequence[Markup]) -> Section | None:
    """The section of the worst rows or texts from their items; None if there are none."""
    return Section("worst", title, about, element("ul", items, class_="examples")) if items else None


def _example(told: Mapping[str, Any]) -> Markup:
    where = join(f"row {told['row']:,}", f" · {told['id']}" if "id" in told else None, f" · off by {told['far']:.3g}")
    image = told.get("image")
    picture = element("img", src=image, alt=f"the picture of row {told['row']}") if _is_png(image) else None
    return example_item(told, where, lambda each: [name_of(each["label"], 40), score_figure(each["score"])], picture)


def _is_png(image: str | None) -> bool:
    return image is not None and image.startswith("data:image/png;")


def example_item(
    told: Mapping[str, Any],
    where: Markup,
    content: Callable[[Mapping[str, Any]], list[Markup]],
    picture: Markup | None = None,
) -> Markup:
    """A wrong row or text as an item of a list: its number, its text, and its labels or spans as tags.

    Args:
        told: its entry in the report.
        where: its number and id.
        content: builds the content of a tag.
        picture: an image above the text, or None.
    """
    tags = [element("li", content(each), class_=kind, title=title) for kind, title in TAG_WORDS.items() for each in told[kind]]
    more = sum(told[f"more_{kind}"] for kind in TAG_WORDS)
    return element(
        "li",
        picture,
        element("div", where, class_="where"),
        element("p", element("bdi", told["text"]), class_="text") if "text" in told else None,
        element("ul", tags, element("li", f"{more} more", class_="soft") if more else None, class_="tags"),
    )


def score_figure(score: float | None) -> Markup:
    """The score beside a tag; a dash if there is none."""
    return element("span", value_words(score, 2), class_="figure")
