"""A call of the compiled library: packs scores and terms into the fields of its job."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from manyhot.engines.native.library import Job, load, variants
from manyhot.engines.terms import DenseTerms, SparseTerms, Weight

TYPE_CODES = {
    torch.float32: 0,
    torch.bfloat16: 1,
    torch.float16: 2,
    torch.float64: 3,
    torch.uint8: 4,
    torch.bool: 4,
    torch.int32: 5,
    torch.int64: 6,
}
SPARSE = 7
TASK_CODES = {"sides": 0, "gradient": 1, "fused": 2, "labelwise": 3, "rdrop": 4, "divergence": 5}
FORM_CODES = {"split": 0, "joint": 1, "bce": 2, "focal": 3, "asymmetric": 3}


class Call:
    """One call of the library: the job, and the tensors that must stay alive until it returns."""

    __slots__ = ("alive", "job", "shape", "x")

    def __init__(self, x: Tensor, terms: DenseTerms | SparseTerms, task: str, variant: str | None) -> None:
        # Small losses spend most of their time in Python: every attribute of a tensor is read once.
        self.x, self.shape = x, x.shape
        self.alive: list[Tensor] = []
        self.job = Job(num_rows=self.shape[0], num_labels=self.shape[1], task=TASK_CODES[task], smoothing=terms.smoothing)
        self.job.threads = torch.get_num_threads()
        self.job.variant = len(variants()) - 1 if variant is None else variants().index(variant)
        self.job.x_kind = TYPE_CODES[x.dtype]
        self.job.x_stride = self.give_matrix("x", x)
        if isinstance(terms, SparseTerms):
            self._give_lists(terms)
        else:
            self._give_labels(terms.labels)
        if terms.where is not None:
            self.job.where_stride = self.give_matrix("where", terms.where)
        self.job.pos_scale = self._give_weight("pos_weight", terms.pos_weight)
        self.job.neg_scale = self._give_weight("neg_weight", terms.neg_weight)

    def run(self) -> None:
        """Run the job; ctypes releases the GIL meanwhile."""
        if load()[0].manyhot_run(ctypes.byref(self.job)) != 0:
            raise MemoryError("manyhot native engine: not enough memory for the workspace. Pass fewer rows at a time.")

    def new_rows(self, name: str) -> Tensor:
        """Allocate a result ``[R]``."""
        return self._point(name, self.x.new_empty(self.shape[0], dtype=torch.float32))

    def new_grad(self, name: str = "grad", out: Tensor | None = None) -> Tensor:
        """Allocate a gradient ``[R, L]``, or use ``out``."""
        return self._point(name, torch.empty_like(self.x, memory_format=torch.contiguous_format) if out is None else out)

    def give_rows(self, name: str, rows: Tensor | float, number: str = "") -> None:
        """Pass one value per row, or one for all rows in the field ``number``."""
        # The exact type is compared first: isinstance of Tensor is slow for other objects.
        if type(rows) is not float and isinstance(rows, Tensor):
            self._point(name, rows.detach().to(torch.float32).expand(self.shape[0]).contiguous())
        else:
            setattr(self.job, number, rows)

    def give_matrix(self, name: str, matrix: Tensor) -> int:
        """Pass ``[R, L]`` and return its row stride; copies only if the entries of a row are not adjacent."""
        if matrix.shape != self.shape:
            matrix = matrix.reshape(self.shape)
        rows, labels = matrix.stride()
        if labels != 1 and self.shape[1] > 1:
            matrix = matrix.contiguous()
            rows = self.shape[1]
        self._point(name, matrix)
        return rows

    def _point(self, name: str, tensor: Tensor) -> Tensor:
        self.alive.append(tensor)
        setattr(self.job, name, tensor.data_ptr())
        return tensor

    def _give_labels(self, labels: Tensor) -> None:
        if labels.dtype not in TYPE_CODES:
            labels = labels.to(torch.float32) if labels.is_floating_point() else labels > 0
        self.job.label_kind = TYPE_CODES[labels.dtype]
        self.job.label_stride = self.give_matrix("labels", labels)

    def _give_lists(self, terms: SparseTerms) -> None:
        if terms.offsets.shape[0] != self.shape[0] + 1:
            rows = terms.offsets.shape[0] - 1
            raise ValueError(f"manyhot native engine: `terms` must list {self.shape[0]} rows, as the scores have; got {rows}.")
        self.job.label_kind, self.job.num_listed = SPARSE, terms.indices.shape[0]
        self._point("indices", terms.indices.contiguous())
        self._point("offsets", terms.offsets.contiguous())
        if terms.values is not None:
            self._point("listed_values", terms.values.to(torch.float32).contiguous())

    def _give_weight(self, name: str, weight: Weight) -> float:
        """Pass a weight per label, or return the one weight for all labels."""
        if weight is None:
            return 1.0
        if not isinstance(weight, Tensor):
            return weight
        flat = weight.detach().to(torch.float32).reshape(-1)
        self._point(name, flat.expand(self.shape[1]).contiguous())
        return 1.0
