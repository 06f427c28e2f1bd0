"""Input files: decompressed, decoded line by line, with limits on line length and expansion.

Compression is recognised by the first bytes, not by the name. Lines end at a line feed only, so that the other characters that
Python counts as line ends (form feed, U+2028, ...) stay inside a text.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from manyhot.data.files.problems import DataError, ProblemLog
from manyhot.data.files.streams import (
    MAX_EXPANSION,
    BoundedStream,
    CountedStream,
    JoinedStream,
    PathLike,
    decompressed,
    open_raw,
)

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
MAX_LINE_BYTES = 16 * 2**20
PEEK_BYTES = 2**18
_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)


def bare_name(path: PathLike) -> str:
    """The file's name in lower case without the suffix of a compression.

    Example:
        >>> bare_name("folder/Train.JSONL.xz")
        'train.jsonl'
    """
    name = Path(path).name.lower()
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


class InputFile:
    """One file, decompressed as it is read; ``"-"`` is the standard input.

    Args:
        path: the file.
        max_line_bytes: a longer line is an error, so that a file without line feeds cannot fill the memory.
        max_expansion: a compressed file that expands by more than this factor is an error, once it exceeds 8 MiB.

    If ``problems`` is set, lines that are not UTF-8 are reported to it; they are skipped if problems are collected.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.txt"
        >>> _ = path.write_text("one\\ntwo\\n")
        >>> with InputFile(path) as file:
        ...     list(file.lines())
        [(1, 'one'), (2, 'two')]
    """

    def __init__(self, path: PathLike, *, max_line_bytes: int = MAX_LINE_BYTES, max_expansion: int = MAX_EXPANSION) -> None:
        self.name = str(path)
        self.max_line_bytes = min(max_line_bytes, sys.maxsize - 1)
        self.problems: ProblemLog | None = None
        raw = open_raw(path)
        self._packed = CountedStream(raw.read1, close=raw.close)
        self.raw: io.BufferedReader = io.BufferedReader(cast(Any, self._packed), buffer_size=2**16)
        self._ahead: bytes | None = None
        start = self.raw.peek(8)[:8]
        self.compression = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
        try:
            opened = cast(Any, decompressed(self.raw, self.compression, self.name))
            if self.compression is not None:
                opened = BoundedStream(opened, self._packed, max_expansion, self.name)
            self.stream = io.BufferedReader(opened, buffer_size=2**20)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> InputFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if hasattr(self, "stream"):
            self.stream.close()
        self.raw.close()

    @property
    def on_disk(self) -> bool:
        """Whether it is an uncompressed file on disk, which can be opened again by its name."""
        return self.compression is None and self.name != "-" and Path(self.name).is_file()

    def peek(self) -> bytes:
        """The first bytes, at most 256 KiB, without consuming them."""
        try:
            if self._ahead is None and not self.on_disk and self.compression is None:
                # A pipe returns only the bytes written so far; wait for enough to recognise the format.
                self._ahead = self.stream.read(PEEK_BYTES)
                self.stream = io.BufferedReader(JoinedStream(self._ahead, self.stream), buffer_size=2**20)
            return self._ahead if self._ahead is not None else self.stream.peek(PEEK_BYTES)[:PEEK_BYTES]
        except _DAMAGE as error:
            raise self._damaged(error, 0) from None

    def read(self, most: int | None = None) -> bytes:
        """All remaining bytes; more than ``most`` are an error."""
        try:
            content = self.stream.read() if most is None else self.stream.read(most + 1)
        except _DAMAGE as error:
            raise self._damaged(error, 0) from None
        if most is not None and len(content) > most:
            raise DataError(
                f"must be at most {most} bytes long; it is longer. If that is intended, raise `max_line_bytes`.", file=self.name
            )
        return content

    def raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """Line numbers from 1 and lines as bytes with their line feeds."""
        limit, readline, number = self.max_line_bytes, self.stream.readline, 0
        while True:
            try:
                line = readline(limit + 1)
            except _DAMAGE as error:
                raise self._damaged(error, number) from None
            if not line:
                return
            number += 1
            if len(line) > limit:
                raise self._too_long(number)
            yield number, line

    def line_block(self, size: int) -> bytes:
        """The next ``size`` bytes and the rest of the line in which they end; ``size`` is at most ``max_line_bytes``."""
        try:
            block = self.stream.read(size)
            block += b"" if block.endswith(b"\n") else self.stream.readline(self.max_line_bytes + 1)
        except _DAMAGE as error:
            raise self._damaged(error, 0) from None
        if len(block) - block.rfind(b"\n", 0, -1) - 1 > self.max_line_bytes:
            raise self._too_long(None)
        return block

    def lines(self, *, keep_ends: bool = False) -> Iterator[tuple[int, str]]:
        """Line numbers from 1 and decoded lines, without line ends unless ``keep_ends``; a byte order mark is dropped."""
        offset = 0
        for number, line in self.raw_lines():
            if number == 1:
                _refuse_utf16(line, self.name)
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                message = (
                    f"must be UTF-8; got the byte 0x{line[error.start]:02x} at byte {offset + error.start} of the file"
                    f" ({error.reason}). Convert it, for example with: iconv -f latin1 -t utf-8"
                )
                column = len(line[: error.start].decode("utf-8")) + 1
                if self.problems is None:
                    raise DataError(message, file=self.name, line=number, column=column) from None
                self.problems.add(message, line=number, column=column)
                offset += len(line)
                continue
            offset += len(line)
            if number == 1:
                text = text.removeprefix("\ufeff")
            yield number, text if keep_ends else text.rstrip("\r\n")

    def _too_long(self, line: int | None) -> DataError:
        return DataError(
            f"the line must be at most {self.max_line_bytes} bytes long; it is longer. Does the file have line ends?"
            " If the line is intended, raise `max_line_bytes`.",
            file=self.name,
            line=line,
        )

    def _damaged(self, error: BaseException, lines_read: int) -> DataError:
        what = "is truncated or damaged: it cannot be decompressed" if self.compression else "could not be read"
        kind = f" as {self.compression}" if self.compression else ""
        return DataError(
            f"{what}{kind} after line {lines_read} ({str(error) or type(error).__name__}). Copy or download it again.",
            file=self.name,
        )


def fingerprint(paths: PathLike | Sequence[PathLike]) -> dict[str, str]:
    """The SHA-256 of each file's bytes as they are on disk, by file name.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
        >>> _ = path.write_bytes(b"abc")
        >>> fingerprint(path)
        {'a.txt': 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'}
    """
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    digests: dict[str, str] = {}
    for path in listed:
        with open_raw(path) as stream:
            digest = hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()
        name = Path(path).name
        digests[name if name not in digests else str(path)] = digest
    return digests


def _refuse_utf16(line: bytes, name: str) -> None:
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError("must be UTF-8; it is UTF-16. Convert it with: iconv -f utf-16 -t utf-8", file=name, line=1)
