"""All rows of each tabular set in one file, in a new order, for new splits: ``python -m benchmarks.pooled_sets``.

    python -m benchmarks.pooled_sets --data FOLDER --out POOLED [--seed 2026]
    python -m benchmarks.told_grid --data POOLED --out CELLS --jobs 2          # every seed draws a fifth as test rows

Training and test files of a set are joined and their rows shuffled, so that the splits of a set that always was one file
(cal500) are new too. Files are ARFF: the head is kept, and a line is a row.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import shutil
from pathlib import Path

from benchmarks.compare_groups import TABULAR, find_sets


def parted(path: Path) -> tuple[list[str], list[str]]:
    """The lines of an ARFF file up to ``@data``, and its rows."""
    lines = gzip.decompress(path.read_bytes()).decode("utf-8", "surrogateescape").splitlines()
    start = next(number for number, line in enumerate(lines) if line.strip().lower() == "@data") + 1
    return lines[:start], [line for line in lines[start:] if line.strip() and not line.lstrip().startswith("%")]


def attributes(head: list[str]) -> list[str]:
    """The declarations of the columns, white space folded."""
    return [" ".join(line.split()) for line in head if line.strip().lower().startswith("@attribute")]


def pool(name: str, source: Path, out: Path, seed: int) -> int:
    """Write a set with all rows in one file; its number of rows."""
    (files,) = find_sets(source, [name])
    parts = [parted(Path(file)) for file in (*files.train, *files.test)]
    if any(attributes(head) != attributes(parts[0][0]) for head, _ in parts):
        raise SystemExit(f"{name}: training and test files declare other columns")
    rows = [row for _, own in parts for row in own]
    random.Random(seed).shuffle(rows)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    content = "\n".join([*parts[0][0], *rows, ""]).encode("utf-8", "surrogateescape")
    (folder / f"{name}.arff.gz").write_bytes(gzip.compress(content, mtime=0))
    for labels in (source / name).glob("*.xml"):
        shutil.copy(labels, folder / f"{name}.xml")
    return len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("MANYHOT_DATA"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=2026)
    given = parser.parse_args()
    for name in TABULAR:
        print(name, pool(name, given.data, given.out, given.seed), "rows")


if __name__ == "__main__":
    main()
