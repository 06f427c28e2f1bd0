"""Gathers the rows of several processes, for a head whose labels are divided among them."""

from __future__ import annotations

from typing import Any, overload

import torch
import torch.distributed as dist
from torch import Tensor

from manyhot.labels.sparse import SparseLabels
from manyhot.scores.shards import Group, gather_ragged


@overload
def gather_rows(part: Tensor, group: Group) -> Tensor: ...
@overload
def gather_rows(part: SparseLabels, group: Group) -> SparseLabels: ...
def gather_rows(part: Tensor | SparseLabels, group: Group) -> Tensor | SparseLabels:
    """Gather the rows of all processes of a group, in the order of the processes. Their numbers of rows may differ.

    An encoder runs on the rows of its own process, but a head with label shards needs the rows of the whole group: gather
    ``hidden``, the labels and the sample weights between the two. The gradient of a process's rows is multiplied by the size of
    the group, because DDP and FSDP2 divide the gradients of the encoder by the number of processes.

    Args:
        part: ``[r, ...]``, or ``SparseLabels`` of r rows.
        group: the processes.

    Returns:
        ``[R, ...]``, or ``SparseLabels`` of R rows, the same on every process.

    Example:
        >>> import torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> gather_rows(SparseLabels.from_lists([[2], [0, 1]], num_labels=3), dist.group.WORLD).lists()
        [[2], [0, 1]]
        >>> dist.destroy_process_group()
    """
    if isinstance(part, Tensor):
        out: Tensor = _GatheredRows.apply(part, group)  # type: ignore[no-untyped-call]
        return out
    values = None if part.values is None else torch.cat(gather_ragged(part.values, group))
    counts = torch.cat(gather_ragged(part.counts(), group))
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    indices = torch.cat(gather_ragged(part.indices, group))
    return SparseLabels(indices, offsets, part.num_labels, values=values, validate=False)


class _GatheredRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, group: Group) -> Tensor:
        parts = gather_ragged(own, group)
        ctx.count = dist.get_world_size(group)
        ctx.start = sum(len(part) for part in parts[: dist.get_rank(group)])
        ctx.stop = ctx.start + len(own)
        return torch.cat(parts)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad[ctx.start : ctx.stop] * ctx.count, None
