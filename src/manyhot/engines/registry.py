"""The engines by name: which are available, and which one a call uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from manyhot.engines.again import Again
from manyhot.engines.gate import Gate
from manyhot.engines.native import engine as native
from manyhot.engines.native import linear as native_linear
from manyhot.engines.native.library import GATE as NATIVE_GATE
from manyhot.engines.readable import DEVICES, can_be_read
from manyhot.engines.terms import DenseTerms, LogSum, SparseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton.launch.gate import GATE as TRITON_GATE
from manyhot.engines.triton.linear import engine as triton_linear


class Engine(Protocol):
    """The functions of an engine. Modules implement it."""

    # Whether it has ``half_fused`` and ``half_finish``, for float16, whose gradients cannot be finished in forward.
    FINISHES_HALF: bool
    # Whether it has ``overlap``, ``overlap_gradient`` and ``dice``, for dice loss.
    SUMS_OVERLAP: bool

    def available(self, device: int | None = None) -> tuple[bool, str]:
        """Whether it can be used (on CUDA device number ``device``, if given), and if not, why."""
        ...

    def supports(self, x: Tensor, terms: DenseTerms | SparseTerms) -> bool:
        """Whether it supports scores ``x`` with ``terms``."""
        ...

    def sides(self, x: Tensor, terms: DenseTerms | SparseTerms) -> tuple[LogSum, LogSum]:
        """``(pos, neg)`` of scores ``[R, L]``."""
        ...

    def gradient(
        self, x: Tensor, terms: DenseTerms | SparseTerms, pos: LogSum, neg: LogSum, grad_pos: Tensor, grad_neg: Tensor
    ) -> Tensor:
        """``terms.gradient`` in the type of ``x``."""
        ...

    def fused(
        self,
        x: Tensor,
        terms: DenseTerms | SparseTerms,
        form: str,
        offset: Tensor | float,
        row_scale: Tensor | float,
        *,
        whole: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """``(values, grad, offset_grad)``; ``offset_grad`` is None if the offset is a number. With ``whole`` the values are
        reduced."""
        ...

    def repeats(
        self, x: Tensor, terms: DenseTerms | SparseTerms, form: str, offset: float, scale: Tensor | float
    ) -> Again | None:
        """``fused`` with ``whole`` for later calls of the same kind; None if the engine has no faster way for them."""
        ...

    def half_fused(
        self, x: Tensor, terms: DenseTerms | SparseTerms, form: str, offset: float, scale: float
    ) -> tuple[Tensor, Any]:
        """The reduced loss of float16 scores, and the gradient for ``half_finish``."""
        ...

    def half_finish(self, held: Any, factor: Tensor, problem: Callable[[], Any]) -> Tensor:
        """The gradient times a factor; ``problem`` returns the arguments of ``half_fused``, in case it must be recomputed."""
        ...

    def half_rewrite(self, grad: Tensor, used: Tensor, factor: Tensor, problem: Any) -> None:
        """``half_finish`` in place: ``grad`` was written with the factor ``used``; ``problem`` holds the arguments of
        ``half_fused``."""
        ...

    def half_repeats(self, x: Tensor, terms: DenseTerms | SparseTerms, form: str, offset: float, scale: float) -> Again | None:
        """``half_fused`` for later calls of the same kind; None if the engine has no faster way for them."""
        ...

    def labelwise(self, x: Tensor, terms: DenseTerms | SparseTerms, kind: str, **settings: Any) -> tuple[Tensor, Tensor]:
        """``(values, grad)``."""
        ...

    def rdrop(
        self,
        a: Tensor,
        b: Tensor,
        terms: DenseTerms | SparseTerms | None,
        where: Tensor | None = None,
        *,
        alpha: float = 1.0,
        link: float = 1.0,
        row_scale: Tensor | float = 1.0,
        whole: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """``(values, grad_a, grad_b)`` of two predictions."""
        ...

    def overlap(self, x: Tensor, terms: DenseTerms | SparseTerms, *, squared: bool) -> tuple[Tensor, Tensor]:
        """``(apart, size)`` of each row: the distance between probabilities and labels, and the sum of their sizes."""
        ...

    def overlap_gradient(
        self, x: Tensor, terms: DenseTerms | SparseTerms, by_apart: Tensor, by_size: Tensor, *, squared: bool
    ) -> Tensor:
        """The gradient by ``x`` from the derivatives by both sums."""
        ...

    def dice(
        self,
        x: Tensor,
        terms: DenseTerms | SparseTerms,
        *,
        squared: bool,
        epsilon: float,
        row_scale: Tensor | float = 1.0,
        whole: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """``(values, grad)`` of dice loss; with ``whole`` the values are reduced."""
        ...

    def total(self, values: Tensor, scale: Tensor | float) -> Tensor:
        """``sum scale values``."""
        ...

    def scale_(self, grad: Tensor, factor: Tensor) -> Tensor:
        """``grad *= factor`` in place."""
        ...


class Entry(NamedTuple):
    """An engine and everything that the rest of the code needs to know about it. A new engine is a new module and an entry."""

    name: str
    engine: Engine
    device: str  # the device type for which ``"auto"`` chooses it
    dispatch_key: str  # the dispatch key of that device, under which its operators are registered
    gate: Gate  # closed when the engine fails
    linear: Any = None  # the module for linear scores, a ``LinearEngine`` with ``supports``; None: they use the plain form


ENTRIES = (
    Entry("native", native, "cpu", "CPU", NATIVE_GATE, native_linear),  # type: ignore[arg-type]
    Entry("triton", triton_engine, "cuda", "CUDA", TRITON_GATE, triton_linear),  # type: ignore[arg-type]
)
_BY_NAME = {entry.name: entry for entry in ENTRIES}
_BY_DEVICE = {entry.device: entry for entry in ENTRIES}
DEVICES.update(_BY_DEVICE)
# The values of ``engine=`` other than "auto".
NAMES = ("torch", *_BY_NAME)


def available_engines() -> dict[str, str]:
    """The engines by name, each with ``"available"`` or the reason why it is not.

    ``torch`` is the plain form and always available; ``native`` is compiled C for the CPU; ``triton`` is for CUDA devices.
    Span scores use ``torch``, and on CUDA devices ``triton``, except in float64, with heads wider than 128, or in the shared
    form with ``method="tiles"``.

    Example:
        >>> available_engines()["torch"]
        'available'
    """
    found = {"torch": "available"}
    for entry in ENTRIES:
        there, reason = entry.engine.available()
        found[entry.name] = "available" if there else reason
    return found


def choose(who: str, engine: str, x: Tensor, terms: DenseTerms | SparseTerms, *others: Any) -> Engine | None:
    """The engine for scores ``x [R, L]``, their terms, and any ``others`` of the call; None is the plain form.

    ``"auto"`` takes the fast engine of the device if that supports the call. It takes the plain form for tensors that cannot be
    read through their data pointer (``manyhot.engines.readable``), for types that the fast engine does not support, and for
    empty scores.
    """
    if engine == "torch":
        return None
    if engine != "auto":
        _check_named_engine(who, engine, x, terms)
    if x.numel() == 0 or not can_be_read((x, *terms, *others)):
        return None
    on_cuda = x.is_cuda
    if engine != "auto":
        entry = _BY_NAME[engine]
    elif on_cuda or x.is_cpu:
        entry = _BY_DEVICE["cuda" if on_cuda else "cpu"]
    else:
        other = _BY_DEVICE.get(x.device.type)
        if other is None:
            return None
        entry = other
    return entry.engine if is_there(entry.name, x.get_device() if on_cuda else -1) and entry.engine.supports(x, terms) else None


def entry_for(engine: str, device: str) -> Entry | None:
    """The entry of the engine with this name, or, for ``"auto"``, of the device's engine; None if there is none."""
    return _BY_DEVICE.get(device) if engine == "auto" else _BY_NAME.get(engine)


def _check_named_engine(who: str, engine: str, x: Tensor, terms: DenseTerms | SparseTerms) -> None:
    """Check that the engine that the user named supports the call."""
    if not is_there(engine):
        raise ValueError(f"{who}: engine {engine!r} is not available: {available_engines()[engine]} Use engine='auto'.")
    if x.numel() and not _BY_NAME[engine].engine.supports(x, terms):
        raise ValueError(
            f"{who}: engine {engine!r} cannot serve {x.dtype} logits on {x.device.type} with these labels. Use engine='auto'."
        )


def is_there(name: str, device: int = -1) -> bool:
    """Whether the engine can be used, for CUDA scores on device number ``device``; if not, warns once.

    A compiled graph treats the answer as a constant.
    """
    entry = _BY_NAME[name]
    there, reason = entry.engine.available(device)
    if not there and device >= 0:
        entry.gate.warn_once(reason)
    return there


def close(name: str, error: Exception) -> None:
    """Turn off an engine that failed, for the rest of the process, and warn once."""
    _BY_NAME[name].gate.close(error)


# The attribute that torch.compiler.assume_constant_result sets; calling that would import the whole compiler.
is_there._dynamo_marked_constant = True  # type: ignore[attr-defined]
