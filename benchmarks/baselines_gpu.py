"""The other losses on a CUDA device: label-wise losses, dice, pairwise loss and thresholds on uint8 labels and on index lists,
and R-Drop.

    python -m benchmarks.baselines_gpu

With ``--warm K N`` nothing is timed: every N-th line from the K-th on is only compiled, so that several processes can share the
work beforehand.

Forward and backward in milliseconds on the device: medians over replays of a captured graph whose calls have a problem of their
own each, so that nothing is in the cache. In brackets the multiple of the byte floor: read the scores, read uint8 labels (index
lists count nothing), write the gradient, at the speed of a copy measured in the same run. A loss whose gradient is further from
float64 than its type explains is not timed.
"""

from __future__ import annotations

import argparse
import datetime
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.few_gpu import COLD, POSITIVES, cold_milliseconds
from benchmarks.gpu_engine import copy_bandwidth, table
from manyhot import SparseLabels, asymmetric_loss, bce_loss, dice_loss, focal_loss, pairwise_loss, rdrop_loss, tlpr_loss

SHAPES = {
    torch.bfloat16: [(65536, 128), (65536, 600), (16384, 4096), (16384, 4271), (4096, 32768), (1024, 131072)],
    torch.float32: [(16384, 4096), (16384, 4271), (4096, 32768)],
}
PAIRS = [(65536, 128), (16384, 4096), (16384, 4271), (4096, 32768)]


def thresholds(logits: Tensor, labels: Any) -> Tensor:
    """A threshold of its own for each row, the score of the first label, which is there beforehand."""
    return tlpr_loss(logits, labels, first_scores(logits))


@functools.cache
def first_scores(logits: Tensor) -> Tensor:
    """The score of the first label of each row."""
    return logits.detach()[:, 0].float()


LOSSES: dict[str, Callable[..., Tensor]] = {
    "BCE": bce_loss,
    "focal": focal_loss,
    "asymmetric": asymmetric_loss,
    "dice": dice_loss,
    "pairwise": pairwise_loss,
    "threshold a row": thresholds,
}
# The largest error of a gradient against float64, relative to the largest entry.
SLACK = {torch.bfloat16: 1e-2, torch.float32: 1e-5}


def problem(rows: int, num_labels: int, dtype: torch.dtype, passes: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """Scores of one pass or two, and uint8 labels."""
    scores = tuple((3 * torch.randn(rows, num_labels, device="cuda")).to(dtype).requires_grad_() for _ in range(passes))
    labels = torch.zeros(rows, num_labels, dtype=torch.uint8, device="cuda")
    return scores, labels.scatter_(1, torch.randint(0, num_labels, (rows, POSITIVES), device="cuda"), 1)


def gradients(loss: Callable[..., Tensor], scores: tuple[Tensor, ...], labels: Any) -> tuple[Tensor, ...]:
    """Forward and backward, from a factor that is there beforehand."""
    return torch.autograd.grad(loss(*scores, labels), scores, one(scores[0].dtype))


@functools.cache
def one(dtype: torch.dtype) -> Tensor:
    """The factor 1 of a loss, in the type that losses of such scores have."""
    return torch.ones((), device="cuda", dtype=torch.float64 if dtype == torch.float64 else torch.float32)


def error(loss: Callable[..., Tensor], scores: tuple[Tensor, ...], labels: Any) -> float:
    """The largest error of the gradients against float64, relative to the largest entry."""
    few, rows = 64, len(scores[0])
    exact = tuple(each[:few].detach().double().requires_grad_() for each in scores)
    pairs = zip(gradients(loss, scores, labels), gradients(loss, exact, labels[:few]), strict=True)
    return max(((one[:few].double() * (rows / few) - two).abs().max() / two.abs().max()).item() for one, two in pairs)


def cell(loss: Callable[..., Tensor], problems: list[tuple[tuple[Tensor, ...], Any]], floor: float) -> str:
    """The time of a call and its multiple of the floor, both in milliseconds."""
    scores, labels = problems[0]
    wrong = error(loss, scores, labels)
    if wrong > SLACK[scores[0].dtype]:
        return f"error {wrong:.1e}: not timed"
    taken = cold_milliseconds([lambda each=each: gradients(loss, *each) for each in problems])
    return f"{taken:.3f} ({taken / floor:.2f})"


def line(rows: int, num_labels: int, dtype: torch.dtype, bandwidth: float, *, passes: int) -> list[str]:
    """A row of a table: every loss of one pass on either kind of labels, or R-Drop of two."""
    size = rows * num_labels
    scores = 2 * passes * size * dtype.itemsize
    made = [problem(rows, num_labels, dtype, passes) for _ in range(max(2, min(16, COLD // scores)))]
    lists = [(each, SparseLabels.from_dense(labels)) for each, labels in made]
    if passes == 1:
        for each, _ in made:
            first_scores(each[0])  # before any graph is captured, which would compute them in every replay
    floors = [count / bandwidth * 1e3 for count in (scores + size, scores)]
    found = [f"{rows:,} x {num_labels:,}", str(dtype)[6:]]
    for loss in (rdrop_loss,) if passes == 2 else LOSSES.values():
        found += [cell(loss, made, floors[0]), cell(loss, lists, floors[1])]
    first_scores.cache_clear()
    torch.cuda.empty_cache()
    return found


def warm(rows: int, num_labels: int, dtype: torch.dtype, passes: int) -> None:
    """Compile what a line needs."""
    scores, labels = problem(rows, num_labels, dtype, passes)
    for loss in (rdrop_loss,) if passes == 2 else LOSSES.values():
        for given in (labels, SparseLabels.from_dense(labels)):
            gradients(loss, scores, given)
    torch.cuda.synchronize()


def print_table(head: list[str], cases: list[tuple[Any, ...]], bandwidth: float) -> None:
    """A table whose lines are printed as they come."""
    print(table(head, []), flush=True)
    for *case, passes in cases:
        print("| " + " | ".join(line(*case, bandwidth, passes=passes)) + " |", flush=True)


def main() -> None:
    """Print the page."""
    import triton

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--warm", type=int, nargs=2, metavar=("K", "N"), help="only compile, every N-th line from the K-th on")
    settings = parser.parse_args()
    halves, singles = ([(*shape, dtype, 1) for shape in shapes] for dtype, shapes in SHAPES.items())
    double = [(*shape, dtype, 2) for dtype in SHAPES for shape in PAIRS]
    if settings.warm:
        for case in (halves + double + singles)[settings.warm[0] :: settings.warm[1]]:
            warm(*case)
        return
    bandwidth = copy_bandwidth()
    date = datetime.datetime.now(datetime.UTC).date()
    print(f"# The other losses on {torch.cuda.get_device_name()}\n")
    print(f"{date}, torch {torch.__version__}, triton {triton.__version__}, copy {bandwidth / 1e12:.2f} TB/s.")
    print(f"Command: `python -m benchmarks.baselines_gpu`. {POSITIVES} positives a row.\n")
    print("Forward and backward in milliseconds on the device over buffers that are in no cache, in brackets the multiple of")
    print(
        "the byte floor (index lists count nothing). Every gradient was compared with float64 first. The factor 1 of backward"
    )
    print("and the thresholds are there beforehand.\n")
    head = ["rows x labels", "type", *(f"{name}, {kind}" for name in LOSSES for kind in ("uint8", "lists"))]
    print_table(head, halves, bandwidth)
    print("\nR-Drop of two passes; the floor is to read both and the labels, and to write both gradients.\n")
    print_table(["rows x labels", "type", "R-Drop, uint8", "R-Drop, lists"], double, bandwidth)
    print("\nThe first table in float32.\n")
    print_table(head, singles, bandwidth)


if __name__ == "__main__":
    main()
