"""A block of lines of a file, with the interface of a file."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from manyhot.data.files.input_file import InputFile


class LineBlock(InputFile):
    """A block of lines of a file, which keeps their line numbers.

    Args:
        name: the file's name.
        content: the lines.
        first: the number of the first line.
        max_line_bytes: a longer line is an error.
    """

    def __init__(self, name: str, content: bytes, *, first: int, max_line_bytes: int) -> None:
        self.name = name
        self.max_line_bytes = min(max_line_bytes, sys.maxsize - 1)
        self.compression = None
        self.problems = None
        self._ahead = None
        self.first = first
        self.raw = io.BufferedReader(cast(Any, io.BytesIO(b"")))
        self.stream = io.BufferedReader(cast(Any, io.BytesIO(content)), buffer_size=2**20)

    def raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """Line numbers of the whole file, and lines."""
        for number, line in super().raw_lines():
            yield number + self.first - 1, line


def lines_between(path: Path, place: int, count: int) -> bytes:
    """The lines of part ``place`` of ``count``: parts have about equal size in bytes, and each line is in one part.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "lines.txt"
        >>> _ = file.write_bytes(b"one\\ntwo\\nthree\\nfour\\n")
        >>> [lines_between(file, place, 2) for place in range(2)]
        [b'one\\ntwo\\nthree\\n', b'four\\n']
    """
    size = path.stat().st_size
    with path.open("rb") as file:

        def line_start(place: int) -> int:
            about = size * place // count
            if about in (0, size):
                return about
            file.seek(about - 1)
            file.readline()
            return file.tell()

        first, last = line_start(place), line_start(place + 1)
        file.seek(first)
        return file.read(last - first)
