"""The loss at few labels on a CUDA device, beside BCE: device time over cold buffers, and the host's time to issue a call.

    python -m benchmarks.few_gpu

Device times are those of a captured graph whose calls have a problem of their own each, so that nothing is in the cache;
medians of `triton.testing.do_bench`, of one call. The floor is the bytes that any implementation must move (read logits, read
uint8 labels, none for index lists, write the gradient) over the copy bandwidth measured in the same run. Host times are medians
of rounds in which the contenders take turns. `python -m benchmarks.gpu_engine` has this table too.
"""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from manyhot import SparseLabels, zlpr_loss

ROWS = 65536
LABELS = (2, 5, 20, 64, 128)
TYPES = (torch.bfloat16, torch.float16, torch.float32)
POSITIVES = 5
# Bytes that all problems of a graph have together, more than the cache of any device.
COLD = 400_000_000
HEAD = ["rows x labels", "type", "ours, uint8", "ours, index lists", "BCE compiled", "BCE eager"]
HEAD += ["host us: ours, uint8", "ours, index lists", "BCE eager"]
Call = Callable[[], Any]


def milliseconds(function: Call) -> float:
    """The median of many runs."""
    from triton.testing import do_bench

    found: float = do_bench(function, warmup=5, rep=30, return_mode="median")
    return found


def problem(rows: int, num_labels: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scores and uint8 labels."""
    logits = (3 * torch.randn(rows, num_labels, device="cuda")).to(dtype).requires_grad_()
    labels = torch.zeros(rows, num_labels, dtype=torch.uint8, device="cuda")
    return logits, labels.scatter_(1, torch.randint(0, num_labels, (rows, POSITIVES), device="cuda"), 1)


def step(loss: Callable[..., Tensor], logits: Tensor, labels: Any) -> Call:
    """Forward and backward; float16 with the loss scale that torch begins with."""
    factor = torch.tensor(65536.0 if logits.dtype == torch.float16 else 1.0, device="cuda")
    return lambda: torch.autograd.grad(loss(logits, labels), logits, factor)


def cold_milliseconds(calls: list[Call]) -> float:
    """Device time of a call: all of them in one captured graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return milliseconds(graph.replay) / len(calls)


def host_microseconds(calls: list[Call], each: int = 20, rounds: int = 41) -> list[float]:
    """The median time to issue a call of each, by rounds in which they take turns."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, own in zip(calls, taken, strict=True):
            begun = time.perf_counter()
            for _ in range(each):
                call()
            own.append((time.perf_counter() - begun) / each * 1e6)
            torch.cuda.synchronize()
    return [statistics.median(own) for own in taken]


def line(num_labels: int, dtype: torch.dtype, bandwidth: float, compiled: Callable[..., Tensor]) -> list[str]:
    """A row of the table."""
    size = ROWS * num_labels * 2 * dtype.itemsize
    sets = [problem(ROWS, num_labels, dtype) for _ in range(max(8, min(64, COLD // size)))]
    floors = [count / bandwidth * 1e6 for count in (size + ROWS * num_labels, size)]
    contenders = [
        [step(zlpr_loss, logits, labels) for logits, labels in sets],
        [step(zlpr_loss, logits, SparseLabels.from_dense(labels)) for logits, labels in sets],
        [step(compiled, logits, labels.to(dtype)) for logits, labels in sets],
        [step(binary_cross_entropy_with_logits, logits, labels.to(dtype)) for logits, labels in sets],
    ]
    times = [1e3 * cold_milliseconds(calls) for calls in contenders]
    ours = [f"{taken:.1f} us ({taken / floor:.2f})" for taken, floor in zip(times, floors, strict=False)]
    host = host_microseconds([calls[0] for calls in (contenders[0], contenders[1], contenders[3])])
    others = [f"{taken:.1f}" for taken in (*times[2:], *host)]
    return [f"{ROWS:,} x {num_labels}", str(dtype)[6:], *ours, *others]


def lines(bandwidth: float, compiled: Callable[..., Tensor]) -> Iterable[list[str]]:
    """The rows of the table."""
    for dtype in TYPES:
        for num_labels in LABELS:
            yield line(num_labels, dtype, bandwidth, compiled)
            torch.cuda.empty_cache()


def main() -> None:
    """Print the table."""
    from benchmarks.gpu_engine import compile_others, copy_bandwidth, table

    bandwidth = copy_bandwidth()
    date = datetime.datetime.now(datetime.UTC).date()
    about = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {bandwidth / 1e12:.2f} TB/s, {date}"
    print(f"# The loss at few labels\n\n{about}. Command: `python -m benchmarks.few_gpu`. {POSITIVES} positives a row.\n")
    print("Forward and backward: microseconds on the device over buffers that are in no cache, in brackets the multiple of the")
    print("byte floor; then what the host takes to issue a call and its backward.\n")
    print(table(HEAD, []), flush=True)
    for cells in lines(bandwidth, compile_others()[0]):
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
