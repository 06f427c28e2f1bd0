"""The span loss on a CUDA device, dense public form against ours: time and peak memory of forward and backward.

    python -m benchmarks.spans_gpu [--output FILE]

The dense form is what public code does: the whole [B, H, T, T] tensor, excluded and positive cells pushed away by a
constant, logsumexp. Both start from the same q, k (u, v) and give their gradients. Nothing is printed for a case whose
gradients disagree with float64.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.gpu_engine import table
from benchmarks.spans_cpu import HEAD_SIZE, SPANS_PER_ROW, make_labels, public_loss
from manyhot import zlpr_loss
from manyhot.labels.spans import SpanLabels
from manyhot.scores.spans import SpanScores

ROWS = 16
TOKENS = (128, 512, 2048)
TYPES = (10, 64)
DTYPES = (torch.bfloat16, torch.float32)
# How many times faster with the host, faster on the device, and less memory.
Ratios = tuple[float, float, float]
TYPED, SHARED = "GlobalPointer", "EfficientGlobalPointer"
# Largest error of a gradient, by norm, for which a time is worth printing.
TOLERANCE = {torch.bfloat16: 5e-3, torch.float32: 2e-5}


def make_scores(form: str, rows: int, types: int, tokens: int, dtype: torch.dtype) -> SpanScores:
    source = torch.Generator(device="cuda").manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source, device="cuda").to(dtype).requires_grad_()

    if form == TYPED:
        q, k = (draw(rows, types, tokens, HEAD_SIZE) for _ in range(2))
        return SpanScores(q, k, scale=HEAD_SIZE**-0.5)
    q, k = (draw(rows, tokens, HEAD_SIZE) for _ in range(2))
    u, v = (draw(rows, types, tokens) for _ in range(2))
    return SpanScores(q, k, u, v, scale=HEAD_SIZE**-0.5)


def parts_of(scores: SpanScores) -> list[Tensor]:
    return [part for part in (scores.q, scores.k, scores.u, scores.v) if part is not None]


def milliseconds(step: Callable[[], object], budget: float = 100.0) -> float:
    """The median over as many runs as fit the budget, at least three."""
    step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    once = 1e3 * (time.perf_counter() - start)
    times = []
    for _ in range(max(3, min(50, int(budget / max(once, 1e-3))))):
        times.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
        times[-1][0].record()
        step()
        times[-1][1].record()
    torch.cuda.synchronize()
    return sorted(begin.elapsed_time(end) for begin, end in times)[len(times) // 2]


def graph_milliseconds(step: Callable[[], object]) -> float:
    """Device time without the host, by replaying a captured graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return milliseconds(graph.replay)


def peak(step: Callable[[], object]) -> float:
    """MiB above what was there before, gradients included."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def errors(form: str, types: int, tokens: int, dtype: torch.dtype, rows: int = 2) -> tuple[float, float]:
    """Of the loss, and the largest of a part's gradient by norm, against float64, on the first rows."""
    scores, labels = make_scores(form, rows, types, tokens, dtype), make_labels(rows, types, tokens).to("cuda")
    exact = [part.detach().double().requires_grad_() for part in parts_of(scores)]
    wanted = zlpr_loss(SpanScores(*exact, scale=scores.scale), labels, engine="torch")
    ours = zlpr_loss(scores, labels)
    pairs = zip(torch.autograd.grad(ours, parts_of(scores)), torch.autograd.grad(wanted, exact), strict=True)
    worst = max(((own.double() - other).norm() / other.norm()).item() for own, other in pairs)
    return abs(ours.item() - wanted.item()), worst


def dense_step(scores: SpanScores, truth: Tensor, where: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(public_loss(scores, truth, where), parts_of(scores))


def our_step(scores: SpanScores, labels: SpanLabels) -> Callable[[], object]:
    return lambda: torch.autograd.grad(zlpr_loss(scores, labels), parts_of(scores))


def measure_dense(scores: SpanScores, labels: SpanLabels) -> tuple[float, float, float] | None:
    """Time, time on the device, and peak (dense labels not counted); None where memory ends."""
    try:
        truth = labels.dense(scores.q.dtype)
        step = dense_step(scores, truth, scores.where())
        step()
        most, took = peak(step), milliseconds(step)
        # From 512 tokens on the device is what one waits for.
        found = took, took if scores.shape[-1] > 512 else graph_milliseconds(step), most
    except torch.OutOfMemoryError:
        found = None
    torch.cuda.empty_cache()
    return found


def line(form: str, types: int, tokens: int, dtype: torch.dtype) -> tuple[list[str], Ratios | None]:
    name = [form, f"{tokens:,}", str(types), str(dtype)[6:]]
    gaps = errors(form, types, tokens, dtype)
    if not gaps[1] <= TOLERANCE[dtype]:
        return [*name, f"gradient error {gaps[1]:.1e}: not timed", *[""] * 10], None
    scores, labels = make_scores(form, ROWS, types, tokens, dtype), make_labels(ROWS, types, tokens).to("cuda")
    step = our_step(scores, labels)
    step()
    ours = milliseconds(step), peak(step)
    device = graph_milliseconds(step)
    dense = measure_dense(scores, labels)
    own = sum(part.nbytes for part in parts_of(scores)) / 2**20
    cells = [f"{ours[0]:.2f}", f"{device:.2f}", f"{ours[1]:.1f}", f"{own:.1f}", f"{gaps[0]:.0e}", f"{gaps[1]:.0e}"]
    if dense is None:
        return [*name, "out of memory", "out of memory", *cells, "", "", ""], None
    ratios = (dense[0] / ours[0], dense[1] / device, dense[2] / ours[1])
    faster = [f"{ratio:.1f}x" for ratio in ratios[:2]]
    return [*name, f"{dense[0]:.2f}", f"{dense[2]:,.0f}", *cells, *faster, f"{ratios[2]:.0f}x"], ratios


HEAD = ["head", "T", "H", "type", "dense ms", "dense MiB", "ours ms", "device ms", "ours MiB", "q, k, u, v MiB"]
HEAD += ["loss off by", "gradient off by", "faster", "on the device", "less memory"]


def goals(found: dict[tuple[str, int, int, torch.dtype], Ratios | None], memory: dict[int, float]) -> list[str]:
    """What issue and page ask for, beside what was found."""
    lines = []
    for dtype in DTYPES:
        ratios = found.get((SHARED, 512, 64, dtype))
        kind = str(dtype)[6:]
        if ratios is not None:
            lines.append(
                f"- {SHARED}, T = 512, H = 64, {kind}: {ratios[0]:.1f}x faster, {ratios[1]:.1f}x on the device (goal 20x),"
                f" {ratios[2]:.0f}x less memory (goal 30x)."
            )
        ratios = found.get((TYPED, 512, 64, dtype))
        if ratios is not None:
            lines.append(
                f"- {TYPED}, T = 512, H = 64, {kind}: {ratios[0]:.1f}x faster, {ratios[1]:.1f}x on the device (goal 4x),"
                f" {ratios[2]:.0f}x less memory."
            )
    steps = ", ".join(f"{value:.0f} MiB at T = {tokens:,}" for tokens, value in memory.items())
    lines.append(f"- {TYPED}, H = 64, bfloat16, peak memory by T (linear is 4x a step): {steps}.")
    return lines


def warm(first: int, step: int) -> None:
    """Compile what every ``step``-th case needs, from the ``first`` on, into Triton's cache on disk."""
    cases = [(form, types, dtype) for form in (SHARED, TYPED) for types in TYPES for dtype in DTYPES]
    for form, types, dtype in cases[first::step]:
        scores, labels = make_scores(form, ROWS, types, TOKENS[0], dtype), make_labels(ROWS, types, TOKENS[0]).to("cuda")
        our_step(scores, labels)()
        errors(form, types, TOKENS[0], dtype)


def warm_all() -> None:
    """All kernels at once, in eight processes: compiling takes longer than measuring."""
    command = [sys.executable, "-m", "benchmarks.spans_gpu", "--warm"]
    running = [subprocess.Popen([*command, str(first), "8"]) for first in range(8)]
    for process in running:
        process.wait()


def text_of(
    rows: list[list[str]],
    found: dict[tuple[str, int, int, torch.dtype], Ratios | None],
    memory: dict[int, float],
    triton_version: str,
) -> str:
    """The page, as far as it was measured."""
    text = "\n".join(goals(found, memory))
    return f"""# The span loss on {torch.cuda.get_device_name()}

{datetime.date.today()}, torch {torch.__version__}, triton {triton_version}.
Command: `python -m benchmarks.spans_gpu`. B = {ROWS}, head size {HEAD_SIZE}, {SPANS_PER_ROW} spans a row, the triangle.

Forward and backward from q, k (u, v) to their gradients, medians in milliseconds with the host side; "device" is the replay
of a captured graph. Memory is the peak above what was there before the call, gradients included, dense labels not. The
dense form is the public one: the whole [B, H, T, T] tensor, cells pushed away by 1e12, logsumexp. "off by" is against
float64, on two rows; of gradients the part that is furthest off, by norm.

{table(HEAD, rows)}

{text}
"""


def page(output: Path | None, compiled: bool) -> str:
    import triton

    began = time.perf_counter()
    if not compiled:
        warm_all()
    print(f"{time.perf_counter() - began:.0f} s: compiled", file=sys.stderr, flush=True)
    rows: list[list[str]] = []
    found: dict[tuple[str, int, int, torch.dtype], Ratios | None] = {}
    memory: dict[int, float] = {}
    for form in (SHARED, TYPED):
        for tokens in TOKENS:
            for types in TYPES:
                for dtype in DTYPES:
                    row, ratios = line(form, types, tokens, dtype)
                    rows.append(row)
                    found[form, tokens, types, dtype] = ratios
                    if form == TYPED and types == 64 and dtype == torch.bfloat16 and row[8]:
                        memory[tokens] = float(row[8])
                    print(f"{time.perf_counter() - began:.0f} s", row, file=sys.stderr, flush=True)
                    torch.cuda.empty_cache()
                    if output is not None:
                        output.write_text(text_of(rows, found, memory, triton.__version__))
    return text_of(rows, found, memory, triton.__version__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--warm", nargs=2, type=int, metavar=("K", "N"), help="compile every N-th case from K on, and stop")
    parser.add_argument("--compiled", action="store_true", help="all of it was compiled before, by --warm")
    settings = parser.parse_args()
    if settings.warm:
        warm(*settings.warm)
        return
    text = page(settings.output, settings.compiled)
    if settings.output is None:
        print(text)


if __name__ == "__main__":
    main()
