"""The slider of a run's page: metrics for other thresholds on the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from manyhot.report.parts.markup import Markup, element
from manyhot.report.parts.page import Section
from manyhot.report.run.charts import (
    slider_chart,
)
from manyhot.report.run.sweep import unpack_counts

SLIDER_OUTPUTS = (
    ("micro-F1", "micro-F1"),
    ("macro-F1", "macro-F1"),
    ("micro-precision", "micro-precision"),
    ("micro-recall", "micro-recall"),
    ("SubACC", "SubACC"),
    ("labels", "labels per row"),
    ("empty", "empty rows"),
)


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


def slider_data(report: Mapping[str, Any]) -> dict[str, Any]:
    """The data for the script of the slider."""
    listed = report["labels"]["listed"]
    return {
        **report["slider"],
        "positive": listed["positive"],
        "threshold": listed["threshold"],
        "rows": report["rows"]["count"],
    }


def slider_section(report: Mapping[str, Any]) -> Section:
    """The slider and the chart of F1 over its positions."""
    slider = report["slider"]
    micro, macro = slider_values(report)
    base = "the model's own thresholds" if slider["own"] >= 0 else "one threshold for all labels"
    about = (
        f"Metrics for other thresholds on the same rows: the slider adds a shift to {base}. At each of its"
        f" {len(slider['shifts'])} positions, the metrics are computed from exact counts over all rows, without interpolation."
        + (" The model's own rule has no such threshold; its metrics are in the summary." if slider["own"] < 0 else "")
    )
    return Section("thresholds", "Thresholds", about, _controls(len(slider["shifts"])), slider_chart(slider, micro, macro))


def _controls(positions: int) -> Markup:
    """The slider, the choice of a label, and the values that the script updates."""
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
    return element(
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
            max=positions - 1,
            step=1,
            aria_label="Position of the thresholds",
        ),
        element("dl", outputs, class_="outputs"),
        class_="slide no-print",
        id="slider-panel",
        hidden=True,
    )
