"""Functions that run outside of a compiled graph.

Import this module only when it is needed: the decorator imports the compiler, which takes seconds.
"""

from __future__ import annotations

from typing import Any

import torch

from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.scores.linear_decoupled import LinearDecoupled
from manyhot.scores.linear_sides import LinearSides
from manyhot.scores.shards import ShardedSides


@torch.compiler.disable  # type: ignore[untyped-decorator]
def sides_outside_graph(*arguments: Any) -> Any:
    """``LinearSides`` with an update, which changes weights in backward; a graph cannot express that."""
    return LinearSides.apply(*arguments)  # type: ignore[no-untyped-call]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def sharded_sides(*arguments: Any) -> Any:
    """``ShardedSides``, whose backward calls a collective; a graph would have to contain it."""
    return ShardedSides.apply(*arguments)  # type: ignore[no-untyped-call]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def sharded_decoupled(*arguments: Any) -> Any:
    """``LinearDecoupled`` of label shards, for the same reason."""
    return LinearDecoupled.apply(*arguments)  # type: ignore[no-untyped-call]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def cut_terms(terms: DenseTerms | SparseTerms, start: int, stop: int) -> DenseTerms | SparseTerms:
    """The terms of a shard. The number of their listed entries is known only at run time."""
    return terms.columns(start, stop)
