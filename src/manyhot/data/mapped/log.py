"""Arrays that grow block by block, and continue after a kill from the last complete block.

The values of a block are appended to temporary files of the arrays and flushed; then a line in ``.blocks.jsonl`` records the
length of each. When the folder is opened again, the files are truncated to the lengths of the last line. At the end they are
renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from manyhot._files import LOCK, make_folder, storage_error
from manyhot.data.mapped.arrays import Array, array_path, mapped_array, write_about

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

LOG = ".blocks.jsonl"


class ArrayLog:
    """Arrays under construction, in a ``with`` block.

    Args:
        folder: created if it does not exist; it is an error if another process writes to it.
        kinds: the type of each array.
        key: identifies the input of the blocks; it is an error if the folder was started with another key.
    """

    def __init__(self, folder: Path, kinds: dict[str, str], *, key: str) -> None:
        self.folder, self.kinds, self.key = folder, kinds, key
        self.records: list[dict[str, Any]] = []
        self.ends = dict.fromkeys(kinds, 0)
        self._files: dict[str, IO[bytes]] = {}
        self._log: IO[bytes] | None = None
        self._lock = -1

    def __enter__(self) -> ArrayLog:
        make_folder(self.folder)
        try:
            self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            if fcntl is not None:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._resume()
        except BlockingIOError:
            os.close(self._lock)
            raise ValueError(
                f"pack: the folder must not be in use; another process writes to {str(self.folder)!r}. Wait for it to end."
            ) from None
        except OSError as error:
            raise storage_error(self.folder, error) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for file in (*self._files.values(), self._log):
            if file is not None:
                file.close()
        os.close(self._lock)

    def _resume(self) -> None:
        """Read the log, truncate the block that a killed process had begun, and open all files at their ends."""
        path = self.folder / LOG
        whole = 0
        for name in self.kinds:
            if array_path(self.folder, name).exists():
                # An earlier process was killed while it renamed drafts.
                array_path(self.folder, name).replace(self._draft(name))
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
            record = _parsed(line)
            if record is None or any(self._size(name) < end for name, end in record["ends"].items()):
                break
            self.records.append(record)
            whole += len(line)
        if self.records:
            self.ends = {name: self.records[-1]["ends"][name] for name in self.kinds}
        if any(record["key"] != self.key for record in self.records):
            raise ValueError(
                f"pack: the folder must have been started with the same files and options; {str(self.folder)!r} was started"
                " with others. Choose a new folder, or delete this one."
            )
        self._log = _at_end(path, whole)
        for name, kind in self.kinds.items():
            self._files[name] = _at_end(self._draft(name), self.ends[name] * np.dtype(kind).itemsize)

    def _draft(self, name: str) -> Path:
        return self.folder / f".{name}.bin"

    def _size(self, name: str) -> int:
        path = self._draft(name)
        return path.stat().st_size // np.dtype(self.kinds[name]).itemsize if name in self.kinds and path.exists() else -1

    def append(self, arrays: dict[str, Array], **about: Any) -> None:
        """Append a block: its values, and further fields of its record."""
        assert self._log is not None
        try:
            for name, kind in self.kinds.items():
                own = np.ascontiguousarray(arrays[name], dtype=np.dtype(kind).newbyteorder("<"))
                _write(self._files[name], own.view(np.uint8).data)
                self.ends[name] += len(own)
            record = {**about, "key": self.key, "ends": dict(self.ends)}
            _write(self._log, memoryview(json.dumps({**record, "digest": _digest(record)}).encode() + b"\n"))
        except OSError as error:
            raise storage_error(self.folder, error) from error
        self.records.append(record)

    def array(self, name: str) -> Array:
        """The values of an array so far."""
        return mapped_array(self._draft(name), self.kinds[name], self.ends[name])

    def finish(self, about: dict[str, Any], *, others: dict[str, tuple[str, int]] | None = None) -> None:
        """Write ``about.json`` and remove the log.

        Args:
            about: further fields of ``about.json``.
            others: the arrays of the finished folder, with type and size; the arrays of the log that it does not list are
                deleted. None keeps all arrays of the log.
        """
        listed = {name: (kind, self.ends[name]) for name, kind in self.kinds.items()} if others is None else others
        try:
            for name in self.kinds.keys() & listed.keys():
                self._draft(name).replace(array_path(self.folder, name))
            write_about(self.folder, listed, {**about, "key": self.key})
            for path in (*(self._draft(name) for name in self.kinds), self.folder / LOG, self.folder / LOCK):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(self.folder, error) from error


def _at_end(path: Path, size: int) -> IO[bytes]:
    file = path.open("ab", buffering=0)
    file.truncate(size)
    return file


def _write(file: IO[bytes], content: memoryview) -> None:
    """Write all bytes and flush them to disk."""
    while len(content):
        content = content[file.write(content) :]
    os.fsync(file.fileno())


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A record of the log, or None for an incomplete line."""
    try:
        record = json.loads(line)
        digest = record.pop("digest")
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
    return record if isinstance(record, dict) and digest == _digest(record) else None


def _digest(record: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(record, sort_keys=True).encode(), digest_size=16).hexdigest()
