"""Span losses of small texts on a CUDA device, where Python and launches take longer than the device.

    python -m benchmarks.spans_small_gpu [--output PAGE.md]

A step, forward and backward, as a user waits for it: ours, the dense public form, and the least that autograd takes for a
function written in Python, which does nothing but make its gradients.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.compiled_gpu import step_milliseconds
from benchmarks.gpu_engine import table
from benchmarks.spans_cpu import make_labels
from benchmarks.spans_gpu import ROWS, SHARED, TYPED, dense_step, errors, make_scores, our_step, parts_of

CASES = [(form, tokens, types) for form in (SHARED, TYPED) for tokens, types in ((32, 4), (128, 10))]
HEAD = ["head", "T", "H", "dense ms", "launches", "ours ms", "launches", "nothing ms", "dense / ours", "dense / nothing"]


class Nothing(torch.autograd.Function):
    """A function that makes its gradients and computes nothing."""

    @staticmethod
    def forward(ctx: Any, *parts: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*parts)
        return parts[0].new_empty(())

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(map(torch.empty_like, ctx.saved_tensors))


def launches(step: Callable[[], object]) -> int:
    """How many kernels, copies and fills a step starts."""
    from torch.profiler import ProfilerActivity, profile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            step()
            torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in found.events())


def line(form: str, tokens: int, types: int) -> list[str]:
    """A row of the table; nothing is timed whose gradient is wrong."""
    off = errors(form, types, tokens, torch.bfloat16)[1]
    if off > 5e-3:
        return [form, str(tokens), str(types), f"gradient error {off:.1e}: not timed"]
    scores, labels = make_scores(form, ROWS, types, tokens, torch.bfloat16), make_labels(ROWS, types, tokens).to("cuda")
    parts = parts_of(scores)
    ours, dense = our_step(scores, labels), dense_step(scores, labels.dense(scores.q.dtype), scores.where())
    nothing = lambda: torch.autograd.grad(Nothing.apply(*parts), parts)  # noqa: E731
    for step in (ours, dense, nothing) * 3:
        step()
    dense_ms, ours_ms, least = step_milliseconds([dense, ours, nothing])
    counts = [str(launches(step)) for step in (dense, ours)]
    times = [f"{dense_ms:.3f}", counts[0], f"{ours_ms:.3f}", counts[1], f"{least:.3f}"]
    return [form, str(tokens), str(types), *times, f"{dense_ms / ours_ms:.1f}x", f"{dense_ms / least:.1f}x"]


def page(rows: list[list[str]]) -> str:
    import triton

    return f"""# Span losses of small texts on {torch.cuda.get_device_name()}

{datetime.date.today()}, torch {torch.__version__}, triton {triton.__version__}.
Command: `python -m benchmarks.spans_small_gpu`. B = {ROWS}, bfloat16.

Forward and backward in milliseconds with the host counted, medians of rounds of 50 calls in which all take turns. "nothing" is
a function of autograd written in Python that makes its gradients and computes nothing: no loss that is written so can be
faster, and its column says how far ahead of the dense form one could be at most.

{table(HEAD, rows)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    settings = parser.parse_args()
    rows: list[list[str]] = []
    for case in CASES:
        rows.append(line(*case))
        print(rows[-1], flush=True)
        if settings.output:
            settings.output.write_text(page(rows))
    if not settings.output:
        print(page(rows))


if __name__ == "__main__":
    main()
