"""The versions that the numbers of a run depend on."""

from __future__ import annotations

import platform

import numpy as np
import torch


def versions() -> dict[str, str]:
    """Versions of manyhot, torch, numpy and Python, saved with every run and model."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("manyhot")
    except PackageNotFoundError:
        own = "unknown"
    return {"manyhot": own, "torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
