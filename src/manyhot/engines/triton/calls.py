"""Calls of the Triton kernels: scores and terms in the form the kernels read, and the layout that calls of one kind share.

Everything that does not depend on pointers or scalar values is computed once per layout and cached.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyhot.engines.terms import DenseTerms, SparseTerms, Weight
from manyhot.engines.triton.launch.launcher import Launched, Launcher, Numbers, launcher
from manyhot.engines.triton.launch.residency import multiprocessors
from manyhot.engines.triton.piece_plans import cut_overlaps, cut_pairs
from manyhot.engines.triton.plans import COUNTER_STRIDE, WHOLE_ROWS, Plan, cut_labels, cut_rows
from manyhot.engines.triton.plans import blocks as blocks

WORDWISE = (torch.float32, torch.bfloat16, torch.float16)
BYTES = (torch.bool, torch.uint8)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

# Module and name of each plan's kernel. A module is imported when it is first needed, because imports are slow.
KERNELS = {
    "few": ("rows.few", "few_kernel"),
    "packed": ("packed.kernel", "packed_kernel"),
    "rows": ("rows.whole", "row_kernel"),
    "segments": ("rows.segments", "segment_kernel"),
    "words": ("packed.segments", "word_segment_kernel"),
}
# For each stage, the function that returns its plan and the number of programs.
CUTS: dict[str, Callable[..., tuple[Plan, int]]] = {
    "sides": cut_rows,
    "gradient": cut_rows,
    "fused": cut_rows,
    "labelwise": cut_labels,
    "rdrop": cut_pairs,
    "overlap": cut_overlaps,
    "squares": cut_overlaps,
}
# A kernel with its constants.
Kernel = tuple[Any, tuple[Any, ...]]


def new_rows(x: Tensor) -> Tensor:
    """Memory for one float32 per row."""
    return x.new_empty(x.shape[0]) if x.dtype == torch.float32 else x.new_empty(x.shape[0], dtype=torch.float32)


def new_grad(x: Tensor) -> Tensor:
    """Memory for a gradient, contiguous."""
    return torch.empty_like(x) if x.is_contiguous() else x.new_empty(x.shape)


def chunk_memory(x: Tensor, chunks: int) -> tuple[Tensor | None, Tensor | None]:
    """Workspace of programs that share a row: their partial sums, and counters. Both None if every row has one program."""
    if chunks == 1:
        return None, None
    partial = x.new_empty((x.shape[0], chunks, 4), dtype=torch.float32)
    return partial, x.new_zeros(x.shape[0] * COUNTER_STRIDE, dtype=torch.int32)


def per_row(value: Tensor | float) -> tuple[Tensor | None, float]:
    """One value per row, or a single value for all rows."""
    return (value.contiguous(), 0.0) if isinstance(value, Tensor) else (None, float(value))


def type_of(value: Tensor | None) -> torch.dtype | None:
    """The type of a tensor that may be missing."""
    return None if value is None else value.dtype


class Layout(NamedTuple):
    """The parts shared by calls of one shape, type and kind: the plan, and the launchers of its kernels."""

    plan: Plan
    programs: int
    kinds: tuple[Any, ...]
    hard: bool
    lean: bool
    even: bool
    unit: int
    sizes: Numbers
    launchers: dict[Any, Launcher]


@functools.lru_cache(maxsize=1024)
def _layout(
    stage: str,
    device: torch.device,
    types: tuple[Any, ...],
    sizes: tuple[int, ...],
    kinds: tuple[Any, ...],
    weighted: bool,
    smooth: bool,
    wordwise: bool,
    plainly: bool,
    together: int | None,
) -> Layout:
    """``types`` are the types of the inputs, None for a missing one; ``sizes`` are rows, labels and row strides.

    ``together`` is a lower bound on the programs that run at once; None in the interpreter.
    """
    x_type, label_type, _, _, value_type, *_ = types
    hard = not smooth and value_type is None and (label_type is None or label_type in INTEGERS)
    lean = stage != "labelwise" and hard and not weighted
    num_rows, num_labels, *strides = sizes
    unit = math.gcd(16, num_labels, *strides)
    found, programs = CUTS[stage](
        together,
        num_rows,
        num_labels,
        lean=lean,
        stage=stage,
        score_bytes=x_type.itemsize,
        half=x_type == torch.float16,
        lists=kinds[0] != "dense",
        packed=_words_of(types, sizes, kinds, unit) if wordwise else None,
        few=stage == "fused" and _takes_many_rows(kinds, lean) and (lean or plainly),
    )
    even = num_labels % found.segment == 0 and (found.kernel == "few" or num_rows % found.rows == 0)
    if found.kernel == "few" and not wordwise:
        unit = 1  # nothing is read as words
    return Layout(found, programs, kinds, hard, lean, even, unit, sizes, {})


def _words_of(types: tuple[Any, ...], sizes: tuple[int, ...], kinds: tuple[Any, ...], unit: int) -> str | None:
    """The kind of the labels, "hard", "soft" or "lists", if rows can be read as 64-bit words; None if they cannot.

    Rows must be aligned to a word (two words with lists), or be contiguous.
    """
    x_type, label_type, *_ = types
    _, num_labels, x_stride, label_stride, _ = sizes
    form, has_where, *weights = kinds
    if has_where or "label" in weights or form == "soft lists" or x_type not in WORDWISE or num_labels < 16:
        return None
    start = x_type.itemsize * unit
    if form == "lists":
        return "lists" if start % 16 == 0 or x_stride == num_labels else None
    if start % 8 and not x_stride == label_stride == num_labels:
        return None
    if label_type in BYTES:
        return "hard"
    return "soft" if label_type == x_type else None


def _takes_many_rows(kinds: tuple[Any, ...], lean: bool) -> bool:
    """Whether the kernel for few labels can serve the call: no mask, no weights per label, no values in lists."""
    form, has_where, *weights = kinds
    return not has_where and "label" not in weights and (form == "dense" or lean)


class Call:
    """Scores and terms in the form the kernels read."""

    __slots__ = ("inputs", "layout", "numbers", "stage", "x")

    def __init__(
        self, x: Tensor, terms: DenseTerms | SparseTerms, stage: str, *, wordwise: bool = False, plainly: bool = False
    ) -> None:
        """``wordwise`` allows the kernels that read words. ``plainly`` says that the form is "split" without an offset; with
        soft labels or weights, the kernel for few labels supports no other."""
        self.x = x = x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()
        self.stage = stage
        labels = offsets = indices = values = None
        if isinstance(terms, SparseTerms):
            indices, offsets, values, where, pos, neg, smoothing = terms
            form = "lists" if values is None else "soft lists"
        else:
            labels, where, pos, neg, smoothing = terms
            labels, form = as_matrix(labels, x), "dense"
        weighted = pos is not None or neg is not None
        where = None if where is None else as_matrix(where, x)
        pos, pos_number, pos_kind = _weight(pos, x)
        neg, neg_number, neg_kind = _weight(neg, x)
        self.inputs = (labels, offsets, indices, values, where, pos, neg)
        self.numbers = (pos_number, neg_number, float(smoothing))
        strides = (x.stride(0), 0 if labels is None else labels.stride(0), 0 if where is None else where.stride(0))
        types = (x.dtype, *[None if part is None else part.dtype for part in self.inputs])
        kinds = (form, where is not None, pos_kind, neg_kind)
        if wordwise:
            # The kernels that read words smooth only soft labels, and need aligned tensors.
            wordwise = (smoothing == 0 or types[1] == x.dtype) and _starts_on_word(x, labels)
        sizes = (*x.shape, *strides)
        self.layout = _layout(
            stage, x.device, types, sizes, kinds, weighted, smoothing != 0, wordwise, plainly, resident_programs(x)
        )

    def launch(
        self,
        form: str,
        *,
        offset: Tensor | float = 0.0,
        row_scale: Tensor | float = 1.0,
        grad_pos: Tensor | None = None,
        grad_neg: Tensor | None = None,
        out_value: Tensor | None = None,
        out_slope: Tensor | None = None,
        out_grad: Tensor | None = None,
        state: Tensor | None = None,
        partial: Tensor | None = None,
        arrived: Tensor | None = None,
        out_total: Tensor | None = None,
        ended: Tensor | None = None,
        total: str = "none",
        factor: Tensor | None = None,
    ) -> Launched:
        """Launch the kernel of the stage over all tiles. Tensors that a stage does not use are not read.

        With ``total`` "sum" or "mean" the values are reduced too. With a ``factor``, a scalar on the device, ``row_scale`` is a
        number, and their product scales the gradient; see ``half``. Returns the launcher and its scalar arguments.
        """
        offsets, offset_number = per_row(offset)
        scales, scale_number = per_row(row_scale)
        scaled = "number" if scales is None else "rows"
        if factor is not None:
            scales, scaled = factor, "one"
        moved = "row" if offsets is not None else ("zero" if offset_number == 0 else "number")
        rows = (offsets, scales, grad_pos, grad_neg, out_value, out_slope, out_grad, state, partial, arrived, out_total, ended)
        key = (form, moved, total, scaled, *[None if part is None else part.dtype for part in rows])
        return self.start(key, self._kernel, rows, (offset_number, scale_number, *self.numbers))

    def start(self, key: Any, kernel: Callable[[Any], Kernel], rows: tuple[Any, ...], numbers: Numbers) -> Launched:
        """Launch the kernel of ``key``, which is unique within the layout, on the inputs and ``rows``.

        ``kernel`` returns the kernel and its constants; it is called once per key.
        """
        layout = self.layout
        others, numbers = self.inputs + rows, layout.sizes + numbers
        start = layout.launchers.get(key)
        if start is None:
            types = (self.x.device, self.x.dtype, *map(type_of, others))
            found = kernel(key)
            start = layout.launchers[key] = launcher(*found, layout.plan.warps, types, numbers, layout.plan.registers)
        start(layout.programs, self.x, others, numbers)
        return start, numbers

    def _kernel(self, key: Any) -> Kernel:
        """The kernel of the plan and its constants."""
        form, moved, total, scaled, *_ = key
        layout, cut = self.layout, self.layout.plan
        place, name = KERNELS[cut.kernel]
        kernel = getattr(importlib.import_module(f"manyhot.engines.triton.{place}"), name)
        labels, *others = layout.kinds
        kinds = (labels, layout.lean, *others, moved, scaled, form, self.stage, layout.even)
        sizes = (cut.chunks, 1 << (cut.chunks - 1).bit_length(), cut.segment, cut.rows, cut.block, layout.unit)
        return kernel, (*kinds, *sizes, total)


def is_ragged(call: Call, *others: Tensor) -> bool:
    """Whether rows that are not aligned can still be read with 16-byte loads (``rows.pieces``): labels are a byte or a bit
    each."""
    labels = call.inputs[0]
    if labels is None or labels.dtype not in BYTES or labels.data_ptr() % 8 or not labels.is_contiguous():
        return False
    return can_be_ragged(call, *others)


def can_be_ragged(call: Call, *others: Tensor) -> bool:
    """Whether rows are contiguous but not aligned to 16 bytes, with one row per tile and no mask."""
    x, where = call.x, call.inputs[4]
    if call.layout.plan.rows > 1 or where is not None or not starts_anywhere(x):
        return False
    return all(each.is_contiguous() and each.data_ptr() % 16 == 0 for each in (x, *others))


def starts_anywhere(x: Tensor) -> bool:
    """Whether the length of a row is not a multiple of 16 bytes."""
    return x.shape[1] * x.element_size() % 16 != 0


def resident_programs(x: Tensor) -> int | None:
    """A lower bound on the programs that run at once; None in the interpreter. Programs of long rows wait for each other, so
    for them the limits of the current context are included."""
    if not x.is_cuda:
        return None
    return multiprocessors(x.get_device(), of_context=x.shape[1] > WHOLE_ROWS)


def _starts_on_word(x: Tensor, labels: Tensor | None) -> bool:
    return (x.data_ptr() | (0 if labels is None else labels.data_ptr())) % 16 == 0


def as_matrix(matrix: Tensor, x: Tensor) -> Tensor:
    """The matrix as ``[R, L]``, contiguous along rows."""
    matrix = matrix if matrix.shape == x.shape else matrix.reshape(x.shape)
    return matrix if matrix.stride(-1) == 1 or matrix.shape[-1] <= 1 else matrix.contiguous()


def _weight(weight: Weight, x: Tensor) -> tuple[Tensor | None, float, Any]:
    """A weight per label, a weight for all labels, and which of the two is used."""
    if isinstance(weight, Tensor):
        return weight.reshape(-1).expand(x.shape[1]).contiguous(), 1.0, "label"
    return None, 1.0 if weight is None else float(weight), "number"
