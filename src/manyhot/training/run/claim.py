"""Allows one training at a time in a run folder, by a lock that ends with the process. A refused run leaves no folder."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from types import TracebackType

from manyhot._files import LOCK, is_unused, make_folder, storage_error

# Files and folders of a run that can be deleted safely before the first checkpoint.
UNBEGUN = ("settings.json", "metrics.jsonl", "config.toml")


class FolderInUseError(ValueError):
    """Another training writes to the same run folder."""


class RunClaim:
    """The right to write to a run folder, for the time of a ``with`` block.

    The folder is created if it does not exist. A second claim on it, by another process or thread, is an error and changes
    nothing. The operating system holds the lock and releases it when the process ends, however it ends. If a new run fails with
    an error before its first checkpoint, its folder is removed; after a full disk or an interruption the folder stays.

    Args:
        path: the run folder.

    Raises:
        FolderInUseError: if another training holds it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place, RunClaim(Path(place) / "run") as claim:
        ...     claim.path.name, claim.new
        ('run', True)
    """

    def __init__(self, path: Path) -> None:
        self.path, self.new = path, False
        self._handle = -1
        self._made: list[Path] = []

    def __enter__(self) -> RunClaim:
        self._made = [each for each in (self.path, *self.path.parents) if not each.exists()]
        make_folder(self.path)
        self._lock()
        self.new = is_unused(self.path)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        refused = kind is not None and issubclass(kind, Exception) and not issubclass(kind, OSError)
        if self.new and refused and not self._has_begun():
            self._discard()
        self._unlock()
        if self.new and kind is not None:
            for folder in self._made:
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def _lock(self) -> None:
        while True:
            try:
                handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            except OSError as error:
                raise storage_error(self.path / LOCK, error) from error
            if not _lock_file(handle):
                os.close(handle)
                raise FolderInUseError(
                    f"train: `run` must be a folder that no other training writes to; {str(self.path)!r} is in use."
                    " Wait for it to end, or choose another folder."
                )
            if _is_at(handle, self.path / LOCK):
                self._handle = handle
                return
            # The previous holder has removed the file in the meantime.
            os.close(handle)
            make_folder(self.path)

    def _unlock(self) -> None:
        with contextlib.suppress(OSError):
            (self.path / LOCK).unlink()
        os.close(self._handle)

    def _has_begun(self) -> bool:
        checkpoints = self.path / "checkpoints"
        saved = checkpoints.is_dir() and any(checkpoints.glob("*.safetensors"))
        return saved or any((self.path / name).exists() for name in ("model", "candidates"))

    def _discard(self) -> None:
        for name in UNBEGUN:
            with contextlib.suppress(OSError):
                (self.path / name).unlink(missing_ok=True)
        for name in ("checkpoints", "tensorboard"):
            shutil.rmtree(self.path / name, ignore_errors=True)


def _lock_file(handle: int) -> bool:
    """Take an exclusive lock without waiting; also True if the file system has no locks."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False
