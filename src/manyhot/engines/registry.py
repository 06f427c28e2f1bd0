"""Who computes: the engines by name, which are there, and which one serves a call."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from manyhot.engines.native import engine as native
from manyhot.engines.readable import can_be_read
from manyhot.engines.terms import DenseTerms, LogSum, SparseTerms
from manyhot.engines.triton import engine as triton_engine


class Engine(Protocol):
    """What an engine gives beside the plain form; modules keep it. One that can take two predictions at once has ``rdrop``."""

    def available(self) -> tuple[bool, str]:
        """Whether it is there, and why not."""
        ...

    def supports(self, x: Tensor, terms: DenseTerms | SparseTerms) -> bool:
        """Whether it can serve scores ``x`` with ``terms``."""
        ...

    def sides(self, x: Tensor, terms: DenseTerms | SparseTerms) -> tuple[LogSum, LogSum]:
        """``(pos, neg)`` of scores ``[R, L]``."""
        ...

    def gradient(
        self, x: Tensor, terms: DenseTerms | SparseTerms, pos: LogSum, neg: LogSum, grad_pos: Tensor, grad_neg: Tensor
    ) -> Tensor:
        """What ``terms.gradient`` gives, in the type of ``x``."""
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
        """``(values, grad, offset_grad)``, the last for an offset that is a tensor; with ``whole`` the values are reduced."""
        ...

    def labelwise(self, x: Tensor, terms: DenseTerms | SparseTerms, kind: str, **settings: Any) -> tuple[Tensor, Tensor]:
        """``(values, grad)``."""
        ...

    def total(self, values: Tensor, scale: Tensor | float) -> Tensor:
        """``sum scale values``."""
        ...

    def scale_(self, grad: Tensor, factor: Tensor) -> Tensor:
        """``grad *= factor`` in place."""
        ...


_MODULES: dict[str, Engine] = {"native": native, "triton": triton_engine}  # type: ignore[dict-item]
NAMES = ("torch", *_MODULES)


def available_engines() -> dict[str, str]:
    """The engines by name, each with ``"available"`` or the reason why it is not.

    ``torch`` is the plain form and always there; ``native`` is compiled C for the CPU; ``triton`` serves CUDA devices.
    Span scores are served by ``torch``, and on CUDA devices by ``triton``, except in float64, with heads wider than 128, or
    where the shared form was told to use tiles.

    Example:
        >>> available_engines()["torch"]
        'available'
    """
    found = {"torch": "available"}
    for name, module in _MODULES.items():
        there, reason = module.available()
        found[name] = "available" if there else reason
    return found


def choose(who: str, engine: str, x: Tensor, terms: DenseTerms | SparseTerms, *others: Any) -> Engine | None:
    """The engine for scores ``x [R, L]``, terms, and other tensors or numbers beside them; None is the plain form.

    ``"auto"`` takes the fast engine of the device where it can serve the call, and the plain form for tensors that cannot be
    read by their address (``manyhot.engines.readable``), for types that the fast engine does not have, and for no scores.
    """
    if engine == "torch":
        return None
    if engine != "auto":
        if not _is_there(engine):
            raise ValueError(f"{who}: engine {engine!r} is not available: {available_engines()[engine]} Use engine='auto'.")
        if x.numel() and not _MODULES[engine].supports(x, terms):
            raise ValueError(
                f"{who}: engine {engine!r} cannot serve {x.dtype} logits on {x.device.type} with these labels."
                " Use engine='auto'."
            )
    if x.numel() == 0 or not can_be_read((x, *terms, *others)):
        return None
    name = ("triton" if x.is_cuda else "native") if engine == "auto" else engine
    return _MODULES[name] if _is_there(name) and _MODULES[name].supports(x, terms) else None


def _is_there(name: str) -> bool:
    """Whether the engine is available: looked at once, also while a graph is being compiled."""
    return _MODULES[name].available()[0]


# What torch.compiler.assume_constant_result sets; calling that would import the whole compiler.
_is_there._dynamo_marked_constant = True  # type: ignore[attr-defined]
