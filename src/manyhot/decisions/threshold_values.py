"""Values of thresholds: checked, written to JSON, and rounded to the type of the scores."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_broadcast, is_number

INF = float("inf")


def checked_thresholds(given: Any) -> float | tuple[float, ...]:
    """Check thresholds: a number, or a sequence with one number per label, which becomes a tuple."""
    if isinstance(given, Tensor):
        valid = given.ndim == 1 and given.is_floating_point() and len(given) > 0 and not bool(given.isnan().any())
        given = given.tolist()
        if valid:
            return tuple(given)
    listed = isinstance(given, (list, tuple))
    numbers = list(given) if listed else [given]
    for number in numbers:
        if not is_number(number) or math.isnan(number):
            raise ValueError(f"DecisionRule: `threshold` must be a number or one per label; got {number!r}.")
    if listed and not numbers:
        raise ValueError("DecisionRule: `threshold` must be a number or one per label; got an empty list.")
    return tuple(float(number) for number in numbers) if listed else float(given)


def number_out(number: float) -> float | str:
    """A number for JSON, which has no infinite numbers."""
    return number if math.isfinite(number) else ("inf" if number > 0 else "-inf")


def number_in(number: Any) -> Any:
    """The number that ``number_out`` wrote."""
    return float(number) if number in ("inf", "-inf") else number


def round_down(cut: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest number of ``dtype`` that is not above ``cut``: ``s > cut`` is the same for every ``s`` of ``dtype``."""
    near = cut.to(dtype)
    if cut.dtype == dtype or not cut.is_floating_point():
        return near
    return torch.where(near.to(cut.dtype) > cut, near.nextafter(near.new_full((), -INF)), near)


def given_cut(who: str, threshold: Any, shape: torch.Size, sample: Tensor) -> Tensor:
    """A threshold given for a call, as ``[1, 1]``, or ``[R, 1]`` with one value for each row of scores of ``shape``."""
    if isinstance(threshold, Tensor):
        check_broadcast(who, "threshold", threshold, shape[:-1], "a number or one value per row")
        cut = threshold.detach()
        return cut.reshape(1, 1) if cut.numel() == 1 else cut.expand(shape[:-1]).reshape(-1, 1)
    if not is_number(threshold) or math.isnan(threshold):
        raise TypeError(f"{who}: `threshold` must be a number or a tensor; got {threshold!r}.")
    return filled(threshold, sample)


def filled(threshold: float, sample: Tensor) -> Tensor:
    """One number as ``[1, 1]``, created on the device: a copy from the host would sync."""
    return torch.full((1, 1), float(threshold), dtype=torch.float64, device=sample.device)


class Cuts:
    """The threshold of a rule, rounded down to the type of scores; thresholds per label are copied to a device once."""

    def __init__(self, thresholds: float | tuple[float, ...]) -> None:
        self.thresholds = thresholds
        self.kept: dict[Any, Any] = {}

    def number(self, dtype: torch.dtype) -> float:
        """One threshold for all labels, as a number of ``dtype``."""
        if dtype not in self.kept:
            self.kept[dtype] = float(self._rounded(dtype))
        number: float = self.kept[dtype]
        return number

    def on(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Thresholds per label, ``[L]``."""
        if torch.compiler.is_compiling():
            return self._rounded(dtype).to(device)
        found = self.kept.get((device, dtype))
        if found is None:
            found = self._rounded(dtype).to(device)
            if type(found) is Tensor:  # A tensor without memory, of a traced call, is not kept.
                self.kept[device, dtype] = found
        return found

    def _rounded(self, dtype: torch.dtype) -> Tensor:
        return round_down(torch.tensor(self.thresholds, dtype=torch.float64), dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return Cuts, (self.thresholds,)
