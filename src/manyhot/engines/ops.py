"""The engines as registered torch operators, which ``torch.compile`` does not trace into.

In eager mode the engines are called directly, which is cheaper. Compiled graphs call these operators; the device decides which
engine runs. Terms are passed field by field; without ``labels`` they are index lists. ``fused``, ``labelwise`` and ``rdrop``
return the reduced loss and its gradient. Backward multiplies the gradient by a factor with ``scaled``, in place if possible
(``manyhot.engines.in_place``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines.in_place import register_lowerings
from manyhot.engines.registry import ENTRIES
from manyhot.engines.terms import DenseTerms, LogSum, SparseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton.launch.gate import interpreted

Packed = tuple[Any, ...]

TERMS = (
    "Tensor? labels, Tensor? indices, Tensor? offsets, Tensor? values, Tensor? where,"
    " Tensor? pos_weight, Tensor? neg_weight, float pos_number, float neg_number, float smoothing"
)
_LIBRARY: Any = torch.library.Library("manyhot", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define(f"sides(Tensor x, {TERMS}) -> (Tensor, Tensor, Tensor, Tensor)")
_LIBRARY.define(
    f"gradient(Tensor x, Tensor pos_shift, Tensor pos_rest, Tensor neg_shift, Tensor neg_rest, Tensor grad_pos,"
    f" Tensor grad_neg, {TERMS}) -> Tensor"
)
_LIBRARY.define(
    "fused(Tensor x, str form, Tensor? offset, float offset_number, Tensor? row_scale, float scale_number,"
    f" {TERMS}) -> (Tensor, Tensor, Tensor)"
)
_LIBRARY.define(
    "labelwise(Tensor x, str kind, float gamma_pos, float gamma_neg, float margin, Tensor? row_scale, float scale_number,"
    f" {TERMS}) -> (Tensor, Tensor)"
)
_LIBRARY.define(
    f"rdrop(Tensor a, Tensor b, float alpha, float link, Tensor? row_scale, float scale_number, {TERMS})"
    " -> (Tensor, Tensor, Tensor)"
)
_LIBRARY.define("scaled(Tensor grad, Tensor factor) -> Tensor")
_LIBRARY.define("scale_(Tensor(a!) grad, Tensor factor) -> ()")
_HALF = f"Tensor x, str form, float offset, float scale, {TERMS}"
_LIBRARY.define(f"half({_HALF}) -> (Tensor, Tensor, Tensor)")
_LIBRARY.define(f"half_scaled(Tensor grad, Tensor used, Tensor factor, {_HALF}) -> Tensor")
_LIBRARY.define(f"half_scale_(Tensor(a!) grad, Tensor used, Tensor factor, {_HALF}) -> ()")


def pack(terms: DenseTerms | SparseTerms) -> Packed:
    """The terms as arguments of the operators."""
    lists: Packed = (None, terms.indices, terms.offsets, terms.values) if isinstance(terms, SparseTerms) else (
        terms.labels, None, None, None,
    )  # fmt: skip
    tensors, numbers = [], []
    for weight in (terms.pos_weight, terms.neg_weight):
        tensors.append(weight if isinstance(weight, Tensor) else None)
        numbers.append(float(weight) if isinstance(weight, (int, float)) else 1.0)
    return *lists, terms.where, *tensors, *numbers, float(terms.smoothing)


def unpack(packed: Packed) -> DenseTerms | SparseTerms:
    """The inverse of ``pack``; a weight of 1 becomes None."""
    labels, indices, offsets, values, where, pos_weight, neg_weight, pos_number, neg_number, smoothing = packed
    pos = pos_weight if pos_weight is not None else (None if pos_number == 1 else pos_number)
    neg = neg_weight if neg_weight is not None else (None if neg_number == 1 else neg_number)
    if labels is not None:
        return DenseTerms(labels, where, pos, neg, smoothing)
    return SparseTerms(indices, offsets, values, where, pos, neg, smoothing)


def fused(
    x: Tensor, terms: DenseTerms | SparseTerms, form: str, offset: Tensor | float, row_scale: Tensor | float
) -> tuple[Tensor, Tensor, Tensor]:
    """``engine.fused`` with ``whole`` as an operator. The gradient of the offset is an empty tensor if the offset is a
    number."""
    out: tuple[Tensor, Tensor, Tensor] = torch.ops.manyhot.fused(x, form, *_split(offset), *_split(row_scale), *pack(terms))
    return out


def sides(x: Tensor, terms: DenseTerms | SparseTerms) -> tuple[LogSum, LogSum]:
    """``engine.sides`` as an operator."""
    out = torch.ops.manyhot.sides(x, *pack(terms))
    return LogSum(*out[:2]), LogSum(*out[2:])


def gradient(
    x: Tensor, terms: DenseTerms | SparseTerms, pos: LogSum, neg: LogSum, grad_pos: Tensor, grad_neg: Tensor
) -> Tensor:
    """``engine.gradient`` as an operator."""
    out: Tensor = torch.ops.manyhot.gradient(x, *pos, *neg, grad_pos, grad_neg, *pack(terms))
    return out


def labelwise(
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    kind: str,
    *,
    gamma_pos: float = 0.0,
    gamma_neg: float = 0.0,
    margin: float = 0.0,
    row_scale: Tensor | float = 1.0,
) -> tuple[Tensor, Tensor]:
    """``engine.labelwise`` with ``whole`` as an operator."""
    powers = (float(gamma_pos), float(gamma_neg), float(margin))
    out: tuple[Tensor, Tensor] = torch.ops.manyhot.labelwise(x, kind, *powers, *_split(row_scale), *pack(terms))
    return out


def rdrop(
    a: Tensor,
    b: Tensor,
    terms: DenseTerms | SparseTerms | None,
    where: Tensor | None = None,
    *,
    alpha: float = 1.0,
    link: float = 1.0,
    row_scale: Tensor | float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """``engine.rdrop`` as an operator, with the values reduced; without labels and without index lists there are no terms."""
    packed = pack(terms) if terms is not None else (None, None, None, None, where, None, None, 1.0, 1.0, 0.0)
    out: tuple[Tensor, Tensor, Tensor] = torch.ops.manyhot.rdrop(a, b, float(alpha), float(link), *_split(row_scale), *packed)
    return out


def scaled(grad: Tensor, factor: Tensor) -> Tensor:
    """``grad * factor`` in the type of ``grad``, as an operator."""
    out: Tensor = torch.ops.manyhot.scaled(grad, factor)
    return out


def half(x: Tensor, terms: DenseTerms | SparseTerms, form: str, offset: float, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """``engine.half_fused`` as an operator: the reduced loss, the gradient, and the factor that it was written with."""
    out: tuple[Tensor, Tensor, Tensor] = torch.ops.manyhot.half(x, form, float(offset), float(scale), *pack(terms))
    return out


def half_scaled(
    grad: Tensor,
    used: Tensor,
    factor: Tensor,
    x: Tensor,
    terms: DenseTerms | SparseTerms,
    form: str,
    offset: float,
    scale: float,
) -> Tensor:
    """``engine.half_finish`` as an operator."""
    settings = (form, float(offset), float(scale), *pack(terms))
    out: Tensor = torch.ops.manyhot.half_scaled(grad, used, factor, x, *settings)
    return out


def _split(value: Tensor | float) -> tuple[Tensor | None, float]:
    return (value, 0.0) if isinstance(value, Tensor) else (None, float(value))


def _scaled(grad: Tensor, factor: Tensor) -> Tensor:
    return (grad * factor).to(grad.dtype)


def _register(engine: Any, key: str) -> None:
    def run_sides(x: Tensor, *terms: Any) -> Packed:
        pos, neg = engine.sides(x, unpack(terms))
        return *pos, *neg

    def run_gradient(x: Tensor, *rest: Any) -> Tensor:
        pos, neg = LogSum(*rest[:2]), LogSum(*rest[2:4])
        grad: Tensor = engine.gradient(x, unpack(rest[6:]), pos, neg, *rest[4:6])
        return grad

    def run_fused(x: Tensor, form: str, offset: Tensor | None, number: float, *rest: Any) -> Packed:
        row_scale, scale_number, *terms = rest
        scale = scale_number if row_scale is None else row_scale
        moved = number if offset is None else offset
        value, grad, slope = engine.fused(x, unpack(tuple(terms)), form, moved, scale, whole=True)
        return value, grad, x.new_empty(0, dtype=torch.float32) if slope is None else slope

    def run_labelwise(x: Tensor, kind: str, gamma_pos: float, gamma_neg: float, margin: float, *rest: Any) -> Packed:
        row_scale, scale_number, *terms = rest
        scale = scale_number if row_scale is None else row_scale
        powers = {"gamma_pos": gamma_pos, "gamma_neg": gamma_neg, "margin": margin}
        out: Packed = engine.labelwise(x, unpack(tuple(terms)), kind, row_scale=scale, whole=True, **powers)
        return out

    def run_rdrop(
        a: Tensor, b: Tensor, alpha: float, link: float, row_scale: Tensor | None, number: float, *rest: Any
    ) -> Packed:
        terms = None if rest[0] is None and rest[1] is None else unpack(rest)
        scale = number if row_scale is None else row_scale
        where = rest[4] if terms is None else None
        values, *grads = engine.rdrop(a, b, terms, where, alpha=alpha, link=link, row_scale=scale)
        return engine.total(values, scale), *grads

    def run_scale(grad: Tensor, factor: Tensor) -> None:
        engine.scale_(grad, factor)

    runs = {"sides": run_sides, "gradient": run_gradient, "fused": run_fused, "labelwise": run_labelwise, "rdrop": run_rdrop}
    runs |= {"scale_": run_scale, "scaled": _scaled}
    for name, run in runs.items():
        _LIBRARY.impl(name, run, key)


def _register_half(engine: Any, key: str) -> None:
    def run_half(x: Tensor, form: str, offset: float, scale: float, *terms: Any) -> Packed:
        value, held = engine.half_fused(x, unpack(terms), form, offset, scale)
        # If there is no gradient yet, NaN as its factor makes backward compute it, because no factor equals NaN.
        return (value, *held[:2]) if held else (value, torch.zeros_like(x), torch.full_like(value, torch.nan))

    def run_scale(grad: Tensor, used: Tensor, factor: Tensor, x: Tensor, *settings: Any) -> None:
        form, offset, scale, *terms = settings
        engine.half_rewrite(grad, used, factor, (x, unpack(tuple(terms)), form, offset, scale))

    def run_scaled(grad: Tensor, *others: Any) -> Tensor:
        own = grad.clone()
        run_scale(own, *others)
        return own

    for name, run in (("half", run_half), ("half_scale_", run_scale), ("half_scaled", run_scaled)):
        _LIBRARY.impl(name, run, key)


for _entry in ENTRIES:
    _register(_entry.engine, _entry.dispatch_key)
    if _entry.engine.FINISHES_HALF:
        _register_half(_entry.engine, _entry.dispatch_key)
if interpreted():
    _register_half(triton_engine, "CPU")


def _number(x: Tensor) -> Tensor:
    return x.new_empty((), dtype=torch.float32)


def _rows(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], dtype=torch.float32)


def _like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _fused_like(x: Tensor, form: str, offset: Tensor | None, *_: Any) -> Packed:  # noqa: ARG001
    return _number(x), _like(x), x.new_empty(0, dtype=torch.float32) if offset is None else _rows(x)


def _scaled_like(grad: Tensor, *_: Any) -> Tensor:
    register_lowerings()
    return torch.empty_like(grad)


torch.library.register_fake("manyhot::sides", lambda x, *_: tuple(_rows(x) for _ in range(4)), lib=_LIBRARY)
torch.library.register_fake("manyhot::gradient", lambda x, *_: _like(x), lib=_LIBRARY)
torch.library.register_fake("manyhot::fused", _fused_like, lib=_LIBRARY)
torch.library.register_fake("manyhot::labelwise", lambda x, *_: (_number(x), _like(x)), lib=_LIBRARY)
torch.library.register_fake("manyhot::rdrop", lambda a, b, *_: (_number(a), _like(a), _like(b)), lib=_LIBRARY)
torch.library.register_fake("manyhot::scaled", _scaled_like, lib=_LIBRARY)
torch.library.register_fake("manyhot::scale_", lambda *_: None, lib=_LIBRARY)
torch.library.register_fake("manyhot::half", lambda x, *_: (_number(x), _like(x), _number(x)), lib=_LIBRARY)
torch.library.register_fake("manyhot::half_scaled", _scaled_like, lib=_LIBRARY)
torch.library.register_fake("manyhot::half_scale_", lambda *_: None, lib=_LIBRARY)
