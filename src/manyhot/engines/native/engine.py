"""The native CPU engine: sides, gradients and whole losses of rows of scores in one vectorised, threaded pass.

``engine.c`` is plain C called through ctypes. It takes pointers and does not depend on the ABI of torch or Python, so one wheel
works with every version of both. If it could not be built, the package works without it (``available`` says why).
It is compiled for several instruction sets and uses the widest one that the processor supports.

It runs on ``torch.get_num_threads()`` threads. They are torch's own OpenMP threads: these spin for some milliseconds after each
of torch's operations, so a second pool would compete with them. A process that was forked after OpenMP was used would hang at
its next parallel loop. In such a process, and if torch's runtime is not found, the library uses a small thread pool of its own.
Results are bitwise identical for every number of threads.

All functions take scores ``x [R, L]`` in float32, bfloat16 or float16 on the CPU; sums are accumulated in float32, and across
chunks in double, and gradients have the type of ``x``. They are tested against ``manyhot.engines.terms``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.native.calls import FORM_CODES, Call
from manyhot.engines.native.library import GATE, load
from manyhot.engines.native.library import variants as variants
from manyhot.engines.native.repeats import repeats as repeats
from manyhot.engines.native.repeats import scale_ as scale_
from manyhot.engines.terms import DenseTerms, LogSum, SparseTerms
from manyhot.engines.totals import total as total

SCORES = (torch.float32, torch.bfloat16, torch.float16)
# Float16 gradients are computed in backward.
FINISHES_HALF = False
SUMS_OVERLAP = False


def available(device: int | None = None) -> tuple[bool, str]:  # noqa: ARG001 - the CPU has no number
    """Whether the engine can be used, and why not."""
    library, why = load()
    return library is not None and not GATE.failure, why or GATE.failure


def supports(x: Tensor, terms: DenseTerms | SparseTerms) -> bool:
    """Whether this engine supports scores ``x`` with ``terms``: all on the CPU, and ``x`` of a type in ``SCORES``."""
    if x.dtype not in SCORES or x.ndim != 2 or not x.is_cpu:
        return False
    for field in terms:
        if field is not None and type(field) is not float and isinstance(field, Tensor) and not field.is_cpu:
            return False
    return True


def sides(x: Tensor, terms: DenseTerms | SparseTerms, *, variant: str | None = None) -> tuple[LogSum, LogSum]:
    """``terms.sides(x)``: ``(pos, neg)``, float32 ``[R]``."""
    call = Call(x, terms, "sides", variant)
    pos, neg = (LogSum(call.new_rows(f"{side}_shift"), call.new_rows(f"{side}_rest")) for side in ("pos", "neg"))
    call.run()
    return pos, neg


def gradient(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    pos: LogSum,
    neg: LogSum,
    grad_pos: Tensor,
    grad_neg: Tensor,
    *,
    out: Tensor | None = None,
    variant: str | None = None,
) -> Tensor:
    """``terms.gradient(x, pos, neg, grad_pos, grad_neg)`` in the type of ``x``; written to ``out``, which must be contiguous,
    if given."""
    call = Call(x, terms, "gradient", variant)
    for side, sums, grads in (("pos", pos, grad_pos), ("neg", neg, grad_neg)):
        call.give_rows(f"{side}_shift", sums.shift)
        call.give_rows(f"{side}_rest", sums.rest)
        call.give_rows(f"grad_{side}", grads)
    grad = call.new_grad(out=out)
    call.run()
    return grad


def fused(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    form: str = "split",
    offset: Tensor | float = 0.0,
    row_scale: Tensor | float = 1.0,
    *,
    whole: bool = False,
    variant: str | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """A loss of the family and its gradient in one pass over each row.

    With ``c = offset`` the values are ``softplus(pos + c) + softplus(neg - c)`` for ``form="split"`` and
    ``softplus(pos + neg + c)`` for ``"joint"`` (0 if a side is empty).

    Args:
        x: ``[R, L]``.
        terms: the labels and weights of ``x``.
        form: ``"split"`` or ``"joint"``.
        offset: a number, or ``[R]``.
        row_scale: factor of the gradient of each row, a number or ``[R]``.
        whole: return ``sum row_scale values`` instead of the values.
        variant: the instruction set, one of ``variants()``; None takes the widest.

    Returns:
        ``(values, grad, offset_grad)``: float32 ``[R]``, not scaled; ``row_scale d values / d x``, ``[R, L]`` in the type of
        ``x``; ``d values / d offset``, float32 ``[R]``, not scaled, or None if the offset is a number.
    """
    call = Call(x, terms, "fused", variant)
    call.job.form = FORM_CODES[form]
    call.give_rows("row_offsets", offset, "offset")
    call.give_rows("row_scales", row_scale, "scale")
    values, grad = call.new_rows("values"), call.new_grad()
    offset_grad = call.new_rows("offset_grad") if isinstance(offset, Tensor) else None
    call.run()
    return total(values, row_scale) if whole else values, grad, offset_grad


def labelwise(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    kind: str,
    *,
    gamma_pos: float = 0.0,
    gamma_neg: float = 0.0,
    margin: float = 0.0,
    row_scale: Tensor | float = 1.0,
    whole: bool = False,
    variant: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Labelwise losses, summed over the labels of a row, and their gradient in one pass.

    The formulas are those of ``bce_loss``, ``focal_loss`` (``gamma_pos = gamma_neg = gamma``, ``alpha`` as weights of the
    terms) and ``asymmetric_loss``.

    Args:
        x: ``[R, L]``.
        terms: the labels and weights of ``x``.
        kind: ``"bce"``, ``"focal"`` or ``"asymmetric"``.
        gamma_pos: focusing power of the positives, for focal and asymmetric.
        gamma_neg: focusing power of the negatives, for focal and asymmetric.
        margin: negatives with a probability below it cost nothing, for asymmetric.
        row_scale: factor of the gradient of each row, a number or ``[R]``.
        whole: return ``sum row_scale values`` instead of the values.
        variant: the instruction set, one of ``variants()``; None takes the widest.

    Returns:
        ``(values, grad)``: float32 ``[R]``, not scaled; ``row_scale d values / d x``, ``[R, L]`` in the type of ``x``.
    """
    call = Call(x, terms, "labelwise", variant)
    call.job.form = FORM_CODES[kind]
    call.job.gamma_pos, call.job.gamma_neg, call.job.margin = gamma_pos, gamma_neg, margin
    call.give_rows("row_scales", row_scale, "scale")
    values, grad = call.new_rows("values"), call.new_grad()
    call.run()
    return total(values, row_scale) if whole else values, grad


def rdrop(
    a: Tensor,
    b: Tensor,
    terms: DenseTerms | SparseTerms | None,
    where: Tensor | None = None,
    *,
    alpha: float = 1.0,
    link: float = 1.0,
    row_scale: Tensor | float = 1.0,
    whole: bool = False,
    variant: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Two predictions ``[R, L]`` of the same rows at once: the mean of both losses, and their divergence.

    With ``p = sigma(link a)`` and ``q = sigma(link b)`` the values are ``(zlpr(a) + zlpr(b)) / 2 + alpha sum_i (p_i - q_i)
    link (a_i - b_i)``.

    Args:
        a: ``[R, L]``, the first prediction.
        b: the second, of the type of ``a``.
        terms: the labels and weights of both; None leaves the losses out.
        where: which entries count, ``[R, L]``; used only if ``terms`` is None, since terms have their own.
        alpha: weight of the divergence.
        link: factor of the scores in the probabilities.
        row_scale: factor of the gradients of each row, a number or ``[R]``.
        whole: return ``sum row_scale values`` instead of the values.
        variant: the instruction set, one of ``variants()``; None takes the widest.

    Returns:
        ``(values, grad_a, grad_b)``: float32 ``[R]``, not scaled, or with ``whole`` their sum times ``row_scale``;
        ``row_scale d values / d a`` and ``/ d b``, ``[R, L]`` in their type.
    """
    call = Call(a, DenseTerms(a, where) if terms is None else terms, "divergence" if terms is None else "rdrop", variant)
    call.job.other_stride = call.give_matrix("other", b.detach())
    call.job.alpha, call.job.link = alpha, link
    call.give_rows("row_scales", row_scale, "scale")
    values, grads = call.new_rows("values"), (call.new_grad(), call.new_grad("other_grad"))
    call.run()
    return total(values, row_scale) if whole else values, *grads
