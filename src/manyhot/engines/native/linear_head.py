"""Linear heads in C: products, sums and gradients of a tile of labels while it is in cache, on all threads at once.

One call runs forward or backward, so threads start once. Results are bitwise identical for every number of threads.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from torch import Tensor

from manyhot.engines.linear.problem import Gradients, LinearProblem
from manyhot.engines.native import library
from manyhot.engines.native.calls import Call
from manyhot.engines.terms import LogSum

# With more numbers in hidden, products of whole chunks by BLAS are faster.
MOST_NUMBERS = 1 << 19


class Head(ctypes.Structure):
    """``linear_head`` in linear_types.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("size", "stride", "chunk", "kept")),
        *((name, ctypes.c_void_p) for name in ("hidden", "weight", "bias", "scores", "by_hidden", "by_weight", "by_bias")),
    ]


def serves(problem: LinearProblem) -> bool:
    """Whether ``sums`` and ``gradient`` support the problem."""
    hidden, weight, bias = problem[:3]
    if not hidden.dtype == weight.dtype == torch.float32 or (bias is not None and bias.dtype != torch.float32):
        return False
    return hidden.numel() <= MOST_NUMBERS and weight.stride(1) == 1 and weight.stride(0) >= weight.shape[1]


def sums(problem: LinearProblem, kept: list[Tensor]) -> tuple[LogSum, LogSum]:
    """Both sides; ``kept`` gets the scores of the chunks that are kept, each ``[R, labels of the chunk]``."""
    call = _call(problem, "sides")
    pos, neg = (LogSum(call.new_rows(f"{side}_shift"), call.new_rows(f"{side}_rest")) for side in ("pos", "neg"))
    _run(call, problem, kept, (None, None, None))
    return pos, neg


def gradient(
    problem: LinearProblem, kept: list[Tensor], sides: tuple[LogSum, LogSum], pulls: tuple[Tensor, Tensor], into: Gradients
) -> None:
    """Writes the gradients of hidden, weight and bias to the tensors of ``into`` that are not None."""
    call = _call(problem, "gradient")
    for side, own, pull in zip(("pos", "neg"), sides, pulls, strict=True):
        call.give_rows(f"{side}_shift", own.shift)
        call.give_rows(f"{side}_rest", own.rest)
        call.give_rows(f"grad_{side}", pull)
    _run(call, problem, kept, into)


def _call(problem: LinearProblem, task: str) -> Call:
    # The library computes the scores itself; it reads only the shape of these.
    scores = problem.hidden.new_empty(problem.num_labels).expand(problem.num_rows, problem.num_labels)
    return Call(scores, problem.terms, task, None)


def _run(call: Call, problem: LinearProblem, kept: list[Tensor], into: Gradients) -> None:
    hidden, weight = problem.hidden.detach().contiguous(), problem.weight.detach()
    bias = None if problem.bias is None else problem.bias.detach().contiguous()
    by_hidden, by_weight, by_bias = (None if part is None else part.data_ptr() for part in into)
    scores = (ctypes.c_void_p * max(len(kept), 1))(*(part.data_ptr() for part in kept))
    head = Head(
        size=hidden.shape[1],
        stride=weight.stride(0),
        chunk=problem.chunk,
        kept=len(kept),
        hidden=hidden.data_ptr(),
        weight=weight.data_ptr(),
        bias=None if bias is None else bias.data_ptr(),
        scores=ctypes.cast(scores, ctypes.c_void_p),
        by_hidden=by_hidden,
        by_weight=by_weight,
        by_bias=by_bias,
    )
    if _library().manyhot_linear(ctypes.byref(call.job), ctypes.byref(head)) != 0:
        raise MemoryError("manyhot native engine: not enough memory for the workspace. Pass fewer rows at a time.")


@functools.cache
def _library() -> Any:
    found = library.load_for("LinearScores")
    found.manyhot_linear.argtypes = [ctypes.POINTER(library.Job), ctypes.POINTER(Head)]
    found.manyhot_linear_size.restype = ctypes.c_int64
    if found.manyhot_linear_size() != ctypes.sizeof(Head):
        raise RuntimeError("LinearScores: the native engine is of another version; build it with `python hatch_build.py`.")
    return found
