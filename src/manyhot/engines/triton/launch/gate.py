"""Whether kernels can be launched here, and the fallback to the plain form when they cannot.

The launch path uses internals of Triton and of the CUDA driver. It is used only with the versions of Triton it was tested with,
on NVIDIA devices that have the instructions it needs. Any failure of a launch turns the engine off for the rest of the process:
the failed call and all later ones use the plain form, and one warning says why.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from manyhot.engines.gate import Gate
from manyhot.engines.triton.launch.direct import cuda_launch

# The first and the last supported version of Triton: 3.6 was tested on an H200, 3.9 in the interpreter.
TRIED = ((3, 6), (3, 9))
# The least compute capability: the kernels use bfloat16 arithmetic and tf32 products.
CAPABILITY = (8, 0)

_INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class LaunchError(RuntimeError):
    """A kernel could not be compiled or launched."""


GATE = Gate("Triton", "CUDA")


def interpreted() -> bool:
    """Whether Triton runs its kernels in Python, on the CPU."""
    return _INTERPRETED


def refusal(device: int | None = None) -> str:
    """The reason why no kernel can be launched (on CUDA device number ``device``, if given); empty if they can."""
    return GATE.failure or _refusal_of_host() or ("" if device is None or device < 0 else _refusal_of_device(device))


@functools.cache
def _refusal_of_host() -> str:
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed."
    version = triton_version()
    if not TRIED[0] <= version <= TRIED[1]:
        first, last = (".".join(map(str, each)) for each in TRIED)
        return f"triton {'.'.join(map(str, version))} was never tried with this package; use {first} to {last}."
    if interpreted():
        return ""
    if torch.version.hip is not None:
        return "this torch is built for ROCm, and the kernels are written for NVIDIA devices."
    if not torch.cuda.is_available():
        return "no CUDA device is visible to torch."
    if cuda_launch() is None:
        return "the CUDA driver has no cuLaunchKernelEx; update it."
    return ""


@functools.cache
def _refusal_of_device(index: int) -> str:
    capability = torch.cuda.get_device_capability(index)
    if capability >= CAPABILITY:
        return ""
    has, needs = (".".join(map(str, each)) for each in (capability, CAPABILITY))
    return f"cuda:{index} has compute capability {has}, and the kernels need {needs}."


def triton_version() -> tuple[int, int]:
    """Major and minor version of Triton; (0, 0) if unknown."""
    try:
        text = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        text = str(getattr(importlib.import_module("triton"), "__version__", ""))
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def falls_back_to(plain: Callable[..., Any]) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Decorator for functions of the engine: if a launch fails, this call and all later ones use ``plain``."""

    def guard(run: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(run)
        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            if not GATE.failure:
                try:
                    return run(*args, **kwargs)
                except (LaunchError, ImportError) as failure:
                    GATE.close(failure)
            found: _Result = plain(*args, **kwargs)
            return found

        return call

    return guard
