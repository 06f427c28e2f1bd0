"""Files read by several processes together: each parses its share, and all get the examples that a single process would read.

A file with one row per line is split into as many parts as there are processes; other files are assigned to processes whole.
If merged parts might differ from the whole file (a row with a problem, rows with unknown labels, parts with different columns),
every process reads the whole file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyhot.data.examples import Examples, Source, concatenate_examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.line_block import LineBlock, lines_between
from manyhot.data.files.problems import ProblemLog
from manyhot.data.files.streams import PathLike
from manyhot.data.formats.format import Format
from manyhot.data.formats.registry import format_named, recognise_format
from manyhot.data.options import ReadOptions
from manyhot.data.packed import from_messages, to_messages
from manyhot.data.read import folder_entry, joined, read_path
from manyhot.data.tables.label_rows import in_order
from manyhot.data.tables.numbered import by_number, column_numbers, compact_columns

# Smaller files are not worth splitting.
LEAST_BYTES = 1 << 16
EMPTY_CELLS = "empty_label_cells"
# Sends the messages of this process to all processes and returns the messages of each process, in order of rank. Those of one
# process must be consumed before those of the next.
Gather = Callable[[Iterable[bytes]], Iterable[Iterable[bytes]]]


class Unit(NamedTuple):
    """A piece of work for one process: part ``place`` of ``total`` of a file, or the whole file."""

    path: PathLike
    entry: Format | None
    place: int = 0
    total: int = 1


def read_together(
    paths: Sequence[PathLike], options: ReadOptions, *, format: str | None, rank: int, count: int, gather: Gather
) -> Examples:
    """``read_with`` by ``count`` processes; all of them return the examples that a single process would read.

    Args:
        paths: the files, which all processes can open.
        options: the options of the reader.
        format: the name of the format, if given.
        rank: the number of this process.
        count: the number of processes.
        gather: see ``Gather``.
    """
    named = None if format is None else format_named("read_examples", format, "labels")
    if any(folder_entry(path, named) is not None for path in paths):
        # Every process maps the same files.
        return joined([read_path(path, named, options) for path in paths], paths)
    files = [_units(path, named, options, count) for path in paths]
    shared = [(unit, place % count if unit.total == 1 else unit.place) for place, own in enumerate(files) for unit in own]
    mine: list[Examples] | None
    try:
        mine = [_read_unit(unit, options) for unit, owner in shared if owner == rank]
    except (ValueError, OSError, MemoryError):
        # Then every process reads the whole files and reports problems as a single process would.
        mine = None
    can_be_sent = mine is not None and all(each.images is None for each in mine)
    told = [list(messages) for messages in gather([b"read"] if can_be_sent else [])]
    if mine is None or not all(told):
        return joined([read_path(path, named, options) for path in paths], paths)
    every = _exchanged(mine, rank, gather)
    del mine
    parts = []
    for place, (path, own) in enumerate(zip(paths, files, strict=True)):
        read = [next(every[place % count if unit.total == 1 else unit.place]) for unit in own]
        whole = merged(read)
        parts.append(read_path(path, named, options) if whole is None else whole)
    return joined(parts, paths)


def _exchanged(mine: list[Examples], rank: int, gather: Gather) -> list[Iterator[Examples]]:
    """The examples that each process has read."""
    found = []
    for place, messages in enumerate(gather(to_messages(mine))):
        if place == rank:
            deque(messages, maxlen=0)  # only drains them: this process has the examples already
        found.append(iter(mine if place == rank else list(from_messages(messages))))
    return found


def _units(path: PathLike, named: Format | None, options: ReadOptions, count: int) -> list[Unit]:
    """The parts that a file is read in."""
    with InputFile(path, max_line_bytes=options.max_line_bytes, max_expansion=options.max_expansion) as file:
        entry = named or recognise_format(file, labelled=options.need_labels)
        cut = entry.read_part is not None and options.label_names is None and options.nominal is None
        if cut and file.on_disk and Path(file.name).stat().st_size >= LEAST_BYTES:
            return [Unit(path, entry, place, count) for place in range(count)]
    return [Unit(path, named)]


def _read_unit(unit: Unit, options: ReadOptions) -> Examples:
    if unit.total == 1:
        return read_path(unit.path, unit.entry, options)
    assert unit.entry is not None
    assert unit.entry.read_part is not None
    problems = ProblemLog(options.on_problem, str(unit.path))
    lines = lines_between(Path(unit.path), unit.place, unit.total)
    # The line number does not matter: after a problem the whole file is read. Only line 1 can have a byte order mark.
    block = LineBlock(str(unit.path), lines, first=1 + unit.place, max_line_bytes=options.max_line_bytes)
    block.problems = problems
    with InputFile(unit.path, max_line_bytes=options.max_line_bytes, max_expansion=options.max_expansion) as file:
        examples: Examples = unit.entry.read_part(block, file, options, problems)
    return replace(examples, source=tuple(replace(each, num_problems=problems.count) for each in examples.source))


def merged(parts: Sequence[Examples]) -> Examples | None:
    """Merge the examples of the parts of a file; None if the whole file must be read instead.

    Example:
        >>> from manyhot.labels.sparse import SparseLabels
        >>> source = (Source("a.txt", "fasttext"),)
        >>> one = Examples(SparseLabels.from_lists([[0]], num_labels=1), ("dog",), texts=["a dog"], source=source)
        >>> two = Examples(SparseLabels.from_lists([[0]], num_labels=1), ("cat",), texts=["a cat"], source=source)
        >>> merged([one, two]).label_names
        ('cat', 'dog')
    """
    if len(parts) == 1:
        return parts[0]
    source = _merged_source([part.source[0] for part in parts])
    if source is None or any(part.unknown is not None for part in parts) or any(not len(part) for part in parts):
        return None
    features, names = _merged_features(parts)
    if parts[0].features is not None and features is None:
        return None
    bare = [replace(part, texts=part.texts or [""] * len(part), features=None, feature_names=None) for part in parts]
    order = list(dict.fromkeys(name for part in parts for name in part.label_names))
    # If each label has a column, labels keep the order of the columns.
    fixed = all(part.label_names == parts[0].label_names for part in parts) and parts[0].absent == "unknown"
    rows = concatenate_examples(bare).with_labels(parts[0].label_names if fixed else in_order(order))
    texts = rows.texts if parts[0].texts is not None else None
    return replace(rows, texts=texts, features=features, feature_names=names, source=(source,), unseen=parts[0].unseen)


def _merged_source(sources: Sequence[Source]) -> Source | None:
    """The summary of the file, if all parts were read the same way and no row has a problem."""
    plain = [{name: each for name, each in source.chosen.items() if name != EMPTY_CELLS} for source in sources]
    told = [(chosen, source.unused, len(source.remarks)) for chosen, source in zip(plain, sources, strict=True)]
    if any(each != told[0] for each in told) or any(source.num_problems for source in sources) or "nominal" in plain[0]:
        return None
    empty = sum(source.chosen.get(EMPTY_CELLS, 0) for source in sources)
    return replace(sources[0], chosen={**plain[0], **({EMPTY_CELLS: empty} if empty else {})})


def _merged_features(parts: Sequence[Examples]) -> tuple[Any, tuple[str, ...] | None]:
    """The features of all parts as one matrix, and their names; None if they cannot be merged."""
    every = [part.features for part in parts]
    if all(isinstance(each, np.ndarray) for each in every):
        same = all(
            part.feature_names == parts[0].feature_names and part.num_features == parts[0].num_features for part in parts
        )
        return (np.concatenate(every), parts[0].feature_names) if same else (None, None)
    if any(each is None or isinstance(each, np.ndarray) for each in every) or "first_index" not in parts[0].source[0].chosen:
        return None, None
    return compact_columns(_stacked(parts))


def _stacked(parts: Sequence[Examples]) -> Any:
    """The rows of all parts with numbered columns, padded to the widest part."""
    from scipy.sparse import csr_matrix

    numbers = [column_numbers(part.feature_names) for part in parts]
    widths = [
        part.num_features if own is None else int(own.max(initial=-1)) + 1 for part, own in zip(parts, numbers, strict=True)
    ]
    whole = [
        part.features if own is None else by_number(part.features, own, max(widths))
        for part, own in zip(parts, numbers, strict=True)
    ]
    ends = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(each.indptr) for each in whole]))]).astype(np.int64)
    columns = np.concatenate([each.indices for each in whole]).astype(np.int64)
    values = np.concatenate([each.data for each in whole])
    stacked = csr_matrix((values, columns, ends), shape=(len(ends) - 1, max(widths)))
    stacked.sort_indices()
    return stacked
