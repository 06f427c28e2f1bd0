"""A folder of memory-mapped arrays with checksums.

``about.json`` lists the arrays: type, number of values, and a digest of each ``CHUNK`` bytes. It is written last, so a folder
that has it is complete. Nothing in a folder is unpickled or run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from manyhot._files import write_json
from manyhot.data.files.problems import DataError

Array = np.ndarray[Any, Any]
ABOUT, VERSION = "about.json", 1
CHUNK = 1 << 26
KINDS = ("uint8", "int32", "int64", "float32")


def array_path(folder: Path, name: str) -> Path:
    """The path of an array."""
    return folder / f"{name}.bin"


def mapped_array(path: Path, dtype: str, size: int) -> Array:
    """``size`` values of a file as a memory map; an empty file cannot be mapped and gives an empty array."""
    if not size:
        return np.zeros(0, dtype=dtype)
    return np.asarray(np.memmap(path, dtype=np.dtype(dtype).newbyteorder("<"), mode="r", shape=(size,)))


def chunks(array: Array) -> Iterator[Array]:
    """The bytes of an array, ``CHUNK`` at a time."""
    content = array.view(np.uint8)
    for start in range(0, len(content), CHUNK):
        yield content[start : start + CHUNK]


def digests(array: Array) -> list[str]:
    """A digest of each ``CHUNK`` bytes."""
    return [hashlib.blake2b(part.data, digest_size=16).hexdigest() for part in chunks(array)]


def write_about(folder: Path, listed: dict[str, tuple[str, int]], about: dict[str, Any]) -> None:
    """Write ``about.json`` with the type and size of each array, which completes the folder."""
    arrays = {}
    for name, (kind, size) in listed.items():
        array = mapped_array(array_path(folder, name), kind, size)
        arrays[name] = {"dtype": kind, "size": size, "digests": digests(array)}
    write_json(folder / ABOUT, {"manyhot": "mapped rows", "version": VERSION, "arrays": arrays, **about})


def open_arrays(folder: Path, wanted: dict[str, str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """The content of ``about.json``, and the arrays, with their checksums verified."""
    about = read_about(folder)
    found = {}
    for name, kind in wanted.items():
        told = about["arrays"].get(name)
        if not isinstance(told, dict) or told.get("dtype") != kind or not isinstance(told.get("size"), int):
            raise damaged(folder, f"it must describe an array {name!r} of {kind}")
        path, size = array_path(folder, name), told["size"] * np.dtype(kind).itemsize
        if size < 0 or not path.is_file() or path.stat().st_size != size:
            raise damaged(folder, f"{path.name} must have {size:,} bytes")
        found[name] = mapped_array(path, kind, told["size"])
        if digests(found[name]) != told.get("digests"):
            raise damaged(folder, f"{path.name} must match its checksum; it does not")
    return about, found


def read_about(folder: Path) -> dict[str, Any]:
    """The content of ``about.json``."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(folder, f"{ABOUT} could not be read ({error})") from None
    if not isinstance(about, dict) or about.get("manyhot") != "mapped rows" or not isinstance(about.get("arrays"), dict):
        raise damaged(folder, f"{ABOUT} must describe mapped rows")
    if about.get("version") != VERSION:
        raise DataError(
            f"was written by another version of manyhot ({about.get('version')!r}; this one reads {VERSION})."
            " Pack the files again.",
            file=str(folder),
        )
    return about


def damaged(folder: Path, why: str) -> DataError:
    """The error for a damaged folder."""
    return DataError(f"is damaged: {why}. Pack the files again.", file=str(folder))


def check_lists(folder: Path, name: str, offsets: Array, total: int) -> None:
    """Check that ``offsets`` increase from 0 to ``total``: code that reads the lists relies on it."""
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != total:
        raise damaged(folder, f"the offsets of {name} must start at 0 and end at {total:,}")
    for start in range(0, len(offsets), CHUNK):
        if (np.diff(offsets[start : start + CHUNK + 1]) < 0).any():
            raise damaged(folder, f"the offsets of {name} must not decrease")


def check_numbers(folder: Path, name: str, numbers: Array, below: int) -> None:
    """Check that all numbers are from 0 to ``below``."""
    for start in range(0, len(numbers), CHUNK):
        part = numbers[start : start + CHUNK]
        if part.min(initial=0) < 0 or part.max(initial=-1) >= below:
            raise damaged(folder, f"{name} must be numbers from 0 to {below:,}")
