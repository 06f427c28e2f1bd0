"""The device of a run and the precision of its forward passes."""

from __future__ import annotations

import torch


def choose_device(name: str) -> torch.device:
    """The device that a setting names; ``auto`` is a GPU if there is one.

    Example:
        >>> choose_device("cpu")
        device(type='cpu')
        >>> choose_device("gpu")
        Traceback (most recent call last):
            ...
        ValueError: train: `device` must be auto, cpu, cuda or one GPU as cuda:0; got 'gpu'.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"train: `device` must be auto, cpu, cuda or one GPU as cuda:0; got {name!r}.") from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"train: `device` must be auto, cpu, cuda or one GPU as cuda:0; got {name!r}.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        there = torch.cuda.device_count() or "no"
        raise ValueError(f"train: `device` must be a device of this machine; got {name!r}, and it has {there} GPU. Use auto.")
    return device


def uses_bfloat16(device: torch.device, precision: str) -> bool:
    """Whether forward passes run under bfloat16 autocast: if requested, and with ``auto`` on GPUs that support it."""
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return precision == "bfloat16"
