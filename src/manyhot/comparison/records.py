"""Finished cells on disk: one JSON line each, appended and synced, so that a killed grid loses none."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from manyhot._files import storage_error, write_whole

CELLS = "cells.jsonl"
PLAN = "plan.json"
STATISTICS = "statistics.json"
TABLE = "table.md"

Record = dict[str, Any]


def cell_key(data: str, model: str, method: str, seed: int) -> str:
    """The key of a cell."""
    return f"{data}/{model}/{method}/{seed}"


def read_cells(path: Path) -> list[Record]:
    """Read the cells of a file; the last record of a key counts.

    An incomplete last line is skipped; any other damaged line is an error.
    """
    if not path.exists():
        return []
    found: dict[str, Record] = {}
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line)
            found[record["key"]] = record
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"compare: {path} line {number} is not a finished cell. Remove that line and run again.") from None
    return list(found.values())


def remove_incomplete_line(path: Path) -> None:
    """Remove an incomplete last line."""
    if path.exists():
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            write_whole(path, content[: content.rfind(b"\n") + 1])


def add_cells(path: Path, records: Iterable[Record]) -> None:
    """Append finished cells: one write, then fsync."""
    lines = "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)
    try:
        with path.open("ab") as file:
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise storage_error(path, error) from error


def merge_cells(paths: Sequence[Path], into: Path) -> int:
    """Merge the cells of several files, or folders with a ``cells.jsonl``, into one file; returns the number of cells."""
    merged: dict[str, Record] = {}
    for path in paths:
        file = path / CELLS if path.is_dir() else path
        if not file.exists():
            raise ValueError(f"compare: there is no {file} to merge.")
        for record in read_cells(file):
            old = merged.get(record["key"])
            if old is None or "error" in old or "error" not in record:
                merged[record["key"]] = record
    lines = "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in merged.values())
    write_whole(into, lines.encode())
    return len(merged)
