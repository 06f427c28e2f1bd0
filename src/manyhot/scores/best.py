"""The best labels of each row of dense scores, with one read of the scores (CUDA).

Neighbouring labels form groups. The k best labels of a row lie in the k groups with the largest maxima, so only those groups
are sorted. Ties go to the lower label number in both stages.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.triton.engine import SCORES, available
from manyhot.engines.triton.launch.gate import GATE, LaunchError, interpreted
from manyhot.engines.triton.linear.best import group_maxima, leading_labels

# Neighbouring labels in one group.
GROUP = 64
# Rows shorter than FEW * k are passed to topk directly; for longer rows topk takes tens of launches, so they are grouped.
FEW = 8 * GROUP
_LOWEST = -(1 << 63)


def best_in_groups(
    scores: Tensor,
    bias: Tensor | None,
    where: Tensor | None,
    k: int,
    *,
    nan_first: bool = True,
    flags: Tensor | None = None,
) -> tuple[Tensor, Tensor] | None:
    """``(values, places)``, float32 and int64 ``[R, k]``, best first; None if the rows are short enough to be sorted whole, or
    if no kernel supports the call.

    Args:
        scores: ``[R, C]``.
        bias: ``[C]``, added to every row.
        where: bool ``[C]`` or ``[R, C]``; a label that is left out has the value ``-inf``.
        k: number of labels.
        nan_first: NaN counts as the best value; otherwise as ``-inf``.
        flags: bool ``[R, C]``, contiguous, which is set to False while the scores are read.
    """
    fits = scores.dtype in SCORES and scores.stride(-1) == 1 and scores.is_cuda != interpreted()
    if not fits or scores.shape[1] < FEW * k or not available(scores.get_device() if scores.is_cuda else None)[0]:
        return None
    where = where if where is None or where.stride(-1) == 1 else where.contiguous()
    try:
        found = leading_labels(scores, bias, where, GROUP, k, nan_first=nan_first, flags=flags)
        if found is not None:
            return found
        keys = group_maxima(scores, bias, where, GROUP, nan_first=nan_first, flags=flags)[0]
    except LaunchError as failure:
        GATE.close(failure)
        return None
    places = _members(leading(keys, k))
    beyond, places = places >= scores.shape[1], places.clamp(max=scores.shape[1] - 1)
    values = scores.gather(1, places).float()
    values = values if bias is None else values + bias[places]
    left_out = values.isnan() if not nan_first else None
    if where is not None:
        barred = ~(where[places] if where.ndim == 1 else where.gather(1, places))
        left_out = barred if left_out is None else barred | left_out
    values = values if left_out is None else values.masked_fill(left_out, -torch.inf)
    # The last group may extend beyond the last label; such places sort after all labels.
    order = ordered(values, places).masked_fill(beyond, _LOWEST).topk(k, dim=1).indices
    return values.gather(1, order), places.gather(1, order)


def ordered(values: Tensor, places: Tensor) -> Tensor:
    """int64 keys that sort like the float32 values: NaN first, ties by the lower place."""
    bits = torch.where(values == 0, 0.0, values).view(torch.int32)
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).masked_fill_(values.isnan(), 0x7FFFFFFF)
    return (keys.long() << 32) | (0xFFFFFFFF - places)


def leading(keys: Tensor, k: int) -> Tensor:
    """``[R, k]``: the places of the k largest ``keys [R, G]``, in any order; long rows take two stages."""
    width = keys.shape[1]
    if width < FEW * k:
        return keys.topk(k, dim=1, sorted=False).indices
    padded = torch.nn.functional.pad(keys, (0, -width % GROUP), value=_LOWEST)
    places = _members(padded.reshape(len(padded), -1, GROUP).amax(dim=2).topk(k, dim=1, sorted=False).indices)
    return places.gather(1, padded.gather(1, places).topk(k, dim=1, sorted=False).indices)


def _members(groups: Tensor) -> Tensor:
    """``[R, k * GROUP]``: the places of the members of ``groups [R, k]``."""
    return (groups.unsqueeze(2) * GROUP + torch.arange(GROUP, device=groups.device)).flatten(1)
