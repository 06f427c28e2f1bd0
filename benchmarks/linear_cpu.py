"""A linear head on a CPU, forward and backward: LinearScores against dense logits with our own loss.

    python -m benchmarks.linear_cpu --threads 2 --output page.md

The contenders of a case take turns, round after round; times are medians, and ratios are what to read. Memory is the peak of
one call in a process of its own, beyond inputs and gradients. Gradients are compared with the plain engine in float64 before a
time is printed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.cpu_engine import processor
from benchmarks.gpu_engine import table
from manyhot import LinearScores, SparseLabels, zlpr_loss

CASES = [(100_000, 64), (100_000, 256), (1_000_000, 64), (1_000_000, 256)]
SIZE, POSITIVES = 128, 5
CONTENDERS = {
    "dense": lambda parts, labels: zlpr_loss(torch.nn.functional.linear(*parts), labels),
    "ours": lambda parts, labels: zlpr_loss(LinearScores(*parts), labels),
    "ours, nothing kept": lambda parts, labels: zlpr_loss(LinearScores(*parts, memory_budget=0), labels),
    "plain": lambda parts, labels: zlpr_loss(LinearScores(*parts), labels, engine="torch"),
}


def problem(num_labels, rows, size):
    """Hidden, weight and bias, which want gradients, and index lists."""
    source = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, size, generator=source)
    weight = torch.randn(num_labels, size, generator=source).mul_(size**-0.5)
    bias = torch.full((num_labels,), -torch.log(torch.tensor(float(num_labels))).item())
    lists = [torch.randperm(num_labels, generator=source)[:POSITIVES].tolist() for _ in range(rows)]
    return [part.requires_grad_() for part in (hidden, weight, bias)], SparseLabels.from_lists(lists, num_labels=num_labels)


def step(name, parts, labels):
    """Forward and backward, with fresh gradients."""
    return torch.autograd.grad(CONTENDERS[name](parts, labels), parts)


def largest_error(made, exact):
    return max(((got.double() - right).abs().max() / right.abs().max()).item() for got, right in zip(made, exact, strict=True))


def times(names, parts, labels, rounds, clock):
    """Seconds of each contender, by rounds in which they take turns."""
    taken = {name: [] for name in names}
    for _ in range(rounds + 1):
        for name in names:
            begun = clock()
            step(name, parts, labels)
            taken[name].append(clock() - begun)
    return {name: own[1:] for name, own in taken.items()}


def print_peak(name, num_labels, rows, size):
    """MiB of one call beyond what is there, and beyond the gradients."""
    step(name, *problem(64, 4, size))
    parts, labels = problem(num_labels, rows, size)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is there now
    before = resident("VmRSS")
    made = step(name, parts, labels)
    gradients = sum(part.numel() * part.element_size() for part in made)
    print((resident("VmHWM") - before - gradients) / 2**20)


def resident(name):
    """Bytes of memory of this process, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def peak(name, num_labels, rows, settings):
    command = [sys.executable, "-m", "benchmarks.linear_cpu", "--threads", str(settings.threads), "--size", str(settings.size)]
    command += ["--peak", name, str(num_labels), str(rows)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure(num_labels, rows, settings):
    """A row of the table."""
    parts, labels = problem(num_labels, rows, settings.size)
    names = [name for name in CONTENDERS if name != "plain" or num_labels * rows <= 10_000_000]
    if num_labels * rows <= 30_000_000:
        exact = step("plain", [part.detach().double().requires_grad_() for part in parts], labels)
        errors = [largest_error(step(name, parts, labels), exact) for name in ("ours", "dense")]
        assert errors[0] <= max(3 * errors[1], 1e-5), errors
        said = f"{errors[0]:.0e} / {errors[1]:.0e}"
        del exact
    else:
        wanted = step("dense", parts, labels)
        said = f"{largest_error(step('ours', parts, labels), [part.double() for part in wanted]):.0e} to dense"
        del wanted
    taken = times(names, parts, labels, settings.rounds, time.process_time if settings.cpu_time else time.perf_counter)
    dense = taken["dense"]
    row = [f"{num_labels:,} x {rows}", f"{statistics.median(dense):.3f}"]
    for name in CONTENDERS:
        if name == "dense":
            continue
        own = taken.get(name)
        ratio = None if own is None else statistics.median(a / b for a, b in zip(own, dense, strict=True))
        row.append("-" if own is None else f"{statistics.median(own):.3f} ({ratio:.2f})")
    del parts, labels
    return [*row, *(f"{peak(name, num_labels, rows, settings):.0f}" for name in list(CONTENDERS)[:3]), said]


def page(rows, settings):
    names = list(CONTENDERS)
    head = ["labels x rows", "dense, s", *(f"{name}, s" for name in names[1:]), *(f"{name}, MiB" for name in names[:3])]
    return f"""# A linear head on a CPU

{datetime.date.today()}, {processor()}, {settings.threads} threads, torch {torch.__version__}, Python
{platform.python_version()}.
Command: `python -m benchmarks.linear_cpu {settings.command}`.
Seconds {"of the processor" if settings.cpu_time else "by the clock"}.
Hidden size {settings.size}, float32, {POSITIVES} positives a row, bias, gradients of hidden, weight and bias. Load when the run
started: {settings.load:.1f}.

Forward and backward. "Dense" is `torch.nn.functional.linear` and `zlpr_loss` by the native engine; the others are `zlpr_loss`
of `LinearScores`: as it is by default, with nothing kept between forward and backward, and by the plain engine. Seconds are
medians over {settings.rounds} rounds in which the contenders take turns; in brackets the median of what a contender took of
the dense one in the same round. Memory is the peak of one call beyond inputs and gradients. The error is the largest of the
gradients relative to their largest entry, against float64, of ours and of dense.

{table([*head, "error"], rows)}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--size", type=int, default=SIZE, help="hidden size")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor, which hold on a busy machine too")
    parser.add_argument("--cases", type=int, nargs="*", default=range(len(CASES)), help="numbers of the cases to run")
    parser.add_argument("--peak", nargs=3, metavar=("NAME", "LABELS", "ROWS"), help="print the peak memory of one contender")
    parser.add_argument("--output", type=Path)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    settings.load, settings.command = os.getloadavg()[0], " ".join(sys.argv[1:])
    if settings.peak:
        print_peak(settings.peak[0], int(settings.peak[1]), int(settings.peak[2]), settings.size)
        return
    rows = []
    for number in settings.cases:
        rows.append(measure(*CASES[number], settings))
        print(rows[-1], file=sys.stderr, flush=True)
    text = page(rows, settings)
    settings.output.write_text(text) if settings.output else print(text)


if __name__ == "__main__":
    main()
