"""Float16 beside bfloat16 on a GPU: the loss with its gradient, as the loss scale stays and as it changes.

    python -m benchmarks.half_gpu

Device times are those of a captured graph, medians; the floor is a read of scores and labels (a byte each; none for index
lists) and a write of the gradient at the measured copy bandwidth. Host times are the best of five runs of many calls.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from triton.testing import do_bench, do_bench_cudagraph

from manyhot import SparseLabels, zlpr_loss

SHAPES = ((256, 80), (65536, 128), (16384, 4096), (4096, 32768), (1024, 131072))
LOSS_SCALE = 65536.0


def copy_bandwidth() -> float:
    """Bytes a second, read and written."""
    source = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / (do_bench(lambda: target.copy_(source), return_mode="median") * 1e-3)


def host_time(step: Callable[[], Any], calls: int = 100) -> float:
    """Microseconds a call, while the device works on its own."""
    found = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            step()
        found.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    return min(found) / calls * 1e6


def print_shape(rows: int, num_labels: int, bandwidth: float) -> None:
    """The lines of one shape."""
    hard = (torch.rand(rows, num_labels, device="cuda") < 5 / num_labels).to(torch.uint8)
    lists = SparseLabels.from_dense(hard.bool())
    usual, other = torch.tensor(LOSS_SCALE, device="cuda"), torch.tensor(3.0, device="cuda")
    one = torch.ones((), device="cuda")
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.randn(rows, num_labels, device="cuda").to(dtype).requires_grad_()
        for name, labels, size in (("bytes", hard, 5), ("lists", lists, 4)):

            def step(factor: Tensor, x: Tensor = x, labels: Any = labels) -> tuple[Tensor, ...]:
                return torch.autograd.grad(zlpr_loss(x, labels), x, factor)

            expected = usual if dtype == torch.float16 else one
            for _ in range(3):
                step(expected)
            floor = rows * num_labels * size / bandwidth * 1e3
            stays, changes = (
                do_bench_cudagraph(lambda factor=factor, step=step: step(factor), rep=30, return_mode="median")
                for factor in (expected, other)
            )
            host = host_time(lambda step=step, expected=expected: step(expected))
            kind = str(dtype).removeprefix("torch.")
            times = f"{stays:.4f} ({stays / floor:.2f}) | {changes:.4f} ({changes / floor:.2f}) | {host:.0f}"
            print(f"| {rows:,} x {num_labels:,} | {kind} | {name} | {times} |", flush=True)
    x, labels = x.detach().requires_grad_(), hard.half()

    def bce() -> tuple[Tensor, ...]:
        return torch.autograd.grad(binary_cross_entropy_with_logits(x, labels), x)

    bce()
    device = do_bench_cudagraph(bce, rep=20, return_mode="median")
    print(f"| {rows:,} x {num_labels:,} | float16 | torch BCE | {device:.4f} | | {host_time(bce):.0f} |", flush=True)


def main() -> None:
    """Print a table."""
    bandwidth = copy_bandwidth()
    date = datetime.datetime.now(datetime.UTC).date()
    about = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {bandwidth / 1e12:.2f} TB/s, {date}"
    print(f"# Float16 beside bfloat16\n\n{about}. Command: `python -m benchmarks.half_gpu`.\n")
    print("`zlpr_loss` with its gradient. Forward writes a float16 gradient with the factor of the last backward.")
    print('Backward writes it again where that was another one: "loss scale changed"; for bfloat16, a factor other than 1.\n')
    print("| rows x labels | type | labels | device ms (of the floor) | loss scale changed: ms (of the floor) | host us |")
    print("|---|---|---|---|---|---|")
    for rows, num_labels in SHAPES:
        print_shape(rows, num_labels, bandwidth)


if __name__ == "__main__":
    main()
