"""The compiled library, called through ctypes: how it is loaded, its argument struct, and its instruction sets."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
from pathlib import Path
from typing import Any

import torch

from manyhot.engines.gate import Gate
from manyhot.engines.totals import total as total

LIBRARY = Path(__file__).with_name("_native.so")
_PROCESS = os.getpid()
GATE = Gate("native", "CPU")
_INTEGERS = "num_rows num_labels num_listed threads variant task form x_kind label_kind first"
_STRIDES = "x_stride other_stride label_stride where_stride"
_INPUTS = "x other labels indices offsets listed_values where pos_weight neg_weight"
_NUMBERS = "pos_scale neg_scale smoothing offset scale gamma_pos gamma_neg margin alpha link"
_ROWS = "row_offsets row_scales grad_pos grad_neg pos_shift pos_rest neg_shift neg_rest values offset_grad grad other_grad"


class Job(ctypes.Structure):
    """The fields of ``job`` in engine.c, in their order."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in (*_INTEGERS.split(), *_STRIDES.split())),
        *((name, ctypes.c_void_p) for name in _INPUTS.split()),
        *((name, ctypes.c_float) for name in _NUMBERS.split()),
        *((name, ctypes.c_void_p) for name in _ROWS.split()),
    ]


@functools.cache
def load() -> tuple[Any, str]:
    """The library and an empty text, or None and the reason why it could not be loaded."""
    if not LIBRARY.exists():
        return None, f"{LIBRARY.name} was not built with this package: no C compiler was found, or the build failed."
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        return None, f"{LIBRARY.name} cannot be loaded: {error}."
    if not _is_of_these_sources(library):
        return None, f"{LIBRARY.name} belongs to another version of this package; build it again with `python hatch_build.py`."
    library.manyhot_run.argtypes = [ctypes.POINTER(Job)]
    library.manyhot_run.restype = ctypes.c_int
    library.manyhot_variant.argtypes = [ctypes.c_int64]
    library.manyhot_variant.restype = ctypes.c_char_p
    library.manyhot_share_threads.argtypes = [ctypes.c_void_p]
    library.manyhot_share_threads(_torch_threads())
    return library, ""


def load_for(who: str) -> Any:
    """The library; an error that starts with ``who`` and says why, if it could not be loaded."""
    library, why = load()
    if library is None:
        raise RuntimeError(f"{who}: the native engine cannot be used: {why}")
    return library


def _is_of_these_sources(library: Any) -> bool:
    """Whether the library was built from the C files in its folder; after an update in place it may be older."""
    try:
        library.manyhot_sources.restype = ctypes.c_char_p
        built_from = library.manyhot_sources().decode()
    except AttributeError:
        return False
    digest, sources = hashlib.sha256(), sorted(LIBRARY.parent.glob("*.[ch]"))
    for path in sources:
        digest.update(path.read_bytes())
    library.manyhot_job_size.restype = ctypes.c_int64
    same = not sources or built_from == digest.hexdigest()
    return same and bool(library.manyhot_job_size() == ctypes.sizeof(Job))


def _torch_threads() -> Any:
    """``GOMP_parallel`` of the runtime that torch has loaded; None if there is none, and in a forked child."""
    if os.getpid() != _PROCESS:
        return None
    for path in (Path(torch.__file__).parent / "lib").glob("libgomp*"):
        try:
            runtime = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            return ctypes.cast(runtime.GOMP_parallel, ctypes.c_void_p)
        except (OSError, AttributeError):
            continue
    return None


@functools.cache
def variants() -> tuple[str, ...]:
    """The instruction sets of this build that this processor supports, the widest last."""
    library, _ = load()
    names: list[str] = []
    while library is not None and (name := library.manyhot_variant(len(names))) is not None:
        names.append(name.decode())
    return tuple(names)
