"""Cells of an earlier page of ``benchmarks.text_peers``, read from its tables: figures of systems that are not run again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

HEADING = re.compile(r"## (\w+): ([\d,]+) / ([\d,]+) rows, ([\d,]+) labels")


def earlier_cells(page: Path, names: dict[str, str], metrics: tuple[str, ...]) -> list[dict[str, Any]]:
    """The cells of the systems in ``names`` (system to title), with the decimals that the page has."""
    systems, cells = {title: system for system, title in names.items()}, list[dict[str, Any]]()
    about: dict[str, Any] = {}
    date = re.search(r"- Date: ([\d-]+)", page.read_text())
    for line in page.read_text().splitlines():
        found = HEADING.match(line)
        if found:
            rows = [int(found[place].replace(",", "")) for place in (2, 3)]
            about = {"set": found[1], "rows": rows, "labels": int(found[4].replace(",", ""))}
        parts = [part.strip() for part in line.strip("|").split("|")]
        if len(parts) != len(metrics) + 7 or parts[0] not in systems or parts[1].startswith("not run"):
            continue
        *shares, seconds, cpu_seconds, load, peak, size = map(float, parts[1:])
        cell = dict(zip((*metrics, "empty"), (share / 100 for share in shares), strict=True))
        times = {"seconds": seconds, "cpu_seconds": cpu_seconds, "load_before": load, "peak": peak * 1e6, "size": size * 1e6}
        cells.append({**about, "system": systems[parts[0]], **cell, **times, "date": date[1] if date else "", "versions": {}})
    return cells
