"""svmlight lines as labels and features. numpy parses the numbers of many lines at once; only a block with an error is checked
line by line.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.tables.label_rows import LabelRows, is_number_below
from manyhot.data.tables.numbered import MOST_COLUMNS

Array = np.ndarray[Any, Any]
Line = tuple[int, str]
BLOCK_BYTES = 2**22


class SvmRows:
    """Labels and features of svmlight lines, gathered in blocks.

    Args:
        problems: records the problems of lines.
        first: the lowest index that a feature may have.
        width: one more than the highest index that a feature may have.
        names: all label names, if the labels in the file are their numbers; None if they are names themselves.
    """

    def __init__(
        self, problems: ProblemLog, *, first: int = 0, width: int = MOST_COLUMNS, names: Sequence[str] | None = None
    ) -> None:
        self.problems = problems
        self.first = first
        self.width = width
        self.num_labels = None if names is None else len(names)
        self.labels = LabelRows(names)
        self.columns: list[Array] = []
        self.values: list[Array] = []
        self.counts: list[Array] = []

    def read(self, lines: Iterator[Line]) -> None:
        """Read all lines; empty lines and comments are skipped, unless the number of labels is given."""
        block: list[Line] = []
        size = 0
        for line, text in lines:
            if self.num_labels is None:
                text = text.partition("#")[0]
                if not text or text.isspace():
                    continue
            block.append((line, text))
            size += len(text)
            if size >= BLOCK_BYTES:
                self._add(block)
                block, size = [], 0
        if block:
            self._add(block)

    def extent(self) -> tuple[int, int]:
        """The lowest and the highest column number; (1, 0) if there is none."""
        filled = [block for block in self.columns if len(block)]
        return (min(int(b.min()) for b in filled), max(int(b.max()) for b in filled)) if filled else (1, 0)

    def matrix(self, width: int, first: int) -> Any:
        """The float32 CSR matrix ``[R, width]``."""
        from scipy.sparse import csr_matrix

        none = np.zeros(0)
        counts = np.concatenate([none.astype(np.int64), *self.counts])
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        columns = np.concatenate([none.astype(np.int64), *self.columns]) - first
        matrix = csr_matrix(
            (np.concatenate([none.astype(np.float32), *self.values]), columns, ends), shape=(len(counts), width)
        )
        matrix.sort_indices()
        return matrix

    def _add(self, block: Sequence[Line]) -> None:
        heads, bodies = [], []
        for _, text in block:
            head, body = _cut(text)
            heads.append(head)
            bodies.append(body)
        fast = _pairs(bodies)
        if fast is None or not self._fits(*fast):
            kept = [
                (line, head, body)
                for (line, _), head, body in zip(block, heads, bodies, strict=True)
                if self._check(line, body)
            ]
            block = [(line, body) for line, _, body in kept]
            heads, bodies = [head for _, head, _ in kept], [body for _, _, body in kept]
            fast = _pairs(bodies)
        assert fast is not None, "every line was checked"
        columns, values, counts = fast
        good = np.asarray([self._add_labels(line, head) for (line, _), head in zip(block, heads, strict=True)], dtype=bool)
        if not good.all():
            entries = np.repeat(good, counts)
            columns, values, counts = columns[entries], values[entries], counts[good]
        self.columns.append(columns)
        self.values.append(values)
        self.counts.append(counts)

    def _fits(self, columns: Array, values: Array, counts: Array) -> bool:
        if not len(columns):
            return True
        inside = columns.min() >= self.first and columns.max() < self.width
        return bool(inside and np.isfinite(values).all()) and not _repeats(columns, counts)

    def _check(self, line: int, body: str) -> bool:
        """Whether the features of one line are valid; if not, the first error is reported."""
        seen: set[int] = set()
        for token in body.split():
            key, colon, _ = token.partition(":")
            pair = _pairs([token])
            if not colon or pair is None or len(pair[0]) != 1:
                wrong = "be 'index:value' in numbers"
            elif int(pair[0][0]) == 0 < self.first:
                wrong = "have an index of 1 or more, because indices count from 1 (`index_base`)"
            elif not self.first <= int(pair[0][0]) < self.width:
                wrong = f"have an index in [{self.first}, {self.width})"
            elif not np.isfinite(pair[1]).all():
                wrong = "have a finite value"
            elif int(pair[0][0]) in seen:
                wrong = "occur once per row"
            else:
                seen.add(int(pair[0][0]))
                continue
            self.problems.add(f"a feature must {wrong}; got {shown(token)}.", line=line, column=key[:60])
            return False
        if _pairs([body]) is None:
            self.problems.add(f"the features must be numbers, colons and blanks; got {shown(body)}.", line=line)
            return False
        return True

    def _add_labels(self, line: int, head: str) -> bool:
        names = head.split(",") if head else []
        if self.num_labels is None:
            if "" in map(str.strip, names):
                self.problems.add(f"labels must be separated by single commas; got {shown(head)}.", line=line, column="labels")
                return False
            self.labels.add(map(_whole, names), line=line)
            return True
        wrong = next((name for name in names if not is_number_below(name, self.num_labels)), None)
        if wrong is not None:
            self.problems.add(
                f"a label must be a whole number in [0, {self.num_labels}), as the header says; got {shown(wrong)}.",
                line=line,
                column="labels",
            )
            return False
        self.labels.add_numbers(set(map(int, names)))
        return True


def _cut(text: str) -> tuple[str, str]:
    """The labels and the features of a line."""
    if text[:1].isspace():
        return "", text
    head, _, body = text.partition(" ") if "\t" not in text else text.replace("\t", " ").partition(" ")
    return ("", text) if ":" in head else (head, body)


def _pairs(bodies: Sequence[str]) -> tuple[Array, Array, Array] | None:
    """Column numbers, values, and their number in each line; None if anything is not ``index:value``."""
    text = "\n".join(bodies)
    if not text.isascii():
        return None
    marks = np.frombuffer(text.encode(), dtype=np.uint8)
    blank = marks <= 32
    starts = np.flatnonzero(~blank & np.concatenate([[True], blank[:-1]])) if len(marks) else np.zeros(0, dtype=np.int64)
    colons = np.flatnonzero(marks == ord(":"))
    if len(starts) != len(colons) or not ((starts < colons).all() and (colons[:-1] < starts[1:]).all()):
        return None
    counts = np.asarray([body.count(":") for body in bodies], dtype=np.int64)
    if not len(starts):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32), counts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            numbers = np.fromstring(text.replace(":", " "), dtype=np.float64, sep=" ")
        except ValueError:
            return None
    if len(numbers) != 2 * len(starts):
        return None
    columns = numbers[::2]
    if not ((columns == np.floor(columns)) & (np.abs(columns) < 2**53)).all():
        return None
    with np.errstate(over="ignore"):
        return columns.astype(np.int64), numbers[1::2].astype(np.float32), counts


def _repeats(columns: Array, counts: Array) -> bool:
    """Whether a column occurs twice in a row; files with increasing columns need no sorting."""
    rising = np.diff(columns) > 0
    ends = np.cumsum(counts)[:-1]
    rising[ends[(ends > 0) & (ends < len(columns))] - 1] = True
    if rising.all():
        return False
    rows = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((columns, rows))
    return bool(((np.diff(columns[order]) == 0) & (np.diff(rows[order]) == 0)).any())


def _whole(name: str) -> str:
    """``"3.0"`` as ``"3"``: svmlight writers differ; other names stay."""
    name = name.strip()
    return name[:-2] if name.endswith(".0") and name[:-2].isdecimal() else name
