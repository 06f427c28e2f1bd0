"""Tables of metrics."""

from __future__ import annotations

from collections.abc import Mapping

from manyhot.cli.io.console import show_table, show_text
from manyhot.metrics.names import parse_metric

# Values that are not in the catalog of metrics: which direction is better, and a description.
BESIDES = {
    "empty": ("", "share of rows without a predicted label"),
    "h-precision": ("more", "precision of predicted labels with their ancestors"),
    "h-recall": ("more", "recall of labels with their ancestors"),
    "h-F1": ("more", "F1 of labels with their ancestors"),
    "micro-F1 closed up": ("more", "F1 over all entries, ancestors of predicted labels added"),
    "micro-F1 closed down": ("more", "F1 over all entries, labels without a predicted parent removed"),
    "broken-rows before": ("less", "share of rows in which a label is predicted without any of its parents"),
}


def show_scores(scores: Mapping[str, float], *, title: str = "") -> None:
    """Print a table of metrics with their descriptions."""
    if title:
        show_text(title, style="bold")
    better = {"up": "more", "down": "less"}
    rows = []
    for name, value in scores.items():
        if name in BESIDES:
            rows.append((name, f"{value:.4f}", *BESIDES[name]))
        else:
            info = parse_metric(name).info
            rows.append((name, f"{value:.4f}", better[info.direction], info.summary))
    show_table(("metric", "value", "better", "meaning"), rows, right=(1,), whole=(0, 1, 2))
