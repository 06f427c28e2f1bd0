"""Atomic writes: a file is written under a temporary name beside its place, flushed to disk, then renamed."""

from __future__ import annotations

import errno
import glob
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

DRAFT_SUFFIX, LOCK = ".part", ".lock"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StorageError(OSError):
    """A file of a run or a model could not be written; the previous file is untouched."""


def write_whole(path: Path, content: bytes) -> None:
    """Write ``content`` atomically: a reader sees the old file or the new one, never a part, even after a crash."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that replaces ``path`` if the block ends without an error.

    Behind a symbolic link its target is replaced. Pipes and devices cannot be replaced and are written directly.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "numbers.txt"
        >>> with writing(path) as file:
        ...     _ = file.write(b"1 2 3")
        ...     path.exists()
        False
        >>> path.read_text()
        '1 2 3'
    """
    if path.exists() and not path.is_file():
        with _storage_errors(path), path.open("wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}.{os.getpid()}{DRAFT_SUFFIX}")
    try:
        with io.BufferedWriter(_Draft(draft, path)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with _storage_errors(path):
            draft.replace(target)
            sync_folder(target.parent)
    finally:
        _remove_quietly(draft)


class _Draft(io.FileIO):
    """A file under a temporary name; its errors name the final file."""

    def __init__(self, draft: Path, path: Path) -> None:
        self.path = path
        with _storage_errors(path):
            super().__init__(draft, "w")

    def write(self, content: Any) -> int:
        """Write bytes."""
        with _storage_errors(self.path):
            return super().write(content)


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(path, error) from error


def write_json(path: Path, data: Any) -> None:
    """Write ``data`` as JSON, atomically."""
    write_whole(path, json_bytes(data))


def json_bytes(data: Any) -> bytes:
    """Indented JSON."""
    return (json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def make_folder(path: Path) -> None:
    """Create a folder and its parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error


def append_line(path: Path, line: str) -> None:
    """Append one line without flushing it to disk, for a log that may lose its end."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise storage_error(path, error) from error


def sync_folder(path: Path) -> None:
    """Flush renames in a folder to disk."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_drafts(folder: Path, name: str = "") -> None:
    """Remove partial files of a killed process; with ``name``, only those of that file."""
    for draft in folder.glob(f".{glob.escape(name)}{'.' if name else ''}*{DRAFT_SUFFIX}"):
        _remove_quietly(draft)


def is_unused(folder: Path) -> bool:
    """Whether a folder is empty. Files left by a process that was killed at its start do not count."""
    return all(path.suffix == DRAFT_SUFFIX or path.name == LOCK for path in folder.iterdir())


def _remove_quietly(path: Path) -> None:
    # The caller raises the error that matters.
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def storage_error(path: Path, error: OSError) -> StorageError:
    """An error that says what went wrong at ``path``, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        why, remedy = "the disk is full", " Free some space and resume; files saved before are intact."
    elif error.errno == errno.EFBIG:
        why, remedy = "the file size limit is reached", " Raise the limit and resume; files saved before are intact."
    elif error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        why, remedy = "writing is not permitted", " Choose another folder."
    else:
        why, remedy = error.strerror or str(error), ""
    return StorageError(error.errno or 0, f"{str(path)!r} could not be written: {why}.{remedy}")
