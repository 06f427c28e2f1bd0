"""Has a change made a loss slower? Forward and backward of the losses in two source trees, side by side.

    git archive COMMIT src hatch_build.py | tar x -C BEFORE && (cd BEFORE && python hatch_build.py)
    python -m benchmarks.two_trees --before BEFORE/src --after src --threads 2 --seconds 60

Fresh processes import one tree after the other, turn by turn, and time the same calls through the public functions. Each pair
of neighbouring processes gives one ratio after / before for each case; the page has the median ratio and the range over the
pairs. torch's own loss is measured in the same processes: its code is the same in both, so its ratio shows the noise.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONTROL = "torch BCE, 1,024 x 4,096"
# Loss, rows, labels, type of the logits, whether the labels are index lists.
CASES = [
    ("zlpr", 16, 20, "float32", False),
    ("zlpr", 256, 80, "float32", False),
    ("zlpr", 256, 80, "float32", True),
    ("zlpr", 65_536, 20, "float32", False),
    ("zlpr", 1_024, 4_096, "float32", False),
    ("zlpr", 1_024, 4_096, "float32", True),
    ("zlpr", 1_024, 4_096, "bfloat16", False),
    ("zlpr", 1_024, 4_096, "float16", False),
    ("zlpr", 32, 131_072, "float32", False),
    ("pairwise", 1_024, 4_096, "float32", False),
    ("bce", 1_024, 4_096, "float32", False),
    ("focal", 1_024, 4_096, "float32", False),
    ("asymmetric", 1_024, 4_096, "float32", False),
    ("rdrop", 1_024, 4_096, "float32", False),
]


def calls() -> dict[str, Callable[[], object]]:
    """Forward and backward of every case, by the tree that this process imports."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    import manyhot

    found: dict[str, Callable[[], object]] = {}
    for loss, rows, labels, dtype, listed in CASES:
        source = torch.Generator().manual_seed(0)
        logits = (torch.randn(rows, labels, generator=source) * 2 - 2).to(getattr(torch, dtype))
        truth = torch.zeros(rows, labels, dtype=torch.bool)
        truth.scatter_(1, torch.randint(labels, (rows, 5), generator=source), True)
        given: Any = manyhot.SparseLabels.from_dense(truth) if listed else truth
        function: Any = getattr(manyhot, f"{loss}_loss")
        leaves = [logits.requires_grad_()]
        if loss == "rdrop":
            leaves.append((logits.detach() * 0.9 + 0.1).requires_grad_())
        kind = ("" if dtype == "float32" else f", {dtype}") + (", index lists" if listed else "")
        found[f"{loss}, {rows:,} x {labels:,}{kind}"] = _step(function, leaves, given)
    logits = torch.randn(1_024, 4_096, requires_grad=True)
    found[CONTROL] = _step(binary_cross_entropy_with_logits, [logits], torch.zeros(1_024, 4_096))
    return found


def _step(function: Any, leaves: list[Any], labels: Any) -> Callable[[], object]:
    import torch

    return lambda: torch.autograd.grad(function(*leaves, labels), leaves)


def work(threads: int, seconds: float) -> None:
    """Print the median time of each case in microseconds, as JSON."""
    import torch

    torch.set_num_threads(threads)
    cases = calls()
    medians = {}
    for name, run in cases.items():
        for _ in range(3):
            run()
        times, stop = [], time.perf_counter() + seconds / len(cases)
        while len(times) < 5 or time.perf_counter() < stop:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        medians[name] = statistics.median(times) * 1e6
    print(json.dumps(medians))


def measure(tree: Path, threads: int, seconds: float) -> dict[str, float]:
    """The medians of one fresh process that imports ``tree``."""
    words = [sys.executable, __file__, "--work", "--threads", str(threads), "--seconds", str(seconds)]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(tree.resolve())}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr[-2000:]}")
    medians: dict[str, float] = json.loads(done.stdout)
    return medians


def page(pairs: list[tuple[dict[str, float], dict[str, float]]], threads: int) -> str:
    """The table: medians of either tree, and of the ratios of the pairs."""
    import torch

    lines = [
        "# The losses before and after, on a CPU\n",
        f"{platform.processor() or platform.machine()}, {threads} threads; torch {torch.__version__}, Python"
        f" {platform.python_version()}; {datetime.datetime.now(datetime.UTC).date()}; {len(pairs)} pairs of processes.\n",
        "| forward and backward | before, us | after, us | after / before | range |",
        "|---|---|---|---|---|",
    ]
    for name in pairs[0][0]:
        before, after = ([pair[side][name] for pair in pairs] for side in (0, 1))
        ratios = sorted(b / a for a, b in zip(before, after, strict=True))
        lines.append(
            f"| {name} | {statistics.median(before):,.1f} | {statistics.median(after):,.1f} |"
            f" {statistics.median(ratios):.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="folder with the package manyhot, its native engine built")
    parser.add_argument("--after", type=Path, help="the same for the changed tree")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="for everything; about 5 of them start each process")
    parser.add_argument("--round-seconds", type=float, default=6.0, help="of measuring in each process")
    parser.add_argument("--output", type=Path, help="write the page here, again after each pair")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.work:
        work(settings.threads, settings.seconds)
        return
    pairs, begin, longest = [], time.monotonic(), 0.0
    while not pairs or time.monotonic() - begin + longest < settings.seconds:
        start = time.monotonic()
        # Every other pair begins with the other tree, so that what the machine does meanwhile hits both alike.
        order = [settings.before, settings.after] if len(pairs) % 2 == 0 else [settings.after, settings.before]
        found = {tree: measure(tree, settings.threads, settings.round_seconds) for tree in order}
        pairs.append((found[settings.before], found[settings.after]))
        longest = max(longest, time.monotonic() - start)
        if settings.output:
            settings.output.write_text(page(pairs, settings.threads))
    print(page(pairs, settings.threads), end="")


if __name__ == "__main__":
    main()
