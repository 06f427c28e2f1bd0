"""The span loss on a CPU, dense public form against ours: memory kept for backward, and time; printed as Markdown.

    python -m benchmarks.spans_cpu

The dense form is what public code does: the whole [B, H, T, T] tensor, excluded and positive cells pushed away by a
constant, logsumexp. Both start from the same q, k (u, v) and give their gradients.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable

import torch
from torch import Tensor

from manyhot import zlpr_loss
from manyhot.labels.spans import SpanLabels
from manyhot.scores.spans import SpanScores

SHAPES = ((4, 50, 128), (2, 10, 512))
HEAD_SIZE = 64
SPANS_PER_ROW = 8


def make_scores(form: str, rows: int, types: int, tokens: int) -> SpanScores:
    source = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source).requires_grad_()

    if form == "GlobalPointer":
        q, k = (draw(rows, types, tokens, HEAD_SIZE) for _ in range(2))
        return SpanScores(q, k, scale=HEAD_SIZE**-0.5)
    q, k = (draw(rows, tokens, HEAD_SIZE) for _ in range(2))
    u, v = (draw(rows, types, tokens) for _ in range(2))
    return SpanScores(q, k, u, v, scale=HEAD_SIZE**-0.5)


def make_labels(rows: int, types: int, tokens: int) -> SpanLabels:
    source = torch.Generator().manual_seed(1)
    lists = []
    for _ in range(rows):
        ends = torch.randint(tokens, (SPANS_PER_ROW, 2), generator=source).sort(dim=1).values
        kinds = torch.randint(types, (SPANS_PER_ROW, 1), generator=source)
        lists.append(sorted({tuple(span) for span in torch.cat([kinds, ends], dim=1).tolist()}))
    return SpanLabels.from_lists(lists, num_types=types, num_tokens=tokens)


def public_loss(scores: SpanScores, labels: Tensor, where: Tensor) -> Tensor:
    """The loss as bert4torch and its relatives write it."""
    logits = scores.dense()
    logits = logits - (~where).to(logits.dtype) * 1e12
    flat, truth = logits.flatten(2), labels.flatten(2)
    flat = (1 - 2 * truth) * flat
    neg, pos = flat - truth * 1e12, flat - (1 - truth) * 1e12
    zero = torch.zeros_like(flat[..., :1])
    return (torch.cat([neg, zero], dim=-1).logsumexp(dim=-1) + torch.cat([pos, zero], dim=-1).logsumexp(dim=-1)).mean()


def kept_bytes(make_loss: Callable[[], Tensor], own: list[Tensor]) -> int:
    """What autograd keeps between forward and backward, beside the tensors that the head holds anyway."""
    seen = {part.untyped_storage().data_ptr() for part in own}
    sizes: dict[int, int] = {}

    def pack(part: Tensor) -> Tensor:
        storage = part.untyped_storage()
        if storage.data_ptr() not in seen:
            sizes[storage.data_ptr()] = storage.nbytes()
        return part

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda part: part):
        loss = make_loss()
    total = sum(sizes.values())
    del loss
    return total


def seconds(losses: list[Callable[[], Tensor]], own: list[Tensor], repeats: int) -> list[float]:
    """The least processor time of each, taken in turns: others on the machine disturb that least."""
    best = [float("inf")] * len(losses)
    for _ in range(repeats + 1):
        for place, make_loss in enumerate(losses):
            start = time.process_time()
            torch.autograd.grad(make_loss(), own)
            best[place] = min(best[place], time.process_time() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, one thread, {os.cpu_count()} cores, {platform.machine()}, float32, head size {HEAD_SIZE},"
    )
    print(f"{SPANS_PER_ROW} spans a row; forward and backward, processor time, the least of {repeats}.\n")
    print("| head | B, H, T | q, k, u, v | kept beside them, dense | ours | time, dense | ours | faster | loss differs by |")
    print("|---|---|---|---|---|---|---|---|---|")
    for form in ("GlobalPointer", "EfficientGlobalPointer"):
        for rows, types, tokens in SHAPES:
            scores, labels = make_scores(form, rows, types, tokens), make_labels(rows, types, tokens)
            own = [part for part in (scores.q, scores.k, scores.u, scores.v) if part is not None]
            truth, where = labels.dense(torch.float32), scores.where()

            def dense(scores: SpanScores = scores, truth: Tensor = truth, where: Tensor = where) -> Tensor:
                return public_loss(scores, truth, where)

            def ours(scores: SpanScores = scores, labels: SpanLabels = labels) -> Tensor:
                return zlpr_loss(scores, labels)

            kept = [kept_bytes(loss, [*own, truth, where]) / 2**20 for loss in (dense, ours)]
            took = [best * 1e3 for best in seconds([dense, ours], own, repeats)]
            gap = abs(dense().item() - ours().item())
            held = sum(part.nbytes for part in own) / 2**20
            print(
                f"| {form} | {rows}, {types}, {tokens} | {held:.1f} MiB | {kept[0]:.1f} MiB | {kept[1] * 1024:.1f} KiB"
                f" | {took[0]:.0f} ms | {took[1]:.1f} ms | {took[0] / took[1]:.1f}x | {gap:.0e} |"
            )


if __name__ == "__main__":
    main()
