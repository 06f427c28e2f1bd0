"""Repeated calls of the same kind: the job is copied from a template, and only its addresses change."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from manyhot.engines.again import Again
from manyhot.engines.native.calls import FORM_CODES, TYPE_CODES, Call
from manyhot.engines.native.library import GATE, Job, load
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.totals import total


def scale_(grad: Tensor, factor: Tensor) -> Tensor:
    """``grad *= factor`` in place, skipped for a factor of 1, which is the usual case."""
    return grad if factor.item() == 1 else grad.mul_(factor)


def repeats(x: Tensor, terms: DenseTerms | SparseTerms, form: str, offset: float, scale: Tensor | float) -> Again | None:
    """``fused`` with ``whole`` for other tensors of the same kind; see ``manyhot.engines.registry.Engine``."""
    lists = isinstance(terms, SparseTerms)
    if isinstance(scale, Tensor) or (isinstance(terms, DenseTerms) and terms.labels.dtype not in TYPE_CODES):
        return None
    call = Call(x, terms, "fused", None)
    call.job.form, call.job.offset, call.job.scale = FORM_CODES[form], offset, scale
    template, run, num_rows = bytes(call.job), load()[0].manyhot_run, x.shape[0]

    def again(x: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor] | None:
        if GATE.failure:
            return None
        job = Job.from_buffer_copy(template)
        job.threads, job.x = torch.get_num_threads(), x.data_ptr()
        if lists:
            indices, offsets = tensors
            job.num_listed, job.indices, job.offsets = indices.shape[0], indices.data_ptr(), offsets.data_ptr()
        else:
            job.labels = tensors[0].data_ptr()
        values, grad = x.new_empty(num_rows, dtype=torch.float32), torch.empty_like(x)
        job.values, job.grad = values.data_ptr(), grad.data_ptr()
        return (total(values, scale), grad) if run(ctypes.byref(job)) == 0 else None

    return Again(again, scale_)
