"""The report of a run on spans as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyhot.metrics.spans.errors import ERROR_KINDS
from manyhot.report.run.markdown import closing_lines, markdown_table, metric_lines, plain
from manyhot.report.run.words import setting_words
from manyhot.report.spans.words import span_lead_words, span_model_words, texts_words

WORST = 8


def span_run_markdown(report: Mapping[str, Any], *, title: str) -> str:
    """The Markdown of the report of a run on spans.

    Args:
        report: the result of ``measure_spans``.
        title: the first heading.
    """
    types = [
        (
            plain(each["type"]),
            *(f"{each[key]:,}" for key in ("gold", "predicted", "hits")),
            *(f"{each[key]:.3f}" for key in ("precision", "recall", "f1")),
        )
        for each in report["types"]
    ]
    errors = [(kind, f"{count:,}", ERROR_KINDS[kind]) for kind, count in report["errors"].items()]
    confused = [(plain(each["true"]), plain(each["found"]), f"{each['spans']:,}") for each in report["confused"]]
    lines = [f"# {plain(title)}", "", plain(span_lead_words(report)), "", plain(texts_words(report["rows"])), ""]
    lines += metric_lines(report["metrics"], better=False)
    headings = ("type", "true", "found", "right", "precision", "recall", "F1")
    lines += ["## Types", "", *markdown_table(headings, types, right=range(1, 7)), ""]
    lines += ["## Mistakes", "", *markdown_table(("error", "spans", "meaning"), errors, right=(1,)), ""]
    if confused:
        columns = ("true type", "predicted as", "spans")
        lines += ["## Confused types", "", *markdown_table(columns, confused, right=(2,)), ""]
    if report["unaligned"]["count"]:
        lines += [plain(report["unaligned"]["told"]) + ".", ""]
    lines += _worst(report)
    model = report["model"]
    about = [*span_model_words(model), *((name, setting_words(model["settings"][name])) for name in model["chosen"])]
    about += list(model.get("versions", {}).items())
    return "\n".join([*lines, *closing_lines(report, about)])


def _worst(report: Mapping[str, Any]) -> list[str]:
    lines = []
    for each in report["worst"][:WORST]:
        parts = [
            f"{kind}: {', '.join(plain(span['type'] + ' ' + span['text']) for span in each[kind])}"
            for kind in ("missed", "wrong", "right")
            if each[kind]
        ]
        lines.append(f"- text {each['row']:,}: {plain(each['text'])} — {'; '.join(parts)}")
    return ["## Worst texts", "", *lines, ""] if lines else []
