"""The best labels of linear scores, found chunk by chunk."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.scores.shards import LabelShard, best_of_all
from manyhot.scores.top import TopScores


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
    """The ``k`` best labels of each row of ``hidden [R, D]``, at most as many as there are; ``size`` labels at a time."""
    num_labels = weight.shape[0] if shard is None else shard.num_labels
    own = where if where is None or shard is None else where[shard.start : shard.stop]
    values = hidden.new_empty((hidden.shape[0], 0), dtype=torch.float32)
    indices = torch.empty_like(values, dtype=torch.int64)
    for start in range(0, weight.shape[0], size):
        part = slice(start, start + size)
        scores = torch.nn.functional.linear(hidden, weight[part].to(hidden.dtype)).float()
        scores = scores if bias is None else scores + bias[part].float()
        scores = scores if own is None else scores.masked_fill(~own[part], -torch.inf)
        best = scores.topk(min(k, scores.shape[1]), dim=1)
        values, indices = torch.cat([values, best.values], dim=1), torch.cat([indices, best.indices + start], dim=1)
        values, order = values.topk(min(k, values.shape[1]), dim=1)
        indices = indices.gather(1, order)
    if shard is not None:
        values, indices = best_of_all(shard, values, indices + shard.start, k)
    if where is not None:
        indices = torch.where(where[indices], indices, -1)
    return TopScores(values, indices, num_labels)
