"""The exact tuner against a grid of cuts on the same scores: ``python -m benchmarks.tuning``."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from manyhot.decisions.tune import tune_rule
from manyhot.labels.sparse import SparseLabels


def make_scores(rows: int, num_labels: int, seed: int) -> tuple[Tensor, Tensor]:
    """Scores of a model that is right more often than not; label frequencies fall as 1 / rank, 5 positives a row."""
    generator = torch.Generator().manual_seed(seed)
    rates = 1 / torch.arange(1, num_labels + 1).float()
    rates = (rates * 5 / rates.sum()).clamp(max=0.5)
    labels = torch.rand(rows, num_labels, generator=generator) < rates
    scores = torch.randn(rows, num_labels, generator=generator) + 4 * labels + 0.5 * rates.logit() - 1
    return scores, labels


def grid_micro(scores: Tensor, labels: Tensor, steps: int) -> tuple[float, float]:
    """``(best micro-F1, its cut)`` of a grid for all labels; predictions are counted in NumPy, positives looked up once."""
    hits = scores[labels]
    best = (-1.0, 0.0)
    for cut in torch.linspace(float(scores.min()), float(scores.max()), steps).tolist():
        predicted = np.count_nonzero((scores > cut).numpy())
        value = 2 * int((hits > cut).sum()) / (predicted + len(hits))
        best = max(best, (value, cut))
    return best


def grid_macro(scores: Tensor, labels: Tensor, steps: int) -> tuple[float, Tensor]:
    """``(best macro-F1, cuts)`` of a grid for each label, all labels of a step at once."""
    sparse = SparseLabels.from_dense(labels)
    hits, positives = scores[sparse.rows, sparse.indices], labels.sum(dim=0)
    best, cuts = torch.full((scores.shape[1],), -1.0), torch.zeros(scores.shape[1])
    for cut in torch.linspace(float(scores.min()), float(scores.max()), steps).tolist():
        predicted = torch.from_numpy((scores > cut).numpy().sum(axis=0, dtype=np.int32))
        right = torch.bincount(sparse.indices[hits > cut], minlength=scores.shape[1])
        value = 2 * right / (predicted + positives).clamp(min=1)
        cuts = torch.where(value > best, cut, cuts)
        best = torch.maximum(best, value)
    return float(best.double().mean()), cuts


def timed(work, repeats: int = 1):
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        answer = work()
        seconds.append(time.perf_counter() - start)
    return answer, min(seconds)


def measure(
    rows: int, num_labels: int, steps: int, seed: int, folds: int
) -> list[tuple[str, float, float, float, float, float]]:
    scores, labels = make_scores(rows, num_labels, seed)
    sparse = SparseLabels.from_dense(labels)
    cases = (
        ("micro-F1, one cut", {"objective": "micro-F1"}, grid_micro),
        (
            "macro-F1, a cut per label",
            {"objective": "macro-F1", "per_label": True, "shrink": 0, "flood": float("inf")},
            grid_macro,
        ),
        ("macro-F1, a cut per label, shrink 5, flood 5", {"objective": "macro-F1", "per_label": True}, grid_macro),
    )
    lines, grids = [], {}
    for name, settings, grid in cases:
        if grid not in grids:
            (grid_value, _), seconds = timed(lambda grid=grid: grid(scores, labels, steps))
            grids[grid] = (grid_value, seconds)
        exact, seconds = timed(lambda settings=settings: tune_rule(scores, sparse, folds=0, **settings), repeats=2)
        _, crossed = timed(lambda settings=settings: tune_rule(scores, sparse, folds=folds, **settings))
        lines.append((name, grids[grid][0], exact.value, grids[grid][1], seconds, crossed))
    return lines


def page(arguments: argparse.Namespace, lines: list[tuple[str, float, float, float, float, float]]) -> str:
    text = [
        "# Exact tuning against a grid",
        "",
        f"- Date: {datetime.datetime.now(datetime.UTC).date()}",
        f"- Command: `{' '.join(['python -m benchmarks.tuning', *sys.argv[1:]])}`",
        f"- Hardware: {processor()}, {torch.get_num_threads()} threads of {os.cpu_count()} cores",
        f"- Versions: Python {platform.python_version()}, torch {torch.__version__}, NumPy {np.__version__}",
        f"- Data: made, {arguments.rows:,} rows x {arguments.labels:,} labels, 5 positives a row, frequencies fall as 1 / rank,"
        f" seed {arguments.seed}",
        "",
        f"The grid has {arguments.steps:,} steps from the lowest to the highest score and counts predictions in NumPy."
        " The exact tuner's time includes the values of the tuned and of the baseline rule; first without cross-fitting, then"
        " with it. Values are on the data tuned on: they compare the search, not what it gains on other data. The last line"
        " pays for its guards against rare labels with a lower value here.",
        "",
        f"| objective | grid | exact | grid, s | exact, s | times faster | exact with {arguments.folds} folds, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, grid, exact, grid_s, exact_s, crossed_s in lines:
        text.append(
            f"| {name} | {grid:.5f} | {exact:.5f} | {grid_s:.2f} | {exact_s:.2f} | {grid_s / exact_s:.0f} | {crossed_s:.2f} |"
        )
    return "\n".join(text) + "\n"


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--labels", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--output", type=Path, default=None)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    lines = measure(arguments.rows, arguments.labels, arguments.steps, arguments.seed, arguments.folds)
    text = page(arguments, lines)
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
