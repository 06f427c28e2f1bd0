"""Sparse torch tensors whose indices are known to be valid."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def sparse_tensor(indices: Tensor, values: Tensor, shape: Sequence[int], *, is_coalesced: bool) -> Tensor:
    """The sparse tensor with ``values [N, ...]`` at ``indices [D, N]``, without checks.

    torch 2.11 and 2.12 warn even with ``check_invariants=False``; only this context silences them.
    """
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        return torch.sparse_coo_tensor(indices, values, tuple(shape), is_coalesced=is_coalesced, check_invariants=False)
