"""Packing files of examples into a folder of memory-mapped arrays, in one pass that can be resumed."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from manyhot._files import writing
from manyhot.data.examples import Examples, Source
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.line_block import LineBlock
from manyhot.data.files.problems import DataError, ProblemLog
from manyhot.data.files.streams import PathLike
from manyhot.data.formats.format import Format
from manyhot.data.formats.registry import format_named, formats, recognise_format
from manyhot.data.mapped.arrays import ABOUT, Array, array_path, read_about
from manyhot.data.mapped.log import ArrayLog
from manyhot.data.mapped.rows import BLOCK_ROWS, block_places
from manyhot.data.options import ReadOptions
from manyhot.data.read import read_open
from manyhot.data.reading import Reading
from manyhot.data.tables.label_rows import in_order
from manyhot.data.tables.numbered import MANY_COLUMNS, SHARE, column_numbers

# Rows parsed at a time.
ROWS = 1 << 14
LABELS = {"label.numbers": "int64", "label.ends": "int64"}
TEXTS = {"text.content": "uint8", "text.ends": "int64"}
FEATURES = {"feature.numbers": "int64", "feature.values": "float32", "feature.ends": "int64"}
# Called after each block with the number of packed rows and the file they came from, with its problems so far.
Told = Callable[[int, Source], None]


def pack(
    files: Sequence[PathLike], folder: Path, options: ReadOptions, *, format: str | None = None, told: Told | None = None
) -> int:
    """Write the rows of files into a folder that ``train``, ``evaluate`` and ``predict`` read; returns the number of rows.

    Only label names and one block of rows are in memory. After a kill the same call continues from the last complete block.
    Files must have one row per line (``Format.by_lines``), with texts or sparse features, and hard, known labels.
    """
    if options.ids is not None or not options.need_labels:
        raise ValueError("pack: `ids` must be left out: a folder holds only inputs and labels.")
    named = None if format is None else format_named("pack", format, "labels")
    key = _key(files, options, format)
    if (folder / ABOUT).exists():
        about = read_about(folder)
        if about.get("key") != key:
            raise ValueError(f"pack: the folder must be new; {str(folder)!r} holds other rows. Delete it or choose another.")
        return int(about["rows"])
    first = next(_blocks(files[0], named, options))[1]
    kinds = LABELS | (TEXTS if first.kind == "texts" else FEATURES)
    with ArrayLog(folder, kinds, key=key) as log:
        packing = _Packing(log, first, options)
        for number, path in enumerate(files):
            skipped = max((each["line"] for each in log.records if each["file"] == number), default=0)
            if any(each["file"] > number for each in log.records):
                continue
            for line, examples in _blocks(path, named, options, skipped):
                packing.add(examples, file=number, line=line)
                if told is not None:
                    told(packing.rows, examples.source[0])
        packing.finish([str(path) for path in files])
    return packing.rows


class _Packing:
    """The rows packed so far. Labels are numbered by first appearance; ``finish`` renumbers them."""

    def __init__(self, log: ArrayLog, first: Examples, options: ReadOptions) -> None:
        self.log, self.first, self.options = log, first, options
        known = itertools.chain.from_iterable(record["labels"] for record in log.records)
        self.number = {name: place for place, name in enumerate(known)}
        self.rows = sum(int(record["rows"]) for record in log.records)
        if not log.records:
            log.append({name: np.zeros(1 if name.endswith(".ends") else 0) for name in log.kinds}, **_nothing())

    def add(self, examples: Examples, *, file: int, line: int) -> None:
        """Append the rows of a block."""
        _check(examples, self.first)
        before = len(self.number)
        own = np.asarray([self.number.setdefault(name, len(self.number)) for name in examples.label_names], dtype=np.int64)
        labels = examples.labels
        arrays = {
            "label.numbers": own[labels.indices.numpy()] if len(own) else np.zeros(0),
            "label.ends": self._moved("label", labels.offsets.numpy()),
        }
        if examples.texts is not None:
            coded = [text.encode("utf-8", "surrogatepass") for text in examples.texts]
            arrays["text.content"] = np.frombuffer(b"".join(coded), dtype=np.uint8)
            arrays["text.ends"] = self._moved("text", np.cumsum([0, *map(len, coded)]))
        else:
            matrix, numbers = examples.features, column_numbers(examples.feature_names)
            arrays["feature.numbers"] = matrix.indices if numbers is None else numbers[matrix.indices]
            arrays["feature.values"] = matrix.data
            arrays["feature.ends"] = self._moved("feature", matrix.indptr)
        names = list(itertools.islice(self.number, before, None))
        self.log.append(arrays, labels=names, rows=len(examples), file=file, line=line)
        self.rows += len(examples)

    def _moved(self, name: str, offsets: Array) -> Array:
        """The offsets of a block, shifted to the end of the array."""
        last: Array = offsets[1:].astype(np.int64) + int(self.log.array(f"{name}.ends")[-1])
        return last

    def finish(self, files: list[str]) -> None:
        """Renumber labels and columns as if the files had been read together, and complete the folder."""
        log = self.log
        names = list(self.options.label_names or in_order(list(self.number)))
        place = np.empty(len(self.number), dtype=np.int64)
        number = {name: new for new, name in enumerate(names)}
        place[:] = [number[name] for name in self.number]
        _rewrite(log, "label.numbers", "labels", log.array("label.ends"), lambda part: place[part], np.int64)
        others = {"labels": ("int64", log.ends["label.numbers"]), "label.ends": ("int64", self.rows + 1)}
        about: dict[str, Any] = {"rows": self.rows, "label_names": names, "files": files, **_reading(self.first)}
        if self.first.texts is not None:
            others |= {name: (kind, log.ends[name]) for name, kind in TEXTS.items()}
        else:
            occurring, width = _columns_of(log.array("feature.numbers"))
            kept = None if width <= MANY_COLUMNS or len(occurring) * SHARE >= width else occurring
            renumbered: Callable[[Array], Array] = (
                (lambda part: part) if kept is None else lambda part: np.searchsorted(occurring, part)
            )
            _rewrite(log, "feature.numbers", "columns", None, renumbered, np.int32)
            others |= {"columns": ("int32", log.ends["feature.numbers"])}
            others |= {name: (FEATURES[name], log.ends[name]) for name in ("feature.values", "feature.ends")}
            about |= {"width": width if kept is None else len(kept)}
            about |= {"feature_names": None if kept is None else list(map(str, kept.tolist()))}
        log.finish(about, others=others)


def _nothing() -> dict[str, Any]:
    return {"labels": [], "rows": 0, "file": 0, "line": 0}


def _blocks(path: PathLike, named: Format | None, options: ReadOptions, skipped: int = 0) -> Iterator[tuple[int, Examples]]:
    """``(last line, examples)`` of each block of a file after ``skipped`` lines. Columns are chosen from the first block."""
    problems = ProblemLog(options.on_problem, str(path))
    with InputFile(path, max_line_bytes=options.max_line_bytes, max_expansion=options.max_expansion) as file:
        entry = named or recognise_format(file)
        if not entry.by_lines or entry.unlabelled:
            able = [each.name for each in formats("labels").values() if each.by_lines and not each.unlabelled]
            raise problems.fatal(
                f"to be packed, a file must have one row per line ({', '.join(able)}); its format is {entry.name}."
            )
        lines, chosen = file.raw_lines(), False
        while block := list(itertools.islice(lines, ROWS)):
            content = b"".join(line for _, line in block)
            if not content.strip() or (chosen and block[-1][0] <= skipped):
                continue
            part = LineBlock(str(path), content, first=block[0][0], max_line_bytes=options.max_line_bytes)
            examples = read_open(part, entry, options, problems)
            if not chosen:
                found = Reading.of(examples).options(labels=True)
                found.pop("nominal", None)
                options = replace(options, **{name: value for name, value in found.items() if getattr(options, name) is None})
                chosen = True
            if block[-1][0] > skipped:
                yield block[-1][0], examples


def _check(examples: Examples, first: Examples) -> None:
    """Raise an error for rows that cannot be packed."""
    why = None
    if examples.kind != first.kind:
        why = f"rows must be of one kind; there are {first.kind} and {examples.kind}"
    elif examples.features is not None and isinstance(examples.features, np.ndarray):
        why = "features must be sparse (svmlight)"
    elif examples.features is not None and not np.isfinite(examples.features.data).all():
        why = "features must be finite numbers, without missing ones"
    elif examples.soft:
        why = "labels must be hard"
    elif examples.unknown is not None and len(examples.unknown.indices):
        why = "all labels must be known"
    if why is not None:
        raise DataError(f"cannot be packed: {why}. Train on the file itself.", file=examples.source[0].path)


def _key(files: Sequence[PathLike], options: ReadOptions, format: str | None) -> str:
    """A digest of the input: names and sizes of the files, and the options."""
    for path in files:
        if not Path(path).is_file():
            raise DataError("must be a file on disk, so that packing can be resumed; there is no such file.", file=str(path))
    sizes = [[str(path), Path(path).stat().st_size] for path in files]
    return hashlib.blake2b(json.dumps([sizes, asdict(options), format]).encode(), digest_size=16).hexdigest()


def _reading(first: Examples) -> dict[str, Any]:
    """How the first file was read, as JSON."""
    own = first.source[0]
    return {"format": own.format, "chosen": json.loads(json.dumps(dict(own.chosen)))}


def _columns_of(numbers: Array) -> tuple[Array, int]:
    """The column numbers that occur, and the width of the rows."""
    found = np.zeros(0, dtype=np.int64)
    for first, last in block_places(len(numbers), 16 * BLOCK_ROWS):
        found = np.union1d(found, numbers[first:last])
    return found, int(found.max(initial=-1)) + 1


def _rewrite(
    log: ArrayLog, name: str, new: str, ends: Array | None, changed: Callable[[Array], Array], kind: type[np.generic]
) -> None:
    """Write an array with its numbers changed; with ``ends`` the numbers of each list are sorted."""
    values = log.array(name)
    lists = (len(values) if ends is None else len(ends) - 1, BLOCK_ROWS * (16 if ends is None else 1))
    with writing(array_path(log.folder, new)) as file:
        for first, last in block_places(*lists):
            own = slice(first, last) if ends is None else slice(int(ends[first]), int(ends[last]))
            part = changed(np.asarray(values[own]))
            if ends is not None:
                row = np.repeat(np.arange(last - first), np.diff(ends[first : last + 1]))
                part = part[np.lexsort((part, row))]
            file.write(np.ascontiguousarray(part, dtype=kind).tobytes())
