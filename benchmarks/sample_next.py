"""Does ``choose_rows`` learn faster than random rows? Rounds of labelling on two sets, with the same start.

python -m benchmarks.sample_next --data FOLDER [--page PAGE]
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.text_sets import SETS
from manyhot import TrainSettings, evaluate
from manyhot.curation import choose_rows
from manyhot.training.rows.train import train

START, BATCH, ROUNDS, POOL, TEST = 300, 100, 4, 4000, 1500


def curve(rows: Any, test: Any, way: str, seed: int) -> list[float]:
    """micro-F1 after each round."""
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(rows))[:POOL]
    known, free = list(order[:START]), list(order[START:])
    found = []
    for _ in range(ROUNDS + 1):
        model = train(rows[np.array(sorted(known))], TrainSettings(model="linear", threads=1, seed=seed))
        found.append(float(evaluate(model, test, metrics=["micro-F1"])["micro-F1"]))
        if way == "random":
            picked = [int(place) for place in draw.choice(len(free), BATCH, replace=False)]
        else:
            logits = model.logits(rows[np.array(free)])
            picked = [each.row for each in choose_rows(logits, model.rule, rows=BATCH, seed=seed)]
        known += [free[place] for place in picked]
        free = [each for place, each in enumerate(free) if place not in set(picked)]
    return found


def page(lines: list[tuple[str, str, Any]], seeds: int, command: str) -> str:
    """The result page."""
    sizes = [START + BATCH * number for number in range(ROUNDS + 1)]
    table = ["| set | rows by | " + " | ".join(f"{size} rows" for size in sizes) + " |", "|---|---|" + "---:|" * len(sizes)]
    for name, way, values in lines:
        shown = [f"{mean:.4f} ± {spread:.4f}" for mean, spread in zip(values.mean(0), values.std(0), strict=True)]
        table.append(f"| {name} | {way} | " + " | ".join(shown) + " |")
    return "\n".join(
        [
            "# What to label next",
            "",
            f"micro-F1 on {TEST:,} test rows after rounds of {BATCH} rows, chosen from a pool of {POOL:,} by `manyhot sample`",
            f"or at random; {seeds} seeds, mean and deviation. Linear models with the default settings.",
            "",
            *table,
            "",
            f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, torch {torch.__version__}.",
            "",
            f"    {command}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for name in ("reuters21578", "goemotions"):
        rows, test = SETS[name](given.data)
        for way in ("sample", "random"):
            values = np.array([curve(rows, test[:TEST], way, seed) for seed in range(given.seeds)])
            lines.append((name, way, values))
            sys.stderr.write(f"{name} {way} {values.mean(0).round(4).tolist()}\n")
    text = page(lines, given.seeds, "python -m benchmarks.sample_next --data DATA --page PAGE")
    if given.page:
        given.page.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
