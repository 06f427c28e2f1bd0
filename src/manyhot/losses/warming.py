"""Compiles kernels before the first batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_choice
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.catalog import LOSSES, get_loss
from manyhot.losses.info import HARD, SOFT, SPARSE

WHO = "warm_up"
LABEL_KINDS = (HARD, SOFT, SPARSE)


def warm_up(
    rows: int | Iterable[int],
    num_labels: int | Iterable[int],
    *,
    losses: str | Iterable[str] = "zlpr",
    dtypes: torch.dtype | Iterable[torch.dtype] = torch.float32,
    labels: str | Iterable[str] = HARD,
    device: torch.device | str | None = None,
) -> int:
    """Compile the kernels that a training run will launch, so that its first steps are as fast as the others.

    On a CUDA device a kernel is compiled when it is first launched, which takes about a second; Triton caches it on disk for
    the next process. This function calls each loss and its backward once on random scores, for every combination of its
    arguments. Batches that differ only in the number of rows share a kernel. The exception is a batch so small that its rows
    are divided among the multiprocessors: then name both sizes. On the CPU nothing is compiled, and the calls are harmless.

    Args:
        rows: rows of a batch, B. Each call needs the memory of scores, labels and gradient, ``[B, L]``.
        num_labels: number of labels, L.
        losses: names of the catalog, such as ``"zlpr"`` or ``("bce", "focal")``.
        dtypes: types of the scores.
        labels: kinds of labels: ``"hard"`` (uint8), ``"soft"`` (in the type of the scores) or ``"sparse"`` (index lists).
        device: where the scores will be. Default: the current CUDA device if there is one, else the CPU.

    Returns:
        The number of calls made. A loss is not called on labels that it does not take.

    Example:
        >>> warm_up(8, (20, 100), losses=("zlpr", "bce"), labels=("hard", "sparse"), device="cpu")
        8
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    wanted = [list(_several(each)) for each in (rows, num_labels, losses, dtypes, labels)]
    for name, sizes in zip(("rows", "num_labels"), wanted, strict=False):
        for size in sizes:
            check_at_least(WHO, name, size, 1)
    for loss in wanted[2]:
        check_choice(WHO, "losses", loss, tuple(LOSSES))
    for kind in wanted[4]:
        check_choice(WHO, "labels", kind, LABEL_KINDS)
    calls = 0
    for size, count, loss, dtype, kind in itertools.product(*wanted):
        if kind in get_loss(loss).label_kinds:
            _call(loss, size, count, dtype, kind, torch.device(device))
            calls += 1
    return calls


def _several(value: Any) -> Iterable[Any]:
    return (value,) if isinstance(value, (int, str, torch.dtype)) else value


def _call(loss: str, rows: int, num_labels: int, dtype: torch.dtype, kind: str, device: torch.device) -> None:
    """One call and its backward; every row has one label."""
    logits = torch.randn(rows, num_labels, device=device, dtype=dtype, requires_grad=True)
    given: Tensor | SparseLabels
    if kind == SPARSE:
        given = SparseLabels.from_lists([[0]] * rows, num_labels=num_labels).to(device)
    else:
        given = torch.zeros(rows, num_labels, dtype=torch.uint8 if kind == HARD else dtype, device=device)
        given[:, 0] = 1
    get_loss(loss)(logits, given).backward()  # type: ignore[no-untyped-call]
