"""Checks of arguments: shapes, types and ranges, and the messages of their errors.

Every message says whose argument it is, what was wanted, what was given, and what to do. Shapes and types are always checked.
Values are checked only if a caller asks for it, because that syncs with the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhot._suggest import nearest

REDUCTIONS = ("mean", "sum", "none")
# Scores at or below this were probably masked with a constant: -1e4, -1e7, -1e12 or -inf.
MASKING_SCORE = -1e4


def shape_text(shape: Iterable[int]) -> str:
    """A shape as messages print it: ``[8, 50]``."""
    return "[" + ", ".join(str(int(size)) for size in shape) + "]"


def is_number(value: Any) -> bool:
    """Whether ``value`` is one number, of Python or NumPy; a bool is not."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def check_number(who: str, name: str, value: Any, *, or_tensor: bool = False) -> None:
    """Check that ``value`` is one number; with ``or_tensor`` a tensor of floats or integers passes too."""
    if is_number(value) or (or_tensor and isinstance(value, Tensor) and value.dtype != torch.bool):
        return
    wanted = "a number or a tensor" if or_tensor else "a number"
    got = repr(value) if isinstance(value, bool | str) else value.dtype if isinstance(value, Tensor) else type(value).__name__
    raise TypeError(f"{who}: `{name}` must be {wanted}; got {got}.")


def check_choice(who: str, name: str, value: Any, choices: Sequence[Any]) -> None:
    """Check that ``value`` is one of ``choices``."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        hint = nearest(value, [c for c in choices if isinstance(c, str)]) if isinstance(value, str) else ""
        raise ValueError(f"{who}: `{name}` must be one of {listed}; got {value!r}.{hint}")


def check_reduction(who: str, reduction: str) -> None:
    """Check that ``reduction`` is known."""
    if reduction not in REDUCTIONS:
        check_choice(who, "reduction", reduction, REDUCTIONS)


def check_logits(who: str, logits: Any, name: str = "logits") -> None:
    """Check that ``logits`` is a floating-point tensor with at least one axis."""
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"{who}: `{name}` must be a floating-point tensor [..., L]; got {type(logits).__name__}."
            " Convert with torch.as_tensor, or call .dense() on lazy scores that this loss does not take."
        )
    if not logits.is_floating_point():
        raise TypeError(
            f"{who}: `{name}` must be a floating-point tensor [..., L]; got {logits.dtype}."
            f" The order is (logits, labels): are the arguments swapped?"
        )
    if logits.ndim == 0:
        raise ValueError(f"{who}: `{name}` must have a label axis, [..., L]; got a tensor without axes.")


def check_dense_labels(who: str, shape: Sequence[int], labels: Any) -> None:
    """Check that ``labels`` is a tensor of numbers or booleans with this shape."""
    if not isinstance(labels, Tensor):
        raise TypeError(
            f"{who}: `labels` must be a tensor or SparseLabels; got {type(labels).__name__}."
            " Encode label sets with manyhot.encode_label_sets or manyhot.SparseLabels.from_lists."
        )
    if labels.is_complex():
        raise TypeError(f"{who}: `labels` must be bool, integer or floating-point; got {labels.dtype}.")
    if tuple(labels.shape) != tuple(shape):
        raise ValueError(
            f"{who}: `labels` must have the shape of `logits`, {shape_text(shape)}; got {shape_text(labels.shape)}."
            " Encode with the same label names."
        )


def check_label_values(who: str, labels: Tensor, where: Tensor | None = None) -> None:
    """Check that every label that counts is in [0, 1]. Reads values, so it syncs with the device."""
    outside = ~((labels >= 0) & (labels <= 1)) if labels.dtype != torch.bool else torch.zeros_like(labels)
    if where is not None:
        outside = outside & where
    if bool(outside.any()):
        place = tuple(outside.nonzero()[0].tolist())
        value = labels[place].item()
        raise ValueError(
            f"{who}: `labels` must lie in [0, 1]; got {value:g} at {shape_text(place)}."
            " Exclude unknown labels with `where`. The order is (logits, labels): are the arguments swapped?"
        )


def check_not_swapped(who: str, logits: Tensor, labels: Tensor) -> None:
    """Raise an error if ``labels`` require a gradient and ``logits`` do not: the arguments are swapped. Reads no values."""
    if labels.requires_grad and not logits.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{who}: `labels` require a gradient and `logits` do not. The order is (logits, labels): are the arguments swapped?"
            " If not, pass labels.detach()."
        )


def check_masked_scores(who: str, logits: Tensor) -> None:
    """Check that no score looks like a masking constant: smoothed labels would add its size to the loss. Reads values."""
    masked = logits <= MASKING_SCORE
    if bool(masked.any()):
        place = tuple(masked.nonzero()[0].tolist())
        raise ValueError(
            f"{who}: `logits` must not be masked by constants if `smoothing` is used; got {logits[place].item():g} at"
            f" {shape_text(place)}, which a smoothed label counts as a missed positive. Exclude entries with `where`."
        )


def check_broadcast(who: str, name: str, value: Tensor, shape: Sequence[int], meaning: str) -> None:
    """Check that ``value`` can be broadcast to ``shape``."""
    sizes, wanted = tuple(value.shape), tuple(shape)
    fits = len(sizes) <= len(wanted) and all(
        size in (1, want) for size, want in zip(reversed(sizes), reversed(wanted), strict=False)
    )
    if not fits:
        raise ValueError(f"{who}: `{name}` must be {meaning}, broadcastable to {shape_text(wanted)}; got {shape_text(sizes)}.")


def check_where(who: str, where: Any, shape: Sequence[int]) -> None:
    """Check that ``where`` is a bool tensor that can be broadcast to ``shape``."""
    if not isinstance(where, Tensor) or where.dtype != torch.bool:
        got = where.dtype if isinstance(where, Tensor) else type(where).__name__
        raise TypeError(f"{who}: `where` must be a bool tensor, True where a label counts; got {got}.")
    check_broadcast(who, "where", where, shape, "True where a label counts")


def check_device(who: str, name: str, part: Any, device: torch.device) -> None:
    """Check that ``part``, a tensor or anything with a device, is on ``device``; a tensor without axes may be on any device."""
    if part.device != device and not (isinstance(part, Tensor) and part.ndim == 0):
        raise ValueError(
            f"{who}: `{name}` must be on the device of `logits`, {device}; got {part.device}."
            f" Move it with .to({str(device)!r})."
        )


def check_weight(who: str, name: str, weight: Any, sizes: Sequence[int], *, validate: bool) -> None:
    """Check that ``weight`` is a number >= 0, or a tensor of them with one value per label."""
    if isinstance(weight, Tensor):
        check_broadcast(who, name, weight, sizes, "one value per label")
        if validate and bool((~(weight >= 0)).any()):
            worst = weight.min().item()
            raise ValueError(f"{who}: `{name}` must be >= 0; got {worst:g}. A weight of 0 excludes a label.")
    elif not is_number(weight):
        raise TypeError(f"{who}: `{name}` must be a number or a tensor; got {type(weight).__name__}.")
    elif not weight >= 0:
        raise ValueError(f"{who}: `{name}` must be >= 0; got {weight:g}. A weight of 0 excludes the terms.")


def check_sample_weight(who: str, weight: Any, shape: Sequence[int], *, validate: bool) -> None:
    """Check that ``sample_weight`` is a tensor of one value >= 0 per row."""
    if not isinstance(weight, Tensor):
        raise TypeError(f"{who}: `sample_weight` must be a tensor; got {type(weight).__name__}.")
    check_broadcast(who, "sample_weight", weight, shape, "one value per row")
    if validate and bool((~(weight >= 0)).any()):
        raise ValueError(f"{who}: `sample_weight` must be >= 0; got {weight.min().item():g}.")


def check_unit(who: str, name: str, value: float, *, open_end: bool = False) -> None:
    """Check that ``value`` is a number in [0, 1], or [0, 1) with ``open_end``."""
    if not is_number(value) or not 0 <= value <= 1 or (open_end and value == 1):
        raise ValueError(f"{who}: `{name}` must be a number in [0, 1{')' if open_end else ']'}; got {value!r}.")


def check_at_least(who: str, name: str, value: float, least: float, *, strict: bool = False, most: float | None = None) -> None:
    """Check that ``value`` is a number >= ``least`` (> with ``strict``), and <= ``most`` if given."""
    enough = is_number(value) and (value > least if strict else value >= least)
    if not enough or (most is not None and value > most):
        limit = "" if most is None else f" and <= {most:g}"
        raise ValueError(f"{who}: `{name}` must be a number {'>' if strict else '>='} {least:g}{limit}; got {value!r}.")


def check_engine(who: str, engine: str, engines: Sequence[str]) -> None:
    """Check that ``engine`` exists."""
    if engine != "auto":  # the usual case is fast
        check_choice(who, "engine", engine, ("auto", *engines))


def check_same_table(who: str, name: str, sizes: Sequence[int], of: str, wanted: Sequence[int]) -> None:
    """Check that ``name`` has the rows and the labels of ``of``; leading axes may be flattened."""
    have, want = tuple(sizes), tuple(wanted)
    flat = (torch.Size(want[:-1]).numel(), want[-1])
    if have not in (want, flat):
        raise ValueError(
            f"{who}: `{name}` must have the shape of `{of}`, {shape_text(want)}; got {shape_text(have)}."
            " Encode with the same label names."
        )


def check_hard_labels(who: str, name: str, labels: Any) -> None:
    """Check that ``labels`` is a tensor of numbers or booleans, or index lists without soft values."""
    if isinstance(labels, Tensor):
        if labels.is_complex():
            raise TypeError(f"{who}: `{name}` must be bool, integer or floating-point; got {labels.dtype}.")
        if labels.ndim == 0:
            raise ValueError(f"{who}: `{name}` must have a label axis, [..., L]; got a tensor without axes.")
    elif not hasattr(labels, "offsets"):
        raise TypeError(
            f"{who}: `{name}` must be a tensor or SparseLabels; got {type(labels).__name__}."
            " Encode label sets with manyhot.encode_label_sets or manyhot.SparseLabels.from_lists."
        )
    elif labels.values is not None:
        raise ValueError(f"{who}: `{name}` must be hard, 0 or 1; got soft SparseLabels. Round soft labels yourself.")


def check_first_nan(who: str, name: str, row: int) -> None:
    """Raise an error if there is a NaN. ``row`` is the first row with one, or negative if there is none."""
    if row >= 0:
        raise ValueError(
            f"{who}: `{name}` must not be NaN; got one in row {row}. Find out where the model computes it, or exclude the entry"
            " with `where`."
        )


def check_first_soft(who: str, name: str, row: int) -> None:
    """Raise an error if an entry is not 0 or 1. ``row`` is the first row with one, or negative if there is none."""
    if row >= 0:
        raise ValueError(
            f"{who}: `{name}` must be 0 or 1 in every entry; got another value in row {row}. Round soft labels yourself,"
            " exclude unknown ones with `where`. The order is (scores, labels): are the arguments swapped?"
        )


def check_first_outside(who: str, name: str, row: int) -> None:
    """Raise an error if a number is outside [0, 1]. ``row`` is the first row with one, or negative if there is none."""
    if row >= 0:
        raise ValueError(
            f"{who}: `{name}` must be probabilities, in [0, 1]; got another number in row {row}. Choose the link that the"
            " model was trained for."
        )
