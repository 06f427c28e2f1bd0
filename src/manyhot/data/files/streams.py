"""Byte streams of input files: opened, decompressed, counted and bounded."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from manyhot._suggest import nearest
from manyhot.data.files.problems import DataError, missing_package

# The largest factor by which a compressed file may expand. Texts expand 3 to 30 times, zeros 1,000 times and more.
MAX_EXPANSION = 256
# Up to this size a file may expand by any factor.
FREE_BYTES = 8 * 2**20

PathLike = str | os.PathLike[str]


def open_raw(path: PathLike) -> io.BufferedReader:
    """The bytes of a file as they are on disk, or of the standard input."""
    if str(path) == "-":
        if sys.stdin is None or sys.stdin.closed:
            raise DataError("the standard input must be open; it is closed. Name a file.", file="-")
        return io.BufferedReader(UnclosedStream(cast(Any, sys.stdin.buffer).read1), buffer_size=2**20)
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


def decompressed(raw: io.BufferedReader, compression: str | None, name: str) -> IO[bytes] | io.BufferedReader:
    """The decompressed stream."""
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
    return cast(IO[bytes], UnclosedStream(pyarrow.CompressedInputStream(raw, "zstd").read))


class UnclosedStream(io.RawIOBase):
    """A raw stream around the ``read`` of another stream, which it does not close."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def readable(self) -> bool:  # noqa: D102 - of io
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: D102 - of io
        block = self._read(len(buffer))
        buffer[: len(block)] = block
        return len(block)


class CountedStream(UnclosedStream):
    """A raw stream that counts the bytes read from it."""

    def __init__(self, read: Callable[[int], bytes], *, close: Callable[[], None]) -> None:
        super().__init__(read)
        self._close = close
        self.count = 0

    def readinto(self, buffer: Any) -> int:  # noqa: D102 - of io
        size = super().readinto(buffer)
        self.count += size
        return size

    def close(self) -> None:  # noqa: D102 - of io
        if not self.closed:
            self._close()
        super().close()


class BoundedStream(UnclosedStream):
    """A decompressed stream that raises an error if it expands by more than a factor."""

    def __init__(self, stream: IO[bytes], packed: CountedStream, max_expansion: int, name: str) -> None:
        super().__init__(stream.read)
        self.packed, self.max_expansion, self.name = packed, max_expansion, name
        self.count = 0

    def readinto(self, buffer: Any) -> int:  # noqa: D102 - of io
        size = super().readinto(buffer)
        self.count += size
        if self.count > max(FREE_BYTES, self.max_expansion * self.packed.count):
            raise DataError(
                f"must not expand by more than a factor of {self.max_expansion} when it is decompressed; it does, after"
                f" {self.packed.count:,} bytes. If that is intended, raise `max_expansion`.",
                file=self.name,
            )
        return size


class JoinedStream(UnclosedStream):
    """Bytes that were read ahead, followed by the rest of their stream."""

    def __init__(self, ahead: bytes, rest: io.BufferedReader) -> None:
        super().__init__(rest.read1)
        self._ahead: memoryview = memoryview(ahead)
        self._rest = rest

    def readinto(self, buffer: Any) -> int:  # noqa: D102 - of io
        if not len(self._ahead):
            return super().readinto(buffer)
        size = min(len(buffer), len(self._ahead))
        buffer[:size] = self._ahead[:size]
        self._ahead = self._ahead[size:]
        return size

    def close(self) -> None:  # noqa: D102 - of io
        self._rest.close()
        super().close()
