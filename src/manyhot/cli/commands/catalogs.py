"""``manyhot losses`` and ``manyhot metrics``: the catalogs, one line each."""

from __future__ import annotations

from manyhot.cli.io.console import JsonFlag, show_json, show_table
from manyhot.losses.catalog import LOSSES
from manyhot.metrics.catalog import METRICS


def losses(json: JsonFlag = False) -> None:
    """List the losses, for `manyhot train --loss`."""
    if json:
        show_json(
            [
                {
                    "name": entry.name,
                    "summary": entry.summary,
                    "decision": entry.decision,
                    "link": entry.link,
                    "soft_link": entry.soft_link,
                    "label_kinds": sorted(entry.label_kinds),
                    "lazy": entry.lazy,
                    "row_separable": entry.row_separable,
                }
                for entry in LOSSES.values()
            ]
        )
        return
    show_table(("loss", "decision", "what it does"), [(e.name, e.decision, e.summary) for e in LOSSES.values()], whole=(0, 1))


def metrics(json: JsonFlag = False) -> None:
    """List the metrics, for `manyhot evaluate --metric` and `manyhot train --metric`."""
    if json:
        show_json(
            [
                {"name": entry.name, "summary": entry.summary, "direction": entry.direction, "needs": entry.needs}
                for entry in METRICS.values()
            ]
        )
        return
    better = {"up": "more", "down": "less"}
    show_table(
        ("metric", "better", "meaning"), [(e.name, better[e.direction], e.summary) for e in METRICS.values()], whole=(0, 1)
    )
