"""The files of a report: its data as JSON, and the HTML page and the Markdown built from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manyhot._files import make_folder, write_whole
from manyhot.comparison.records import CELLS, PLAN, STATISTICS, read_cells
from manyhot.report.comparison.markdown import compare_markdown
from manyhot.report.comparison.page import compare_page
from manyhot.report.run.markdown import run_markdown
from manyhot.report.run.measure import FORMAT
from manyhot.report.run.page import run_page
from manyhot.report.spans.markdown import span_run_markdown
from manyhot.report.spans.measure import KIND
from manyhot.report.spans.page import span_run_page

JSON, HTML, MARKDOWN = "report.json", "report.html", "report.md"
MAKERS = {
    "run": (run_page, run_markdown),
    KIND: (span_run_page, span_run_markdown),
    "comparison": (compare_page, compare_markdown),
}

PLANNED = ("created", "data", "models", "methods", "seeds", "settings", "versions", "hardware", "cells")


class ReportError(ValueError):
    """Raised for a folder that holds no results for a report."""


def write_report(report: Mapping[str, Any], folder: str | Path, *, title: str | None = None) -> Path:
    """Write ``report.json``, ``report.html`` and ``report.md``, each atomically.

    Args:
        report: the result of ``measure_run``, ``measure_spans``, ``read_comparison`` or ``read_report``.
        folder: the folder to write to; it is created if it does not exist.
        title: the title of the page; None for the folder's name.

    Returns:
        The path of the page.
    """
    folder = Path(folder)
    make_folder(folder)
    named = title or f"Report: {folder.absolute().name}"
    to_page, to_markdown = MAKERS[report["kind"]]
    contents = {
        JSON: json.dumps(report, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n",
        HTML: to_page(report, title=named),
        MARKDOWN: to_markdown(report, title=named),
    }
    for name, content in contents.items():
        write_whole(folder / name, content.encode())
    return folder / HTML


def read_report(folder: str | Path) -> dict[str, Any]:
    """Read the data of a report: the results of a comparison, or the ones saved with a run.

    Args:
        folder: the folder of a run, a comparison or a report.

    Raises:
        ReportError: if the folder has no results, or they have another format.
    """
    folder = Path(folder)
    if (folder / STATISTICS).is_file() or (folder / CELLS).is_file():
        return read_comparison(folder)
    if not (folder / JSON).is_file():
        raise ReportError(
            f"report: {str(folder)!r} has no results for a report. Create them with: manyhot evaluate RUN FILE --report FOLDER"
        )
    found = _read_object(folder / JSON)
    if found.get("format") != FORMAT or found.get("kind") not in MAKERS:
        raise ReportError(f"report: {str(folder / JSON)!r} must have the format {FORMAT!r}; got {found.get('format')!r}.")
    return found


def read_comparison(folder: Path) -> dict[str, Any]:
    """A comparison's plan, its statistics (recomputed if the cells exist), and the cells that failed."""
    cells = read_cells(folder / CELLS)
    plan, statistics = (_read_object(folder / name) if (folder / name).is_file() else {} for name in (PLAN, STATISTICS))
    if cells:
        # Imported here because the statistical tests load scipy.
        from manyhot.comparison.statistics import summarise

        order = statistics.get("methods") or [name for name in plan.get("methods", ()) if isinstance(name, str)]
        statistics = summarise(cells, reference=statistics.get("reference", "zlpr"), order=order)
    # File names without folders, because reports are shared.
    plan = {name: plan[name] for name in PLANNED if name in plan}
    failed = [{"key": cell["key"], "error": str(cell["error"])} for cell in cells if "error" in cell]
    return {"format": FORMAT, "kind": "comparison", "plan": plan, "statistics": statistics, "failed": failed}


def _read_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ReportError(f"report: {str(path)!r} cannot be read: {error}.") from error
    if not isinstance(found, dict):
        raise ReportError(f"report: {str(path)!r} must hold an object; got {type(found).__name__}.")
    return found
