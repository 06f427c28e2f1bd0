"""The table of ``benchmarks.told_candidates``: ``python -m benchmarks.told_choices FILE...``.

Differences to one loss with batches of 128 (ZLPR), in points on the judging quarter: means over sets and bodies; in brackets
groups better : worse. RankLoss has its sign turned, so that more is better everywhere.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

USUAL = "zlpr"
# What is shown, and the rule of the usual fit that it is held against.
SHOWN = {
    "SubACC, sets": "SubACC, sets",
    "MLC-F1": "MLC-F1",
    "micro-F1, labels 5": "micro-F1, labels 5",
    "macro-F1, labels 5": "macro-F1, labels 5",
    "AvgPrec": "AvgPrec",
    "RankLoss": "RankLoss",
}


def table(paths: list[Path], names: tuple[str, ...] = ()) -> str:
    """A row for each fit or mean and each way to read its scores, or for those of ``names``."""
    found: dict[str, dict[tuple[str, str, int], dict[str, float]]] = defaultdict(dict)
    for row in (json.loads(line) for path in paths for line in path.read_text().splitlines()):
        if row["body"] != "text":
            name = row["fits"] if row["scores"] == "own" else f"{row['fits']}, by {row['scores']}"
            found[name][row["set"], row["body"], row["seed"]] = row["metrics"]
    lines = ["| | " + " | ".join(SHOWN) + " |", "|---|" + "---:|" * len(SHOWN)]
    for name, cells in ((name, found[name]) for name in names or found if name in found):
        shown = []
        for metric, usual in SHOWN.items():
            groups = defaultdict(list)
            for key, values in cells.items():
                if metric in values and usual in found[USUAL].get(key, {}):
                    sign = -100 if metric == "RankLoss" else 100
                    groups[key[:2]].append(sign * (values[metric] - found[USUAL][key][usual]))
            means = [np.mean(each) for each in groups.values()]
            better, worse = sum(x > 0.05 for x in means), sum(x < -0.05 for x in means)
            shown.append(f"{np.mean(means):+.2f} ({better} : {worse})" if means else "")
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def splits_of(paths: list[Path]) -> str:
    """How many splits each group has."""
    found: dict[str, set[int]] = defaultdict(set)
    for row in (json.loads(line) for path in paths for line in path.read_text().splitlines()):
        if row["body"] != "text":
            found[f"{row['set']}/{row['body']}"].add(row["seed"])
    return ", ".join(f"{group} {len(seeds)}" for group, seeds in sorted(found.items()))


if __name__ == "__main__":
    print(table([Path(each) for each in sys.argv[1:]]))
