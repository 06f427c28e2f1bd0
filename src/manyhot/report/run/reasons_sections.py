"""The sections of a run's page with explanations: words of labels, explained decisions, labels that look wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from manyhot.explain.explanation import EXACT
from manyhot.report.parts.markup import Markup, element, join, name_of
from manyhot.report.parts.page import Section, table
from manyhot.report.run.words import value_words

# Levels of highlighting, as shares of the largest contribution.
LEVELS = (0.66, 0.33)
# By whether the label is true and whether it is predicted.
VERDICTS = {
    (True, True): "right",
    (True, False): "missed",
    (False, True): "predicted wrongly",
    (False, False): "correctly not predicted",
}


def explanations_section(report: Mapping[str, Any]) -> Section | None:
    """The words of each label and explained decisions; None if there are neither."""
    found = report.get("explanations") or {"words": [], "examples": []}
    parts: list[Markup] = []
    if found["examples"]:
        parts.append(element("ul", [_example(each) for each in found["examples"]], class_="examples reasons"))
    if found["words"]:
        parts += [element("h3", "The words of each label"), _words_table(found["words"], report["labels"]["count"])]
    if not parts:
        return None
    about = (
        "The contributions to the model's scores. A word with a solid underline counts for the label, one with a dashed"
        " underline against it; darker words count more. The largest contributions are listed beside them. They explain the"
        " model, not causes in the data."
        + (" The final model was trained on these rows." if report["rows"]["what"] == "cross-fitted" else "")
    )
    return Section("explanations", "Explanations", about, *parts)


def _example(told: Mapping[str, Any]) -> Markup:
    how = VERDICTS[told["true"], told["predicted"]]
    threshold = "" if told["threshold"] is None else f", threshold {told['threshold']:+.3g}"
    where = join(
        f"row {told['row']:,}: ", name_of(told["label"], 40), f", {how}; score {value_words(told['score'], 2)}{threshold}"
    )
    parts = [
        element(
            "li",
            name_of(name, 30),
            element("span", f"{part:+.2f}", class_="figure"),
            class_="speaks-for" if part > 0 else "speaks-against",
        )
        for name, part in told["parts"]
    ]
    rest = [
        element("li", f"{words} {told[key]:+.2f}", class_="soft") for words, key in (("base", "base"), ("the rest", "rest"))
    ]
    if told["method"] != EXACT:
        rest.append(element("li", f"unexplained {told['error']:+.2f}", class_="soft"))
    return element(
        "li",
        element("div", where, class_="where"),
        _text(told) if "text" in told else None,
        element("ul", parts, rest, class_="tags"),
    )


def _text(told: Mapping[str, Any]) -> Markup:
    text, pieces, done = told["text"], ["… " if told["before"] else ""], 0
    for start, end, share in told["words"]:
        level = sum(abs(share) >= least for least in LEVELS) + 1
        side = "for" if share > 0 else "against"
        pieces += [text[done:start], element("mark", text[start:end], class_=f"{side} level{level}")]
        done = end
    return element("p", element("bdi", pieces, text[done:], " …" if told["after"] else ""), class_="text")


def _words_table(words: Sequence[Mapping[str, Any]], count: int) -> Markup:
    def side(found: Sequence[tuple[str, float]]) -> Markup:
        return join([[", " if place else None, name_of(name, 30)] for place, (name, _) in enumerate(found)])

    rows = [
        element(
            "tr",
            element("th", name_of(each["label"], 60), scope="row", class_="name"),
            element("td", side(each["for"])),
            element("td", side(each["against"]), class_="dim"),
        )
        for each in words
    ]
    headings = (("label", False), ("counts for it", False), ("counts against it", False))
    shown = table(headings, rows, name="words-table")
    few = f"The {len(words):,} labels with the most rows, of {count:,}." if len(words) < count else None
    return join(
        element("div", shown, class_="long scroll", tabindex=0, role="region", aria_label="Words of labels"),
        None if few is None else element("p", few, class_="soft"),
    )


def suspects_section(report: Mapping[str, Any]) -> Section | None:
    """The labels that look wrong; None if there are none, or if they were not searched for."""
    found = report.get("suspects")
    if not found or not found["listed"]:
        return None
    texts = any("text" in each for each in found["listed"])
    rows = [
        element(
            "tr",
            element("th", join(f"{each['row']:,}", f" · {each['id']}" if "id" in each else None), scope="row"),
            element("td", name_of(each["label"], 40), class_="name"),
            element("td", each["looks"]),
            element("td", f"{each['probability']:.3f}", class_="n"),
            element("td", f"{each['doubt']:.2f}", class_="n"),
            element("td", element("bdi", each.get("text", "")), class_="cut") if texts else None,
        )
        for each in found["listed"]
    ]
    headings = [("row", False), ("label", False), ("looks", False), ("probability", True), ("doubt", True)]
    shown = table([*headings, ("text", False)] if texts else headings, rows, name="suspects-table")
    about = (
        "The labels that the scores contradict most: labels in the file that look wrong, and labels that look missing. Doubt is"
        " the estimated probability that the file is wrong; a better model gives a better estimate."
        f" About {found['expected']:.0%} of these {len(rows):,} labels are expected to be mistakes."
    )
    long = element("div", shown, class_="long scroll", tabindex=0, role="region", aria_label="Labels that look wrong")
    return Section("suspects", "Labels that look wrong", about, long, short="Suspects")
