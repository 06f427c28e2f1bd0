"""The registry entry of a file format: all that the rest of the library needs to know about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from manyhot.data.files.input_file import InputFile, bare_name

Holds = Literal["labels", "spans"]
_FIRST_LINES = 200
# The options of every table with named columns.
TABLE_OPTIONS = ("text", "labels", "separator", "features", "ids", "label_names", "empty_labels")


@dataclass(frozen=True, slots=True)
class FileStart:
    """The beginning of a file, to recognise its format.

    Args:
        name: the file's name in lower case without the suffix of a compression.
        content: the first bytes.
        lines: the first complete lines that are not blank; the reader reports bytes that are not UTF-8.
    """

    name: str
    content: bytes
    lines: tuple[str, ...]

    @classmethod
    def of(cls, file: InputFile) -> FileStart:
        """The start of an open file, which stays unread."""
        content = file.peek()
        lines = content.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
        whole = lines[:-1] if len(lines) > 1 else lines
        kept = [line.rstrip("\r") for line in whole if line.strip()][:_FIRST_LINES]
        return cls(bare_name(file.name), content, tuple(kept))


def _matches_nothing(_: Any) -> bool:
    return False


def part_as_whole(read: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any, Any], Any]:
    """The ``read_part`` of a format whose reader needs only the lines it parses."""
    return lambda part, _, options, problems: read(part, options, problems)


@dataclass(frozen=True, slots=True)
class Format:
    """One file format.

    Args:
        name: its name, for ``--format``.
        about: a short description of the file.
        read: ``(file, options, problems)`` to ``Examples`` or ``SpanExamples``; a ``folder`` format gets the path as the file.
        holds: rows with labels, or texts with marked spans.
        suffixes: suffixes of files that always have this format.
        likely_suffixes: suffixes of files that have this format if the content fits no other.
        magic: the first bytes of every such file.
        looks: whether the start of a file looks like this format; formats are tried in the order of the registry.
        certain: whether the start of a file rules out all other formats; used to tell a user who wants labels that a file
            holds spans.
        by_lines: whether each line is a row independent of the others, so that a file can be read in blocks.
        read_part: ``(some lines, the file, options, problems)`` to examples, if merging parts that were read separately gives
            the same as reading the whole file; otherwise None.
        columns: whether the file has named columns.
        takes: the arguments of ``read_examples`` that it uses, besides limits; others are an error.
        unlabelled: whether the file holds only texts, for prediction.
        folder: for formats that are not single files: whether a path has this format.
        write: ``(examples, path)``, if files of the format can be written.
    """

    name: str
    about: str
    read: Callable[[Any, Any, Any], Any]
    holds: Holds = "labels"
    suffixes: tuple[str, ...] = ()
    likely_suffixes: tuple[str, ...] = ()
    magic: bytes = b""
    looks: Callable[[FileStart], bool] = _matches_nothing
    certain: Callable[[FileStart], bool] = _matches_nothing
    by_lines: bool = False
    read_part: Callable[[Any, Any, Any, Any], Any] | None = None
    columns: bool = False
    takes: tuple[str, ...] = ()
    unlabelled: bool = False
    folder: Callable[[Path], bool] | None = None
    write: Callable[[Any, Any], None] | None = None
