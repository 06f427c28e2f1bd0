"""The best labels of linear scores, found chunk by chunk."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.scores.best import best_in_groups
from manyhot.scores.shards import LabelShard, best_of_all
from manyhot.scores.top import TopScores

# Scores per chunk on CUDA; chunks are large, because each takes several launches.
CUDA_SCORES = 1 << 28
# The lists of this many chunks are merged at once.
CHUNKS_JOINED = 16


def chunk_for(hidden: Tensor, size: int) -> int:
    """Labels per chunk, at least ``size``, the chunk of a loss."""
    return max(size, CUDA_SCORES // max(hidden.shape[0], 1)) if hidden.is_cuda else size


def best_labels(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    k: int,
    size: int,
    where: Tensor | None,
    shard: LabelShard | None,
) -> TopScores:
    """The ``k`` best labels of each row of ``hidden [R, D]``, or all if there are fewer; ``size`` labels at a time."""
    num_labels = weight.shape[0] if shard is None else shard.num_labels
    own = where if where is None or shard is None else where[shard.start : shard.stop]
    values = [hidden.new_empty((hidden.shape[0], 0), dtype=torch.float32)]
    indices = [torch.empty_like(values[0], dtype=torch.int64)]
    for start in range(0, weight.shape[0], size):
        part = slice(start, start + size)
        scores = torch.nn.functional.linear(hidden, weight[part].to(hidden.dtype))
        found, labels = best_of_chunk(
            scores, None if bias is None else bias[part].float(), None if own is None else own[part], k
        )
        values.append(found)
        indices.append(labels + start)
        if len(values) > CHUNKS_JOINED:
            values, indices = _joined(values, indices, k)
    (best,), (labels,) = _joined(values, indices, k)
    if shard is not None:
        best, labels = best_of_all(shard, best, labels + shard.start, k)
    if where is not None:
        labels = torch.where(where[labels], labels, -1)
    return TopScores(best, labels, num_labels)


def _joined(values: list[Tensor], indices: list[Tensor], k: int) -> tuple[list[Tensor], list[Tensor]]:
    """The best of the lists of several chunks."""
    best, order = torch.cat(values, dim=1).topk(min(k, sum(part.shape[1] for part in values)), dim=1)
    return [best], [torch.cat(indices, dim=1).gather(1, order)]


def best_of_chunk(scores: Tensor, bias: Tensor | None, where: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
    """``(values, places)``, each ``[R, k]`` or narrower, of ``scores [R, C]`` plus ``bias [C]``, best first."""
    found = best_in_groups(scores, bias, where, k)
    if found is not None:
        return found
    scores = scores.float()
    scores = scores if bias is None else scores + bias
    scores = scores if where is None else scores.masked_fill(~where, -torch.inf)
    values, places = scores.topk(min(k, scores.shape[1]), dim=1)
    return values, places
