"""``manyhot train`` told the metric on public text sets, against the default: ``python -m benchmarks.text_told --data FOLDER``.

A model is trained without a metric and one for each metric, and each is judged by its metric on the test rows. Prints a table
for each set.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import time
from pathlib import Path

import torch

from benchmarks.text_sets import SETS
from benchmarks.tuning import processor
from manyhot.evaluation import evaluate
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train

METRICS = ("SubACC", "micro-F1", "macro-F1", "MLC-F1", "P@1", "P@3", "P@5")


def table(name: str, folder: Path, metrics: tuple[str, ...], threads: int) -> None:
    """Train and print the table of one set."""
    rows, test = SETS[name](folder)
    print(f"\n### {name}\n\n| metric | default | told | CPU s, default | CPU s, told |\n|---|--:|--:|--:|--:|", flush=True)
    usual, seconds = None, 0.0
    for metric in ("auto", *metrics):
        begun = time.process_time()
        model = train(rows, TrainSettings(metric=metric, threads=threads, device="cpu"))
        spent = time.process_time() - begun
        if usual is None:
            usual, seconds = evaluate(model, test, metrics), spent
            continue
        told = evaluate(model, test, (metric,))[metric]
        print(f"| {metric} | {100 * usual[metric]:.2f} | {100 * told:.2f} | {seconds:.1f} | {spent:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("MANYHOT_DATA"), help="folder with the data sets")
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=list(SETS))
    parser.add_argument("--metrics", nargs="+", default=list(METRICS))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data or MANYHOT_DATA must name the folder with the data sets")
    torch.set_num_threads(options.threads)
    date, versions = (
        datetime.datetime.now(datetime.UTC).date(),
        f"python {platform.python_version()}, torch {torch.__version__}",
    )
    print(f"{date}, {processor()}, {options.threads} thread(s), {versions}")
    for name in options.sets:
        table(name, Path(options.data), tuple(options.metrics), options.threads)


if __name__ == "__main__":
    main()
