"""Label shards: linear scores whose labels are divided among the processes of a group.

Every process has the same rows and its own labels. It sums its terms of either side into a ``LogSum``, two floats; one gather
collects those of all processes, 16 bytes a row and process in float32. The sum of the gathered parts equals the sum of one
process with all labels, so a loss adds its zero class only once. The gradient of the weights is local; that of ``hidden`` is
summed over the group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from manyhot._checks import check_at_least
from manyhot.engines.linear.problem import LinearProblem
from manyhot.engines.terms import INF, LogSum
from manyhot.scores.linear_sides import local_gradient, local_sums, recall, remember

# The older name is deprecated from torch 2.13 on; a build without torch.distributed has neither.
all_gather: Any = getattr(dist, "all_gather_single", None) or getattr(dist, "all_gather_into_tensor", None)

Group = Any  # torch.distributed.ProcessGroup, which a build without distributed does not have


class LabelShard(NamedTuple):
    """This process of ``group`` has the labels ``start`` to ``stop`` of ``num_labels``."""

    group: Group
    start: int
    stop: int
    num_labels: int


def find_shard(group: Group, size: int, offset: int | None, num_labels: int | None, device: torch.device) -> LabelShard:
    """The shard with the ``size`` labels of this process. Communicates unless ``offset`` and ``num_labels`` are both given.

    Raises:
        ValueError: if the shards do not cover every label from 0 on exactly once.
    """
    if offset is not None and num_labels is not None:
        check_at_least("LinearScores", "offset", offset, 0)
        if offset + size > num_labels:
            raise ValueError(
                f"LinearScores: `weight` must be a shard of {num_labels} labels; got labels {offset} to {offset + size}."
            )
        return LabelShard(group, offset, offset + size, num_labels)
    own = torch.tensor([-1 if offset is None else offset, size], device=device)
    found = gather_equal(own, group).tolist()
    if any(start < 0 for start, _ in found):
        ends = torch.tensor([length for _, length in found]).cumsum(0).tolist()
        found = [(end - length, length) for end, (_, length) in zip(ends, found, strict=True)]
    covered = 0
    for start, length in sorted(found):
        if start != covered:
            raise ValueError(
                f"LinearScores: shards must cover every label exactly once; label {min(start, covered)} is not. See `offset`."
            )
        covered += length
    if num_labels is not None and num_labels != covered:
        raise ValueError(f"LinearScores: the shards must have `num_labels`, {num_labels}, labels together; got {covered}.")
    start, length = found[dist.get_rank(group)]
    return LabelShard(group, start, start + length, covered)


Place = tuple[Group, int | None, int | None]


def local_parts(
    weight: Tensor, bias: Tensor | None, given: Place
) -> tuple[Tensor, Tensor | None, Group, int | None, int | None]:
    """``(weight, bias, group, offset, num_labels)``: the local parts of a DTensor that is sharded by labels.

    Mesh axes that replicate the weight are data parallel: its gradient is averaged over them. Any other tensor is returned
    unchanged, with the place that was ``given``.
    """
    from torch.distributed.tensor import DTensor

    if not isinstance(weight, DTensor):
        return weight, bias, *given
    if given != (None, None, None):
        raise ValueError(
            "LinearScores: a DTensor `weight` has its own group and offset; leave out `group`, `offset` and `num_labels`."
        )
    mesh = weight.device_mesh
    sharded = [axis for axis, placement in enumerate(weight.placements) if placement.is_shard(0)]
    others = [axis for axis, placement in enumerate(weight.placements) if not placement.is_shard(0)]
    if len(sharded) != 1 or any(not weight.placements[axis].is_replicate() for axis in others):
        raise ValueError(
            "LinearScores: a DTensor `weight` must be sharded by labels, Shard(0), on one axis of its mesh and replicated on"
            f" the others; got {tuple(weight.placements)}."
        )
    axis = sharded[0]
    start, _ = shard_bounds(weight.shape[0], mesh.size(axis), mesh.get_local_rank(axis))
    own = [part.to_local() if isinstance(part, DTensor) else part for part in (weight, bias)]
    for other in (each for each in others if mesh.size(each) > 1):
        own = [None if part is None else averaged_over(part, mesh.get_group(other)) for part in own]
    assert own[0] is not None
    return own[0], own[1], mesh.get_group(axis), start, weight.shape[0]


def shard_bounds(num_labels: int, count: int, place: int) -> tuple[int, int]:
    """The labels of shard ``place`` of ``count``, divided like a DTensor: equal shards, then a smaller one, then empty ones.

    Example:
        >>> [shard_bounds(5, 4, place) for place in range(4)]
        [(0, 2), (2, 4), (4, 5), (5, 5)]
    """
    size = -(-num_labels // count)
    return min(place * size, num_labels), min((place + 1) * size, num_labels)


class ShardedSides(torch.autograd.Function):
    """``(hidden, weight, bias, group, engine, chunk, kept, update, strict, kind of terms, *fields) -> (pos, neg)``."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, group: Group, *rest: Any
    ) -> tuple[Tensor, Tensor]:
        """Both sides over the labels of all processes, each ``[R]``."""
        engine, chunk, kept, update, strict, kind, *fields = rest
        problem = LinearProblem(hidden, weight, bias, kind(*fields), chunk, kept if any(ctx.needs_input_grad[:3]) else 0)
        _, _, memory, engine = local_sums(engine, problem, strict)
        own = engine.log_sums(memory)
        parts = gather_equal(torch.stack([*own[0], *own[1]]), group)
        pos, neg = merged(parts[:, 0], parts[:, 1]), merged(parts[:, 2], parts[:, 3])
        remember(ctx, problem, (*memory, share_of(own[0], pos), share_of(own[1], neg)), fields)
        ctx.group, ctx.engine, ctx.update, ctx.strict, ctx.kind = group, engine, update, strict, kind
        return pos.value, neg.value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_pos: Tensor, grad_neg: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden, weight and bias."""
        problem, (*memory, pos_share, neg_share) = recall(ctx)
        assert pos_share is not None
        assert neg_share is not None
        pulls = (grad_pos * pos_share, grad_neg * neg_share)
        needs = ctx.needs_input_grad[:3]
        made = local_gradient(ctx.engine, problem, tuple(memory), pulls, needs, ctx.update, ctx.strict, ctx.group)
        return *made, *((None,) * (7 + len(ctx.constants)))


def merged(shifts: Tensor, rests: Tensor) -> LogSum:
    """The total of the sums of all processes, ``[processes, R]``; a shard without terms adds nothing."""
    top = torch.where(rests == -INF, -INF, shifts).amax(dim=0)
    shift = torch.where(top.isinf(), 0.0, top)
    return LogSum(shift, torch.logsumexp(shifts - shift + rests, dim=0))


def share_of(own: LogSum, whole: LogSum) -> Tensor:
    """This process's share of the whole sum: the derivative of the whole log-sum by its own."""
    same = (own.rest == INF) & (whole.rest == INF)
    relative = torch.where(same, 0.0, own.shift - whole.shift + (own.rest - whole.rest))
    return torch.where(own.rest == -INF, 0.0, torch.exp(relative))


def gather_equal(own: Tensor, group: Group) -> Tensor:
    """``[processes, ...]``: the tensors of all processes, which have the same shape."""
    if own.dtype == torch.bool:
        return gather_equal(own.byte(), group).bool()
    if own.is_cuda and dist.get_backend(group) == "gloo":
        # Gloo gathers only CPU tensors; with others torch 2.11 crashes with a segmentation fault.
        return gather_equal(own.cpu(), group).to(own.device)
    own = own.contiguous()
    parts = own.new_empty((dist.get_world_size(group), *own.shape))
    all_gather(parts.view(-1, *own.shape[1:]) if own.ndim else parts, own, group=group)
    return parts


def any_of(own: Tensor, group: Group) -> Tensor:
    """bool ``[...]``: True where ``own`` is True on any process."""
    found = own.to(torch.uint8)
    dist.all_reduce(found, dist.ReduceOp.MAX, group=group)
    return found.bool()


def gather_ragged(own: Tensor, group: Group) -> list[Tensor]:
    """The tensors of the processes, whose first axis may differ."""
    sizes = gather_equal(torch.tensor([len(own)], device=own.device), group).reshape(-1).tolist()
    padded = own.new_zeros((max(sizes), *own.shape[1:]))
    padded[: len(own)] = own
    return [part[:size] for part, size in zip(gather_equal(padded, group), sizes, strict=True)]


def best_of_all(shard: LabelShard, values: Tensor, indices: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Scores and label numbers ``[R, k]`` of the best labels over all processes, from the best of each, ``[R, at most k]``."""
    missing = (0, k - values.shape[1])
    values = torch.nn.functional.pad(values, missing, value=-INF)
    indices = torch.nn.functional.pad(indices, missing, value=shard.num_labels)
    values, indices = (gather_equal(part, shard.group).movedim(0, 1).flatten(1) for part in (values, indices))
    # Ties go to the lower label number, and a label comes before an empty place.
    indices, order = indices.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values[:, :k], indices.gather(1, order)[:, :k]


class DenseShards(torch.autograd.Function):
    """``(scores of this shard [R, own], shard) -> [R, L]``, the scores of all labels."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, shard: LabelShard) -> Tensor:
        """All scores, on every process."""
        ctx.shard = shard
        starts = gather_equal(torch.tensor([shard.start], device=own.device), shard.group).reshape(-1).tolist()
        parts = gather_ragged(own.mT, shard.group)
        ordered = [part for _, part in sorted(zip(starts, parts, strict=True), key=lambda pair: (pair[0], len(pair[1])))]
        return torch.cat(ordered).mT

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Every process has the gradient of all scores, and takes the columns of its own labels."""
        return grad[:, ctx.shard.start : ctx.shard.stop], None


class _SummedGradient(torch.autograd.Function):
    """The identity; the gradient is summed or averaged over the group."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group, mean: bool) -> Tensor:
        ctx.group, ctx.mean = group, mean
        return x.view_as(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        total = grad.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total / dist.get_world_size(ctx.group) if ctx.mean else total, None, None


def summed_over(x: Tensor, group: Group) -> Tensor:
    """``x``, whose gradient is the sum over the processes of ``group``."""
    out: Tensor = _SummedGradient.apply(x, group, False)  # type: ignore[no-untyped-call]
    return out


def averaged_over(x: Tensor, group: Group) -> Tensor:
    """``x``, whose gradient is the mean over the processes of ``group``."""
    out: Tensor = _SummedGradient.apply(x, group, True)  # type: ignore[no-untyped-call]
    return out
