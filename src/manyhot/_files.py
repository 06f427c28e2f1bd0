"""Files that are whole or not there: written beside their place, flushed to the disk, then renamed."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

DRAFT_SUFFIX = ".part"


class StorageError(OSError):
    """A file of a run or a model could not be written; what was there before is untouched."""


def write_whole(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path``: a reader sees the old file or the new one, never a part, also after a crash."""
    draft = path.with_name(f".{path.name}.{os.getpid()}{DRAFT_SUFFIX}")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise storage_error(path, error) from error
    finally:
        _remove_quietly(draft)


def write_json(path: Path, data: Any) -> None:
    """Put ``data`` at ``path`` as JSON."""
    write_whole(path, json_bytes(data))


def json_bytes(data: Any) -> bytes:
    """JSON for people to read too."""
    return (json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def make_folder(path: Path) -> None:
    """Make a folder and those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error


def append_line(path: Path, line: str) -> None:
    """Add one line; not flushed to the disk, for a log that may lose its end."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise storage_error(path, error) from error


def sync_folder(path: Path) -> None:
    """Make renames in a folder last."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_drafts(folder: Path) -> None:
    """Take away what a killed process left half-written."""
    for draft in folder.glob(f".*{DRAFT_SUFFIX}"):
        _remove_quietly(draft)


def _remove_quietly(path: Path) -> None:
    # The error that matters is the one that made the draft useless.
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def storage_error(path: Path, error: OSError) -> StorageError:
    """What went wrong at ``path``, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        why, remedy = "the disk is full", " Free some space and resume; what was saved before is still there."
    elif error.errno == errno.EFBIG:
        why, remedy = "a file may not be so large here", " Raise the limit and resume; what was saved before is still there."
    elif error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        why, remedy = "writing is not permitted", " Choose another folder."
    else:
        why, remedy = error.strerror or str(error), ""
    return StorageError(error.errno or 0, f"{str(path)!r} could not be written: {why}.{remedy}")
