"""Fits label trees: independent blocks are solved on all threads, with checkpoints between them."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from manyhot._files import storage_error
from manyhot.data.mapped.rows import MappedMatrix
from manyhot.engines.native import tree as native
from manyhot.engines.tree.problem import BLOCK, Array, BlockProblem, BlockWeights, Level, Tree
from manyhot.training.rows.bodies.tree import TreeBody, sizes_of
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.row_batches import is_sparse
from manyhot.training.rows.trees.growing import Plan, label_vectors, plan_tree, unit_matrix
from manyhot.training.rows.trees.reached import ReachedRows, reached_rows
from manyhot.training.run.checkpoint import CheckpointError
from manyhot.training.run.session import SECONDS_BETWEEN_EVENTS, RunSession

# Chosen on held-out training rows of yso_titles. A missing label is often just not annotated, so negatives weigh less than
# positives. Weights below LEAST_WEIGHT are dropped, which does not change the ranking.
POS_COST, NEG_COST, LEAST_WEIGHT = 1.0, 0.2, 0.05
# The same for the ZLPR of a row.
ROW_COST = 8.0
# A level that takes longer than this many seconds is saved at its end.
WORTH_SAVING = 2.0
# If rows are in files and the solver of a block needs more bytes than this, it keeps its numbers in a file too.
IN_MEMORY = 1 << 30
# Rows are shuffled within parts of this size; the parts follow each other.
PART_ROWS = 1 << 20
# Most rows that are held out for tuning.
MOST_HELD_OUT = 5_000


class _Level(NamedTuple):
    """The positive entries of one level: ``rows`` and ``children`` by child, then row; ``starts [children + 1]``.

    ``reached`` are the rows that the beam search leads to each node; None at the root, which all rows reach.
    """

    child_start: Array
    rows: Array
    children: Array
    starts: Array
    reached: ReachedRows | None = None


class TreeFit:
    """Fits trees to rows.

    Args:
        session: receives progress events; its folder holds the checkpoints.
        rows: the rows to fit to, with sparse inputs.
        trees: the number of trees.
        beam: the beam width of the body, and of the search for the rows that train a node.
        passes: passes over the rows of each block.
        form: the loss at the nodes, ``squared_hinge`` or ``zlpr``.
        seed: random seed of the shapes of the trees and of the order of the rows.
        threads: blocks that are solved at the same time.
        neg_cost: the cost of a negative entry (squared hinge); a positive costs ``POS_COST``.
    """

    def __init__(
        self,
        session: RunSession,
        rows: TrainingRows,
        *,
        trees: int,
        beam: int,
        passes: int,
        form: str,
        seed: int,
        threads: int,
        neg_cost: float = NEG_COST,
    ) -> None:
        self.neg_cost = neg_cost
        self.session, self.rows, self.num_trees, self.beam = session, rows, trees, beam
        self.passes, self.form, self.seed, self.threads = passes, form, seed, threads
        self.matrix, self.places = unit_matrix(rows.inputs)
        weights = rows.sample_weight
        self.weights = None if weights is None else weights.float().numpy()

    def run(self) -> TreeBody:
        """The fitted body."""
        absent = int((torch.bincount(self.rows.labels.indices, minlength=self.rows.labels.num_labels) == 0).sum())
        if absent:
            self.session.note(f"{absent:,} labels have no training row: a tree never predicts them")
        vectors = label_vectors(self.rows.inputs, self.rows.labels)
        trees = []
        for number in range(self.num_trees):
            plan = plan_tree(vectors, seed=self.seed * 1000 + number)
            levels: list[Level] = []
            for depth in range(len(plan.child_starts)):
                levels.append(self._level(number, depth, plan, levels))
            trees.append(Tree(tuple(levels), plan.labels))
        return TreeBody.of(trees, beam=self.beam)

    def _level(self, tree: int, depth: int, plan: Plan, above: Sequence[Level]) -> Level:
        level = self._entries(depth, plan)
        problems = list(_blocks(level.child_start))
        name, title = f"tree-{tree}-level-{depth}", self._title(tree, depth, plan)
        done, part = self._resumed(name)
        if above and len(done) < len(problems):
            level = level._replace(reached=self._reached(above, title))
        unsaved, begun, before = list[BlockWeights](), time.monotonic(), len(done)
        with ThreadPoolExecutor(self.threads) as pool:
            # Blocks are submitted in small groups, so that an error or a kill leaves no long queue.
            step = 4 * self.threads
            for first in range(len(done), len(problems), step):
                wanted = problems[first : first + step]
                solved = list(
                    pool.map(lambda own: solve_block(self._problem(level, tree, depth, *own), self.rows.inputs), wanted)
                )
                done, unsaved = done + solved, unsaved + solved
                last = len(done) == len(problems)
                if self._due() or (last and time.monotonic() - begun > WORTH_SAVING):
                    part, unsaved = self._save(name, part, unsaved), []
                if last or time.monotonic() - self.session.told >= SECONDS_BETWEEN_EVENTS:
                    self._tell(title, len(done), len(problems), before, begun)
        return Level.join(level.child_start, done)

    def _entries(self, depth: int, plan: Plan) -> _Level:
        """Which rows are positive for which children of a level."""
        labels = self.rows.labels
        place = np.empty(len(plan.labels), dtype=np.int64)
        place[plan.labels] = np.arange(len(plan.labels))
        starts = plan.place_starts(depth)
        child = np.searchsorted(starts, place[labels.indices.numpy()], side="right") - 1
        keys = np.unique(child * len(labels) + labels.rows.numpy())
        children, rows = np.divmod(keys, max(len(labels), 1))
        return _Level(plan.child_starts[depth], rows, children, np.searchsorted(children, np.arange(len(starts))))

    def _problem(self, level: _Level, tree: int, depth: int, node: int, first: int, last: int) -> BlockProblem:
        """The rows below a node and those that reach it, and which of the children ``first`` to ``last`` each has."""
        low, high = level.starts[level.child_start[node]], level.starts[level.child_start[node + 1]]
        reached = None if level.reached is None else level.reached.of(node)
        picked = np.arange(len(self.rows)) if reached is None else np.union1d(level.rows[low:high], reached)
        own = slice(level.starts[first], level.starts[last])
        place = np.searchsorted(picked, level.rows[own])
        order = np.argsort(place, kind="stable")
        counts = np.bincount(place, minlength=len(picked))
        draw = np.random.default_rng([self.seed, tree, depth, first])
        orders = np.stack([visits(draw, len(picked)) for _ in range(self.passes)])
        return BlockProblem(
            self.matrix,
            picked if self.places is None else self.places[picked],
            np.concatenate([[0], counts.cumsum()]).astype(np.int64),
            (level.children[own] - first)[order].astype(np.int32),
            last - first,
            orders,
            form=self.form,
            pos_cost=ROW_COST if self.form == "zlpr" else POS_COST,
            neg_cost=self.neg_cost,
            least=LEAST_WEIGHT,
            weights=None if self.weights is None else self.weights[picked],
        )

    def _reached(self, above: Sequence[Level], title: str) -> ReachedRows:
        return reached_rows(
            above,
            self.rows.inputs,
            beam=self.beam,
            threads=self.threads,
            tell=lambda line: self.session.note(f"{title}: {line}"),
        )

    def _title(self, tree: int, depth: int, plan: Plan) -> str:
        return f"tree {tree + 1} of {self.num_trees}, level {depth + 1} of {len(plan.child_starts)}"

    def _tell(self, title: str, done: int, total: int, before: int, begun: float) -> None:
        left = (time.monotonic() - begun) * (total - done) / max(done - before, 1)
        rest = f", {left:.0f} s left" if done < total else ""
        self.session.note(f"{title}: {done:,} of {total:,} blocks{rest}")

    def _due(self) -> bool:
        return time.monotonic() - self.session.saved >= self.session.checkpoint_seconds

    def _save(self, name: str, part: int, blocks: list[BlockWeights]) -> int:
        """Write blocks as the next part of a level, if the run has a folder; returns the number of parts."""
        if self.session.folder is None or not blocks:
            return part
        tensors: dict[str, Any] = {}
        for field in BlockWeights._fields:
            arrays = [getattr(block, field) for block in blocks]
            tensors[field] = torch.from_numpy(np.concatenate(arrays))
            tensors[f"{field}.sizes"] = torch.tensor([len(each) for each in arrays])
        self.session.folder.checkpoints.save(f"{name}-part-{part}", tensors, {"part": part, **self._about()})
        self.session.saved = time.monotonic()
        return part + 1

    def _about(self) -> dict[str, int]:
        """What the checkpoints of this fit say about it."""
        return {"passes": self.passes, "beam": self.beam}

    def _resumed(self, name: str) -> tuple[list[BlockWeights], int]:
        """The blocks of a level that are in checkpoints, and the number of parts."""
        done: list[BlockWeights] = []
        folder, part = self.session.folder, 0
        while folder is not None and (found := folder.checkpoints.load(f"{name}-part-{part}")) is not None:
            tensors, about = found
            known = {key for field in BlockWeights._fields for key in (field, f"{field}.sizes")}
            if about != {"part": part, **self._about()} or set(tensors) != known:
                raise CheckpointError(f"train: the checkpoint {name!r} must be one of this run. Start a new run elsewhere.")
            columns = {name: torch.split(tensors[name], tensors[f"{name}.sizes"].tolist()) for name in BlockWeights._fields}
            done += [BlockWeights(*(column.numpy() for column in block)) for block in zip(*columns.values(), strict=True)]
            part += 1
        return done, part


def visits(draw: np.random.Generator, count: int) -> Array:
    """The order of one pass over the rows: random within parts of ``PART_ROWS`` rows, which follow each other.

    Rows larger than memory are then read from the disk part by part.
    """
    parts = [first + draw.permutation(min(PART_ROWS, count - first)) for first in range(0, count, PART_ROWS)]
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts]).astype(np.int32)


def solve_block(problem: BlockProblem, inputs: Any) -> BlockWeights:
    """Solve a block. If the rows, ``inputs``, are in files, a large state of the solver is in a file too."""
    if not isinstance(inputs, MappedMatrix) or problem.memory() <= IN_MEMORY:
        return native.solve(problem)
    with _file_room(inputs.folder, problem.dual_size()) as room:
        return native.solve(replace(problem, duals=room))


@contextlib.contextmanager
def _file_room(folder: Path, size: int) -> Iterator[Array]:
    """A writable array of ``size`` zeros in a temporary file, which is removed at the end of the block."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            # Reserve the space now: a write to a memory map cannot report a full disk.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, 4 * size)
            yield np.asarray(np.memmap(file, dtype=np.float32, mode="w+", shape=(size,)))
    except OSError as error:
        raise storage_error(folder, error) from error


def check_tree(rows: TrainingRows, device: torch.device) -> None:
    """Raise an error for labels and settings that trees do not support."""
    ready, why = native.available()
    if not ready:
        raise ValueError(f"train: `model` must not be tree here, because it needs the native engine: {why} Choose bag.")
    if not is_sparse(rows.inputs):
        raise ValueError("train: `model` must not be tree for dense features; it reads texts and sparse features. Choose mlp.")
    if device.type != "cpu":
        raise ValueError(f"train: `device` must be cpu for the model tree; got {device.type}. Choose bag for a GPU.")
    if rows.unknown is not None and len(rows.unknown.indices):
        raise ValueError("train: `model` tree must have all labels known; the examples have unknown ones. Choose bag.")
    if rows.targets.values is not None:
        raise ValueError("train: `model` tree must have hard labels; the examples or the teacher give soft ones. Choose bag.")


def _blocks(child_start: Array) -> Iterator[tuple[int, int, int]]:
    """``(node, first child, last child)`` of each block."""
    for node, (start, stop) in enumerate(zip(child_start[:-1].tolist(), child_start[1:].tolist(), strict=True)):
        for first in range(start, stop, BLOCK):
            yield node, first, min(first + BLOCK, stop)


def shape_of(body: TreeBody) -> dict[str, Any]:
    """The entries of the description from which the body is built again."""
    return {"trees": sizes_of(body.trees()), "beam": body.beam, "power": body.power, "slope": body.slope}
