"""The report of a run as Markdown, for a terminal, a pull request or an appendix."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from manyhot.decisions.links import LINK_WORDS
from manyhot.report.run.words import lead_words, rows_words, rule_words, setting_words, training_words, value_words

LABELS = 50
PAIRS = 10
WORST = 8
SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&])")
BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u202a-\u202e\u2066-\u2069]+")


def plain(text: Any) -> str:
    r"""Text from the data, escaped for Markdown, without line breaks.

    Example:
        >>> print(plain("a|b <script>"))
        a\|b \<script\>
    """
    return SPECIAL.sub(r"\\\1", BREAKS.sub(" ", str(text)))


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """The lines of a table; the cells are not escaped."""
    rule = ["---:" if place in right else "---" for place in range(len(headings))]
    return ["| " + " | ".join(row) + " |" for row in (headings, rule, *rows)]


def run_markdown(report: Mapping[str, Any], *, title: str) -> str:
    """The Markdown of a run's report.

    Args:
        report: the result of ``measure_run``.
        title: the first heading.
    """
    lines = [f"# {plain(title)}", "", plain(lead_words(report)), "", plain(rows_words(report)), ""]
    lines += metric_lines(report["metrics"], better=True)
    lines += ["## Labels", "", *_labels(report), ""]
    lines += _missed(report["missed"])
    lines += _reliability(report["reliability"]) if report["reliability"] else []
    lines += _worst(report["worst"])
    lines += _explanations(report.get("explanations") or {})
    lines += _suspects(report.get("suspects") or {})
    model = report["model"]
    if model.get("why"):
        lines += ["## Why this model", "", *(f"- {name}: {plain(value)}" for name, value in model["why"].items()), ""]
    about = [
        ("decision", rule_words(model)),
        *training_words(model),
    ]
    about += [(name, setting_words(model["settings"][name])) for name in model["chosen"]]
    about += [(name, value) for name, value in model["versions"].items()]
    return "\n".join([*lines, *closing_lines(report, about)])


def metric_lines(metrics: Sequence[Mapping[str, Any]], *, better: bool) -> list[str]:
    """The section of metrics; ``better`` adds the column that says whether more or less is better."""
    headings = ("metric", "value", "95 %", *(("better",) if better else ()), "meaning")
    rows = [
        (
            each["name"],
            value_words(each["value"], 4),
            "" if each["half_width"] is None else f"± {each['half_width']:.4f}",
            *((each["better"],) if better else ()),
            each["summary"],
        )
        for each in metrics
    ]
    return ["## Metrics", "", *markdown_table(headings, rows, right=(1, 2)), ""]


def closing_lines(report: Mapping[str, Any], about: Sequence[tuple[str, Any]]) -> list[str]:
    """The section of settings and versions, and the line with the date and version of the report."""
    settings = [f"- {name}: {plain(value)}" for name, value in about]
    made = f"Measured {report['made']} by manyhot {report['versions']['manyhot']}."
    return ["## Settings and versions", "", *settings, "", made, ""]


def _labels(report: Mapping[str, Any]) -> list[str]:
    listed = report["labels"]["listed"]
    order = sorted(range(len(listed["name"])), key=lambda place: (-listed["positive"][place], listed["name"][place]))
    thresholds = listed["threshold"] or [None] * len(order)
    rows = [
        (
            plain(listed["name"][place]),
            *(f"{listed[key][place]:,}" for key in ("positive", "predicted")),
            *(value_words(listed[key] and listed[key][place], 3) for key in ("precision", "recall", "F1", "AP")),
            value_words(thresholds[place], 3),
        )
        for place in order[:LABELS]
    ]
    headings = ("label", "support", "predicted", "precision", "recall", "F1", "AP", "threshold")
    lines = markdown_table(headings, rows, right=range(1, 8))
    if report["labels"]["count"] > len(rows):
        lines += ["", f"The {len(rows)} labels with the most rows, of {report['labels']['count']:,}."]
    return lines


def _missed(missed: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for title, headings, found in (
        ("Missed together", ("label", "label", "rows"), [(*each["labels"], each["rows"]) for each in missed["pairs"]]),
        (
            "Missed, and predicted instead",
            ("missed", "predicted wrongly", "rows"),
            [(each["missed"], each["predicted"], each["rows"]) for each in missed["instead"]],
        ),
    ):
        if found:
            rows = [(plain(one), plain(two), f"{number:,}") for one, two, number in found[:PAIRS]]
            lines += [f"## {title}", "", *markdown_table(headings, rows, right=(2,)), ""]
    return lines


def _reliability(reliability: Mapping[str, Any]) -> list[str]:
    told = []
    if reliability["before"]:
        told.append(f"- before calibration ({LINK_WORDS[reliability['link']]}): ECE {reliability['before']['ECE']:.4f}")
    if reliability["after"]:
        told.append(f"- after calibration ({reliability['calibration']}): ECE {reliability['after']['ECE']:.4f}")
    return ["## Probabilities", "", *told, ""] if told else []


def _worst(worst: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for each in worst[:WORST]:
        parts = [
            f"{kind}: {', '.join(plain(label['label']) for label in each[kind])}"
            for kind in ("missed", "wrong", "right")
            if each[kind]
        ]
        text = f" {plain(each['text'])}" if "text" in each else ""
        lines.append(f"- row {each['row']:,}:{text} — {'; '.join(parts)}")
    return ["## Worst examples", "", *lines, ""] if lines else []


def _explanations(found: Mapping[str, Any]) -> list[str]:
    rows = [
        (plain(each["label"]), *(", ".join(plain(name) for name, _ in each[side]) for side in ("for", "against")))
        for each in found.get("words", ())[:LABELS]
    ]
    lines = ["## Words of labels", "", *markdown_table(("label", "for", "against"), rows), ""] if rows else []
    told = []
    for each in found.get("examples", ()):
        parts = ", ".join(f"{plain(name)} {part:+.2f}" for name, part in each["parts"])
        start = f"- row {each['row']:,}, {plain(each['label'])}: {value_words(each['score'], 2)}"
        told.append(f"{start} = base {each['base']:+.2f}, {parts}, the rest {each['rest']:+.2f}")
    return lines + (["## Decisions explained", "", *told, ""] if told else [])


def _suspects(found: Mapping[str, Any]) -> list[str]:
    rows = [
        (f"{each['row']:,}", plain(each["label"]), each["looks"], f"{each['probability']:.3f}", f"{each['doubt']:.2f}")
        for each in found.get("listed", ())
    ]
    if not rows:
        return []
    table = markdown_table(("row", "label", "looks", "probability", "doubt"), rows, right=(3, 4))
    about = f"About {found['expected']:.0%} of these {len(rows):,} labels are expected to be mistakes."
    return ["## Labels that look wrong", "", *table, "", about, ""]
