"""The native engine on a CPU, forward and backward, against torch's losses, the public recipe and plain copies.

    python -m benchmarks.cpu_engine --threads 2 --output page.md

All contenders of a case run in turn, round after round, on the same inputs, and each time is the median over the rounds;
ratios are what to read. Every contender's loss and gradient is compared with float64 before a time is printed, and a
disagreement ends the run.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from manyhot import prediction_divergence, rdrop_loss, zlpr_loss
from manyhot.engines.native import engine as native
from manyhot.engines.terms import DenseTerms, SparseTerms

SHAPES = ((65_536, 20), (32_768, 128), (1_024, 4_096), (32, 131_072), (2, 2_097_152))
POSITIVES = 5
# The gradient of a mean is 1 / R; what follows is the largest error of R times it.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2**-8, "float16": 2**-10}

# The loss, and the gradient by every prediction.
Result = tuple[Tensor, ...]
Contender = Callable[[], Result]


def make_inputs(rows: int, labels: int) -> tuple[Tensor, Tensor, SparseTerms]:
    """Logits, bool labels with five positives a row, and the same as index lists."""
    source = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, labels, generator=source) * 2 - 2
    first = torch.randint(labels, (rows, 1), generator=source)
    step = torch.randint(1, max(labels // POSITIVES, 2), (rows, 1), generator=source)
    chosen = ((first + step * torch.arange(POSITIVES)) % labels).sort(dim=1).values
    truth = torch.zeros(rows, labels, dtype=torch.bool).scatter_(1, chosen, True)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), truth.sum(dim=1).cumsum(0)])
    return logits, truth, SparseTerms(truth.nonzero(as_tuple=True)[1], offsets)


def public_recipe(logits: Tensor, labels: Tensor) -> Tensor:
    """ZLPR as public code writes it: masked by a large constant, a zero appended, logsumexp."""
    y_pred = (1 - 2 * labels) * logits
    negatives, positives = y_pred - labels * 1e12, y_pred - (1 - labels) * 1e12
    zeros = torch.zeros_like(y_pred[..., :1])
    sides = (torch.logsumexp(torch.cat([side, zeros], dim=-1), dim=-1) for side in (negatives, positives))
    return sum(sides).mean()  # type: ignore[union-attr]


def public_rdrop(a: Tensor, b: Tensor, labels: Tensor) -> Tensor:
    """R-Drop on it as public code writes it."""
    apart = ((torch.sigmoid(a) - torch.sigmoid(b)) * (a - b)).sum(dim=-1).mean()
    return (public_recipe(a, labels) + public_recipe(b, labels)) / 2 + apart


def rdrop_by_parts(a: Tensor, b: Tensor, labels: Tensor, engine: str = "native") -> Tensor:
    """R-Drop as two losses and a divergence, each by an engine."""
    losses = zlpr_loss(a, labels, engine=engine) + zlpr_loss(b, labels, engine=engine)
    return losses / 2 + prediction_divergence(a, b, engine=engine)


def eager(loss: Callable[..., Tensor], *inputs: Tensor) -> Contender:
    """A loss of predictions and labels, which come last, with its backward."""
    *predictions, labels = inputs

    def run() -> Result:
        leaves = [x.detach().requires_grad_() for x in predictions]
        value = loss(*leaves, labels)
        return value.detach(), *torch.autograd.grad(value, leaves)

    return run


def native_zlpr(logits: Tensor, terms: DenseTerms | SparseTerms) -> Contender:
    """ZLPR with its gradient in one pass."""

    def run() -> Result:
        values, grad, _ = native.fused(logits, terms, row_scale=1 / logits.shape[0])
        return values.mean(), grad

    return run


def native_bce(logits: Tensor, terms: DenseTerms) -> Contender:
    """Binary cross-entropy with its gradient in one pass."""

    def run() -> Result:
        values, grad = native.labelwise(logits, terms, "bce", row_scale=1 / logits.numel())
        return values.mean() / logits.shape[1], grad

    return run


def reference(logits: Tensor, labels: Tensor, kind: str) -> Result:
    """Loss and gradient in float64, the plain form."""
    x = logits.double().requires_grad_()
    if kind == "BCE":
        value = binary_cross_entropy_with_logits(x, labels.double())
        value.backward()
        assert x.grad is not None
        return value.detach(), x.grad
    terms = DenseTerms(labels)
    pos, neg = terms.sides(x.detach())
    weights = (torch.sigmoid(side.value) / x.shape[0] for side in (pos, neg))
    return (softplus(pos.value) + softplus(neg.value)).mean(), terms.gradient(x.detach(), pos, neg, *weights)


def check(name: str, got: Result, wanted: Result, rows: int) -> float:
    """The largest error of a row's gradients; ends the run where loss or gradient is wrong."""
    largest = max(float(right.abs().max()) * rows for right in wanted[1:])
    tolerance = TOLERANCE[str(got[1].dtype).removeprefix("torch.")] * max(1.0, largest)
    if got[1].dtype == torch.float16:
        tolerance += rows * 2**-25  # half its smallest number: the gradient of a mean over many rows goes below it
    error = max(float((ours - right).abs().max()) * rows for ours, right in zip(got[1:], wanted[1:], strict=True))
    loss_error = abs(float(got[0]) - float(wanted[0]))
    if error > tolerance or loss_error > 1e-4 * abs(float(wanted[0])):
        sys.exit(f"{name}: the result is wrong (loss by {loss_error:g}, gradient by {error:g}); no times are printed.")
    return error


def interleave(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each contender, all run in turn."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def table(times: dict[str, float], errors: dict[str, float], rivals: dict[str, str]) -> list[str]:
    """One line for each contender: its time beside the copies and beside the ``rivals``, which are given a column each."""
    lines = [f"| | ms | x copy | x clone | {' | '.join(rivals)} | gradient error |", "|---" * (5 + len(rivals)) + "|"]
    for name, seconds in times.items():
        ratios = [f"{seconds / times[copy]:.2f}" for copy in ("copy", "clone")]
        ratios += [f"{times[rival] / seconds:.1f}" for rival in rivals.values()]
        error = f"{errors[name]:.1e}" if name in errors else ""
        lines.append(f"| {name} | {seconds * 1e3:.3f} | {' | '.join(ratios)} | {error} |")
    return lines


def measure(rows: int, labels: int, rounds: int) -> list[str]:
    """The tables of one shape: losses of one prediction, and R-Drop of two."""
    logits, truth, listed = make_inputs(rows, labels)
    copies = make_copies(logits)
    hard, dense = truth.float(), DenseTerms(truth)
    half, short = logits.bfloat16(), logits.half()
    contenders: dict[str, tuple[Contender, Tensor, str]] = {
        "torch BCE, eager": (eager(binary_cross_entropy_with_logits, logits, hard), logits, "BCE"),
        "public ZLPR recipe, eager": (eager(public_recipe, logits, hard), logits, "ZLPR"),
        "native ZLPR, bool labels": (native_zlpr(logits, dense), logits, "ZLPR"),
        "native ZLPR, float32 labels": (native_zlpr(logits, DenseTerms(hard)), logits, "ZLPR"),
        "native ZLPR, index lists": (native_zlpr(logits, listed), logits, "ZLPR"),
        "native ZLPR, bfloat16": (native_zlpr(half, dense), half, "ZLPR"),
        "native ZLPR, float16": (native_zlpr(short, dense), short, "ZLPR"),
        "native BCE, bool labels": (native_bce(logits, dense), logits, "BCE"),
    }
    # Entries of BCE weigh 1 / (R L): their error is scaled as that of a row.
    errors = {
        name: check(name, run(), reference(x, truth, kind), rows * (labels if kind == "BCE" else 1))
        for name, (run, x, kind) in contenders.items()
    }
    times = interleave({**copies, **{name: run for name, (run, *_) in contenders.items()}}, rounds)
    rivals = {"BCE / it": "torch BCE, eager", "recipe / it": "public ZLPR recipe, eager"}
    return [f"\n## {rows:,} x {labels:,}\n", *table(times, errors, rivals), "", *measure_rdrop(logits, truth, copies, rounds)]


def measure_rdrop(logits: Tensor, truth: Tensor, copies: dict[str, Callable[[], object]], rounds: int) -> list[str]:
    """The table of two predictions."""
    other, hard = logits.roll(1, 0) + 0.5 * logits, truth.float()
    contenders = {
        "public R-Drop, eager": eager(public_rdrop, logits, other, hard),
        "native R-Drop, by parts": eager(rdrop_by_parts, logits, other, truth),
        "native R-Drop, one read": eager(rdrop_loss, logits, other, truth),
        "native R-Drop, one read, bfloat16": eager(rdrop_loss, logits.bfloat16(), other.bfloat16(), truth),
    }
    wanted = eager(functools.partial(rdrop_by_parts, engine="torch"), logits.double(), other.double(), truth)()
    rounded = eager(
        functools.partial(rdrop_by_parts, engine="torch"), logits.bfloat16().double(), other.bfloat16().double(), truth
    )()
    errors = {
        name: check(name, run(), rounded if "bfloat16" in name else wanted, logits.shape[0]) for name, run in contenders.items()
    }
    times = interleave({**copies, **contenders}, rounds)
    return table(times, errors, {"public / it": "public R-Drop, eager"})


def make_copies(logits: Tensor) -> dict[str, Callable[[], object]]:
    """What it costs to move the logits: into memory that is there, and into memory that has to be asked for."""
    target = torch.empty_like(logits)
    return {"copy": lambda: target.copy_(logits), "clone": logits.clone}


def processor() -> str:
    """The name of the processor, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, help="write the page here instead of printing it")
    settings = parser.parse_args()
    there, why = native.available()
    if not there:
        sys.exit(f"The native engine is not there: {why}")
    torch.set_num_threads(settings.threads)
    command = f"python -m benchmarks.cpu_engine --threads {settings.threads} --rounds {settings.rounds}"
    lines = [
        "# The native engine on a CPU: forward and backward\n",
        f"{processor()}, {os.cpu_count()} cores seen, {settings.threads} threads, instruction set {native.variants()[-1]};"
        f" torch {torch.__version__}, Python {platform.python_version()}, {platform.system()};"
        f" {datetime.datetime.now(datetime.UTC).date()}; `{command}`.\n",
        "Medians of rounds in which all contenders run in turn. The copy is `copy_` of the float32 logits into memory that is"
        " there already; the clone allocates its result, as all others allocate their gradient. The second table of a shape is"
        " R-Drop: two predictions, both losses, their divergence, and two gradients. Errors are those of R times the gradient"
        " of the mean (R L times for BCE) against float64.",
    ]
    for rows, labels in SHAPES:
        lines += measure(rows, labels, settings.rounds)
    page = "\n".join(lines) + "\n"
    if settings.output:
        settings.output.write_text(page)
    else:
        print(page, end="")


if __name__ == "__main__":
    main()
