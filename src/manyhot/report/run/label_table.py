"""The table of labels on a run's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from manyhot.report.parts.markup import Markup, element, join, name_of
from manyhot.report.parts.page import Section, table
from manyhot.report.run.words import value_words

PRINTED_LABELS = 40
HEADINGS = ("label", "support", "predicted", "precision", "recall", "F1", "AP", "threshold")


def labels_section(report: Mapping[str, Any]) -> Section:
    """One row per label, sortable and searchable; only the most frequent labels are printed on paper."""
    listed = report["labels"]["listed"]
    order = sorted(range(len(listed["name"])), key=lambda place: (-listed["positive"][place], listed["name"][place]))
    rows = [_row(listed, place, printed=rank < PRINTED_LABELS) for rank, place in enumerate(order)]
    headings = [(name, name != "label") for name in HEADINGS]
    search = element(
        "div",
        element("label", "Search", element("input", type="search", data_searches="labels-table", data_tells="labels-found")),
        element("span", id="labels-found", class_="soft", aria_live="polite"),
        class_="tools no-print",
    )
    wanted = "Support is the number of rows with the label; AP is its average precision over rows. Click a heading to sort."
    about = join(wanted, " " + report["labels"]["cut"] if report["labels"]["cut"] else None)
    printed = None
    if len(order) > PRINTED_LABELS:
        printed = element(
            "p",
            f"Only the {PRINTED_LABELS} labels with the most rows are printed; the page on screen lists more.",
            class_="only-print soft",
        )
    whole = table(headings, rows, name="labels-table", kind="sortable")
    scrolled = element("div", whole, class_="long scroll", tabindex=0, role="region", aria_label="Labels")
    return Section("labels", "Labels", about, search, scrolled, printed)


def _row(listed: Mapping[str, Any], place: int, *, printed: bool) -> Markup:
    thresholds = listed["threshold"]
    threshold = None if thresholds is None else thresholds[place]
    never = thresholds is not None and threshold is None
    counts = [listed[key][place] for key in ("positive", "predicted")]
    precision, recall, f1 = (listed[key][place] for key in ("precision", "recall", "F1"))
    average_precision = None if listed["AP"] is None else listed["AP"][place]
    cells = [
        *score_cells(listed["name"][place], counts, (precision, recall), f1),
        element("td", value_words(average_precision, 3), class_="n", data_value=average_precision or ""),
        element(
            "td",
            "never" if never else value_words(threshold, 3),
            class_="n",
            data_value="" if threshold is None else threshold,
        ),
    ]
    return element("tr", cells, data_place=place, class_=None if printed else "beyond-print")


def score_cells(name: str, counts: Sequence[int], scores: Sequence[float], f1: float) -> list[Markup]:
    """The first cells of a label or type in a table: its name, counts and scores, and its F1 with a bar."""
    return [
        element("th", name_of(name, 80), scope="row", class_="name"),
        *(element("td", f"{count:,}", class_="n", data_value=count) for count in counts),
        *(element("td", f"{score:.3f}", class_="n", data_value=score) for score in scores),
        element("td", f"{f1:.3f}", meter(f1), class_="n", data_value=f1),
    ]


def meter(share: float) -> Markup:
    """A bar behind a number from 0 to 1."""
    return element("span", element("i"), class_="meter", style=f"--v:{share:.3f}", aria_hidden="true")
