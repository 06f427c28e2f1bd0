"""Labels gathered row by row, by name or by number, hard or soft."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from manyhot._suggest import nearest
from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.tables.reorder import MAX_UNKNOWN, index_lists
from manyhot.labels.sparse import SparseLabels

Array = np.ndarray[Any, Any]


class GatheredLabels(NamedTuple):
    """Labels, unknown entries, label names, and how labels that are not among the names count."""

    labels: SparseLabels
    unknown: SparseLabels | None
    names: tuple[str, ...]
    absent: Literal["negative", "unknown"]


class LabelRows:
    """Rows of label names, or of indices into fixed ``names``.

    Example:
        >>> rows = LabelRows()
        >>> rows.add(["b", "a"], line=1)
        >>> rows.add_soft({"a": 0.25, "b": None}, line=2)
        >>> gathered = rows.finish(ProblemLog("raise", "a file"))
        >>> gathered.names, gathered.labels.lists(), gathered.labels.values.tolist(), gathered.unknown.lists()
        (('a', 'b'), [[0, 1], [0]], [1.0, 1.0, 0.25], [[], [1]])
    """

    def __init__(self, names: Sequence[str] | None = None, *, absent: Literal["negative", "unknown"] = "negative") -> None:
        self.fixed = None if names is None else tuple(names)
        self.absent = absent
        self.number: dict[str, int] = {}
        self.first_line: list[int] = []
        self.entries, self.counts = array("q"), array("q")
        # One number per entry once a soft label occurs; until then every entry is 1.
        self.values: array[float] | None = None
        self.unknown: dict[int, Sequence[int] | None] = {}

    def __len__(self) -> int:
        return len(self.counts)

    def add(self, names: Iterable[str], *, line: int, unknown: Iterable[str] = ()) -> None:
        """Add a row's labels by name; duplicates count once."""
        positive = {self.number_of(name, line) for name in names}
        open_entries = {self.number_of(name, line) for name in unknown}
        self.add_numbers(positive, open_entries - positive)

    def add_soft(self, values: Mapping[str, float | None], *, line: int, unknown: Iterable[str] = ()) -> None:
        """Add a row's labels by name, each with a number in [0, 1], or None for an unknown label."""
        listed = {self.number_of(name, line): value for name, value in values.items()}
        open_entries = {self.number_of(name, line) for name in unknown} - listed.keys()
        open_entries |= {place for place, value in listed.items() if value is None}
        positive = {place: value for place, value in listed.items() if value}
        self.add_numbers(positive, open_entries, list(positive.values()))

    def add_numbers(self, positive: Iterable[int], unknown: Iterable[int] = (), values: Sequence[float] | None = None) -> None:
        """Add a row's labels by number, each once; ``values`` are numbers in (0, 1] if some are soft."""
        before = len(self.entries)
        self.entries.extend(positive)
        if values is not None and self.values is None and any(value != 1 for value in values):
            self.values = array("f", [1.0]) * before
        if self.values is not None:
            self.values.extend([1.0] * (len(self.entries) - before) if values is None else values)
        open_entries = sorted(unknown)
        if open_entries:
            self.unknown[len(self.counts)] = open_entries
        self.counts.append(len(self.entries) - before)

    def add_hard(self, counts: Array, numbers: Array) -> None:
        """Add rows whose labels are all hard and known: how many each has, and their numbers, each once in a row."""
        self.entries.frombytes(np.ascontiguousarray(numbers, np.int64).tobytes())
        self.counts.frombytes(np.ascontiguousarray(counts, np.int64).tobytes())
        if self.values is not None:
            self.values.extend([1.0] * len(numbers))

    def add_unknown(self) -> None:
        """Add a row without known labels."""
        self.unknown[len(self.counts)] = None
        self.counts.append(0)

    def finish(
        self, problems: ProblemLog, *, wanted: Sequence[str] | None = None, ids_of: Sequence[str] | None = None
    ) -> GatheredLabels:
        """The labels of all rows.

        Args:
            problems: raises the error for labels that are not among ``wanted``.
            wanted: the label names in order. The labels in the file are these names or their numbers from 0; others are an
                error.
            ids_of: names for label numbers; used if all labels in the file are valid indices into them.
        """
        names, moved = self._renumbering(problems, wanted, ids_of)
        shape = (len(self.counts), len(names))
        rows = np.repeat(np.arange(shape[0]), np.frombuffer(self.counts, dtype=np.int64))
        values = None if self.values is None else np.frombuffer(self.values, dtype=np.float32)
        labels = index_lists(rows, moved[np.frombuffer(self.entries, dtype=np.int64)], shape, values)
        return GatheredLabels(labels, self._unknown_lists(moved, shape, problems), names, self.absent)

    def number_of(self, name: str, line: int) -> int:
        """The number of a name; a new name gets the next number."""
        place = self.number.setdefault(name, len(self.number))
        if place == len(self.first_line):
            self.first_line.append(line)
        return place

    def _unknown_lists(self, moved: Array, shape: tuple[int, int], problems: ProblemLog) -> SparseLabels | None:
        if not self.unknown:
            return None
        counts = np.zeros(shape[0], dtype=np.int64)
        for row, places in self.unknown.items():
            counts[row] = shape[1] if places is None else len(places)
        total = int(counts.sum())
        if total > MAX_UNKNOWN:
            raise problems.fatal(
                f"at most {MAX_UNKNOWN:,} labels may be unknown; {len(self.unknown):,} rows with unknown labels and"
                f" {shape[1]:,} labels make {total:,}. Remove rows without any known label."
            )
        every = np.arange(shape[1], dtype=np.int64)
        parts = [every if places is None else np.sort(moved[np.asarray(places)]) for places in self.unknown.values()]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        indices = torch.from_numpy(np.concatenate(parts))
        return SparseLabels(indices, torch.from_numpy(offsets), shape[1], validate=False)

    def _renumbering(
        self, problems: ProblemLog, wanted: Sequence[str] | None, ids_of: Sequence[str] | None
    ) -> tuple[tuple[str, ...], Array]:
        if self.fixed is not None and wanted is None:
            return self.fixed, np.arange(len(self.fixed))
        own = list(self.number) if self.fixed is None else list(self.fixed)
        if wanted is None and ids_of is not None and all(is_number_below(name, len(ids_of)) for name in own):
            wanted = ids_of
        if wanted is None:
            names = in_order(own)
            place = {name: number for number, name in enumerate(names)}
            return tuple(names), np.asarray([place[name] for name in own], dtype=np.int64)
        place = {name: number for number, name in enumerate(wanted)}
        foreign = [name for name in own if name not in place]
        if foreign and all(is_number_below(name, len(wanted)) for name in own):
            return tuple(wanted), np.asarray([int(name) for name in own], dtype=np.int64)
        if foreign:
            line = self.first_line[self.number[foreign[0]]] if foreign[0] in self.number else None
            raise problems.fatal(
                f"labels must be among the {len(wanted)} `label_names`; got {shown(foreign[0])}"
                f" ({len(foreign)} in all).{nearest(foreign[0], wanted)} Add it, or read without `label_names`.",
                line=line,
            )
        return tuple(wanted), np.asarray([place[name] for name in own], dtype=np.int64)


def is_number_below(name: str, limit: int) -> bool:
    """Whether the name is a whole number in [0, limit), written in digits and without leading zeros."""
    return name.isascii() and name.isdecimal() and len(name) < 19 and int(name) < limit and (name[0] != "0" or name == "0")


def in_order(names: Sequence[str]) -> list[str]:
    """Label names in their order: by value if all are whole numbers, otherwise alphabetical."""
    whole = all(name.isascii() and name.isdecimal() and len(name) < 19 for name in names)
    return sorted(names, key=(lambda name: (int(name), name)) if whole else None)
