"""Files opened for reading: compression undone, lines decoded, their length limited, damage named.

Compression is told by the first bytes, not by the name. Lines end at a line feed only, so that the other characters that
Python counts as line ends (form feed, U+2028, ...) stay inside a text.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

from manyhot._checks import nearest
from manyhot.data.files.problems import DataError, missing_package

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
MAX_LINE_BYTES = 64 * 2**20
PEEK_BYTES = 2**18
_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError)

PathLike = str | os.PathLike[str]


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
        max_line_bytes: a longer line is an error, so that a file without line ends cannot fill the memory.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.txt"
        >>> _ = path.write_text("one\\ntwo\\n")
        >>> with InputFile(path) as file:
        ...     list(file.lines())
        [(1, 'one'), (2, 'two')]
    """

    def __init__(self, path: PathLike, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.name = str(path)
        self.max_line_bytes = max_line_bytes
        self.raw = _open_raw(path)
        start = self.raw.peek(8)[:8]
        self.compression = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
        try:
            opened = cast(Any, _decompressed(self.raw, self.compression, self.name))
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

    def peek(self) -> bytes:
        """The first bytes, a quarter of a MiB or fewer, which stay unread."""
        try:
            return self.stream.peek(PEEK_BYTES)[:PEEK_BYTES]
        except _DAMAGE as error:
            raise self._damaged(error, 0) from None

    def read(self) -> bytes:
        """All that is left."""
        try:
            return self.stream.read()
        except _DAMAGE as error:
            raise self._damaged(error, 0) from None

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
                raise DataError(
                    f"the line must be at most {limit} bytes long; it is longer. Is it a file with line ends?"
                    " If the line is meant, raise `max_line_bytes`.",
                    file=self.name,
                    line=number,
                )
            yield number, line

    def lines(self, *, keep_ends: bool = False) -> Iterator[tuple[int, str]]:
        """Line numbers from 1 and decoded lines, without their ends unless wanted; a byte order mark is dropped."""
        offset = 0
        for number, line in self.raw_lines():
            if number == 1:
                _refuse_utf16(line, self.name)
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"must be UTF-8; got the byte 0x{line[error.start]:02x} at byte {offset + error.start} of the file"
                    f" ({error.reason}). Convert it, for example with: iconv -f latin1 -t utf-8",
                    file=self.name,
                    line=number,
                    column=len(line[: error.start].decode("utf-8")) + 1,
                ) from None
            offset += len(line)
            if number == 1:
                text = text.removeprefix("\ufeff")
            yield number, text if keep_ends else text.rstrip("\r\n")

    def _damaged(self, error: BaseException, lines_read: int) -> DataError:
        what = "is cut short or damaged" if self.compression else "could not be read"
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
        with _open_raw(path) as stream:
            digest = hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()
        name = Path(path).name
        digests[name if name not in digests else str(path)] = digest
    return digests


def _open_raw(path: PathLike) -> io.BufferedReader:
    if str(path) == "-":
        return io.BufferedReader(_Unclosed(cast(Any, sys.stdin.buffer).read1), buffer_size=2**20)
    file = Path(path)
    if file.is_dir():
        files = sorted(child.name for child in file.iterdir() if child.is_file())
        inside = f" It holds {', '.join(files[:5])}{', ...' if len(files) > 5 else ''}." if files else ""
        raise DataError(f"must be a file; it is a folder.{inside} Name the file.", file=str(path))
    try:
        return cast(io.BufferedReader, file.open("rb", buffering=2**20))
    except FileNotFoundError:
        raise DataError(f"must exist; there is no such file.{_near_file(file)}", file=str(path)) from None
    except (OSError, ValueError) as error:
        raise DataError(f"could not be opened: {getattr(error, 'strerror', None) or error}.", file=str(path)) from None


def _near_file(file: Path) -> str:
    try:
        return nearest(file.name, [child.name for child in file.parent.iterdir()])
    except OSError:
        return " Its folder does not exist either."


def _decompressed(raw: io.BufferedReader, compression: str | None, name: str) -> IO[bytes] | io.BufferedReader:
    if compression == "gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    if compression == "bz2":
        return bz2.BZ2File(raw)
    if compression == "xz":
        return lzma.LZMAFile(raw)
    if compression == "zst":
        return _zst(raw, name)
    return raw


def _zst(raw: io.BufferedReader, name: str) -> IO[bytes]:
    try:
        import pyarrow
    except ImportError:
        raise missing_package("Reading .zst", "pyarrow", file=name) from None
    return cast(IO[bytes], _Unclosed(pyarrow.CompressedInputStream(raw, "zstd").read))


class _Unclosed(io.RawIOBase):
    """A raw stream over a ``read`` that is not ours to close, or that comes from a stream of another kind."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._read(len(buffer))
        buffer[: len(block)] = block
        return len(block)


def _refuse_utf16(line: bytes, name: str) -> None:
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError("must be UTF-8; it is UTF-16. Convert it with: iconv -f utf-16 -t utf-8", file=name, line=1)
