"""Label trees by the native engine: the problem of a block, halving a set of labels, and beam search.

The functions compute the same as those of ``manyhot.engines.tree.plain``, where the formulas are. ctypes releases the GIL while
one runs, so that Python threads solve blocks and search rows in parallel.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from manyhot.engines.native import library
from manyhot.engines.native.engine import available as available
from manyhot.engines.tree.problem import Array, BlockProblem, BlockWeights, Level, Rows, SearchSettings, Tree, TreeMemoryError

_FORMS = {"squared_hinge": 0, "zlpr": 1}
_INTEGER, _POINTER, _NUMBER = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double


def _fields(integers: str, pointers: str, numbers: str, outputs: str = "", results: str = "") -> list[tuple[str, Any]]:
    kinds = ((integers, _INTEGER), (pointers, _POINTER), (numbers, _NUMBER), (outputs, _INTEGER), (results, _POINTER))
    return [(name, kind) for names, kind in kinds for name in names.split()]


class _Block(ctypes.Structure):
    """``tree_block`` in tree_types.h."""

    _fields_ = _fields(
        "num_rows num_children num_columns epochs variant form in_place",
        "offsets columns values rows weights positive_offsets positives orders duals",
        "pos_cost neg_cost least",
        "num_features num_weights",
        "features ends children kept bias",
    )


class _Level(ctypes.Structure):
    """``tree_level``."""

    _fields_ = _fields("", "child_start block_start feature_start features ends children weights bias", "")


class _Search(ctypes.Structure):
    """``tree_search``."""

    _fields_ = _fields(
        "num_rows num_columns num_trees num_labels block beam k variant",
        "offsets columns values num_levels levels labels",
        "slope power",
        "",
        "scores indices",
    )


@functools.cache
def _library() -> Any:
    found = library.load_for("label trees")
    found.manyhot_tree_solve.argtypes = found.manyhot_tree_free.argtypes = [ctypes.POINTER(_Block)]
    found.manyhot_tree_halve.argtypes = [_INTEGER, _POINTER, _INTEGER, _INTEGER, _INTEGER, *[_POINTER] * 4]
    found.manyhot_tree_search.argtypes = [ctypes.POINTER(_Search), _INTEGER]
    found.manyhot_tree_size.restype = _INTEGER
    sizes = ctypes.sizeof(_Block) + 1000 * ctypes.sizeof(_Level) + 1_000_000 * ctypes.sizeof(_Search)
    if found.manyhot_tree_size() != sizes:
        raise RuntimeError("label trees: the native engine is of another version; build it with `python hatch_build.py`.")
    return found


def solve(problem: BlockProblem, *, variant: str | None = None) -> BlockWeights:
    """The weights of a block."""
    names = library.variants()
    rows = problem.rows
    call = _Block(
        num_rows=len(problem.picked),
        num_children=problem.num_children,
        num_columns=rows.num_columns,
        epochs=len(problem.orders),
        variant=names.index(variant) if variant else len(names) - 1,
        form=_FORMS[problem.form],
        pos_cost=problem.pos_cost,
        neg_cost=problem.neg_cost,
        least=problem.least,
        **_matrix(rows),
        rows=_address(problem.picked, np.int64),
        weights=None if problem.weights is None else _address(problem.weights, np.float32),
        positive_offsets=_address(problem.positive_offsets, np.int64),
        positives=_address(problem.positives, np.int32),
        orders=_address(problem.orders, np.int32),
        in_place=problem.duals is not None,
        duals=None if problem.duals is None else _address(problem.duals, np.float32),
    )
    try:
        if _library().manyhot_tree_solve(ctypes.byref(call)):
            raise TreeMemoryError(problem.memory())
        return BlockWeights(
            features=_copied(call.features, call.num_features, np.int32),
            ends=_copied(call.ends, call.num_features, np.int64),
            children=_copied(call.children, call.num_weights, np.uint8),
            weights=_copied(call.kept, call.num_weights, np.float32),
            bias=_copied(call.bias, problem.num_children, np.float32),
        )
    finally:
        _library().manyhot_tree_free(ctypes.byref(call))


def halve(vectors: Rows, labels: Array, first: int, second: int, *, most: int) -> Array:
    """Split ``labels`` into two halves of similar labels: ``labels`` reordered, one half first."""
    ordered, room = labels.astype(np.int32), np.zeros(vectors.num_columns, dtype=np.float32)
    parts = [_address(part, kind) for part, kind in zip(vectors.parts, (np.int64, np.int32, np.float32), strict=True)]
    call = _library().manyhot_tree_halve
    if call(len(ordered), ordered.ctypes.data, first, second, most, *parts, room.ctypes.data):
        raise TreeMemoryError(len(ordered) * 16)
    return ordered


def search(trees: Sequence[Tree], rows: Rows, settings: SearchSettings) -> tuple[Array, Array]:
    """``(scores [R, k], labels [R, k])``, best first."""
    num_rows, flat = rows.num_rows, [level for tree in trees for level in tree.levels]
    scores = np.empty((num_rows, settings.k), dtype=np.float32)
    indices = np.empty((num_rows, settings.k), dtype=np.int64)
    levels = (_Level * len(flat))(*map(_level, flat))
    depths = np.array([len(tree.levels) for tree in trees], dtype=np.int64)
    labels = np.stack([tree.labels for tree in trees]).astype(np.int32)
    call = _Search(
        num_rows=num_rows,
        num_columns=_columns_of(rows),
        num_trees=len(trees),
        num_labels=trees[0].num_labels,
        block=settings.block,
        beam=settings.beam,
        k=settings.k,
        variant=len(library.variants()) - 1,
        **_matrix(rows),
        num_levels=depths.ctypes.data,
        levels=ctypes.cast(levels, _POINTER),
        labels=labels.ctypes.data,
        slope=settings.slope,
        power=settings.power,
        scores=scores.ctypes.data,
        indices=indices.ctypes.data,
    )
    widest = max(int(np.diff(level.child_start).max()) for level in flat)
    if _library().manyhot_tree_search(ctypes.byref(call), widest):
        raise TreeMemoryError(trees[0].num_labels * 4)
    return scores, indices


def _level(level: Level) -> _Level:
    return _Level(
        child_start=_address(level.child_start, np.int64),
        block_start=_address(level.block_start, np.int64),
        feature_start=_address(level.feature_start, np.int64),
        features=_address(level.features, np.int32),
        ends=_address(level.ends, np.int64),
        children=_address(level.children, np.uint8),
        weights=_address(level.weights, np.float32),
        bias=_address(level.bias, np.float32),
    )


def _columns_of(rows: Rows) -> int:
    """One more than the largest column of some rows."""
    own = rows.columns[rows.offsets[0] : rows.offsets[-1]]
    return int(own.max()) + 1 if len(own) else 0


def _matrix(rows: Rows) -> dict[str, int]:
    return {
        name: _address(part, kind)
        for name, part, kind in zip(("offsets", "columns", "values"), rows.parts, (np.int64, np.int32, np.float32), strict=True)
    }


def _address(array: Array, kind: Any) -> int:
    """The address of an array, which the caller keeps alive."""
    if array.dtype != kind or not array.flags.c_contiguous:
        raise TypeError(f"label trees: an array must be contiguous {np.dtype(kind)}; got {array.dtype}.")
    return int(array.ctypes.data)


def _copied(address: int, size: int, kind: Any) -> Array:
    found = np.empty(size, dtype=kind)
    ctypes.memmove(found.ctypes.data, address, found.nbytes)
    return found
