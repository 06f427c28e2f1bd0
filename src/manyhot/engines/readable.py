"""Which tensors an engine may read through their data pointer.

The native and the Triton engine read raw memory. That is safe for a plain tensor or a Parameter. It is not safe for a subclass
(DTensor, FakeTensor), a wrapper of ``torch.func``, a lazy zero or a negative view: they have no storage, or their storage holds
other values. And while a dispatch mode, a transform or a tracer is active, it would miss work that does not go through torch's
operators. In all of these cases the plain form is used.

The checks use private functions of torch. They are looked up once; if a version lacks one, no tensor counts as readable, and
the first call warns.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def _private(path: str) -> Any:
    """A private name of torch, or None if this version does not have it."""
    try:
        return operator.attrgetter(path)(torch._C)
    except AttributeError:
        return None


_NAMES = (
    "_are_functorch_transforms_active",
    "_len_torch_dispatch_stack",
    "_get_tracing_state",
    "_dispatch_tls_is_dispatch_key_included",
    "DispatchKey.PreDispatch",
    "_dispatch_keys",
)
_FOUND = {name: _private(name) for name in _NAMES}
_transforms_active, _count_modes, _tracer, _is_included, _PRE_DISPATCH, _dispatch_keys = _FOUND.values()
MISSING = tuple(name for name, found in _FOUND.items() if found is None)
KNOWN = not MISSING

# The device types of all engines; ``manyhot.engines.registry`` fills it.
DEVICES: set[str] = set()
# The dispatch keys of plain tensors, as numbers; those of a device are added when its first tensor is seen.
_PLAIN: set[int] = set()


def can_be_read(parts: Iterable[Any]) -> bool:
    """Whether an engine may compute with these tensors and numbers, in eager mode or while a graph is being compiled."""
    return all_compilable(parts) if torch.compiler.is_compiling() else all_readable(parts)


def is_watched() -> bool:
    """Whether a transform, tracer or dispatch mode is active, so that all work must go through torch's operators."""
    return not KNOWN or bool(
        _transforms_active() or _count_modes() or _tracer() is not None or _is_included(_PRE_DISPATCH),
    )


def is_readable(tensor: Tensor) -> bool:
    """Whether the tensor's data pointer points to its values."""
    kind = type(tensor)
    if (kind is not Tensor and kind is not torch.nn.Parameter) or not KNOWN:
        return False
    return _dispatch_keys(tensor).raw_repr() in _PLAIN or _is_new_plain(tensor)


def all_readable(parts: Iterable[Any]) -> bool:
    """Whether all tensors among ``parts`` can be read, and no transform, tracer or dispatch mode is active."""
    if not KNOWN:
        _warn_of_missing()
        return False
    if _transforms_active() or _count_modes() or _tracer() is not None or _is_included(_PRE_DISPATCH):
        return False
    # This runs for every call: exact types are compared first, which is faster than isinstance, above all for None.
    for part in parts:
        kind = type(part)
        if kind is Tensor:
            if _dispatch_keys(part).raw_repr() not in _PLAIN and not _is_new_plain(part):
                return False
        elif part is not None and kind is not float and isinstance(part, Tensor) and not is_readable(part):
            return False
    return True


def all_compilable(parts: Iterable[Any]) -> bool:
    """The same in a graph that is being compiled: fake tensors stand for readable ones, and operators accept them."""
    if not KNOWN:
        _warn_of_missing()
        return False
    if _transforms_active():
        return False
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return not any(isinstance(part, Tensor) and is_traceable_wrapper_subclass(part) for part in parts)


@functools.cache
def _warn_of_missing() -> None:
    """Warn once that the fast engines are not used, and why."""
    warnings.warn(
        f"manyhot: the fast engines are not used, because torch {torch.__version__} has no {', '.join(MISSING)}; the plain form"
        " computes instead. Use a version of torch that manyhot names in its constraints.",
        RuntimeWarning,
        stacklevel=2,
    )


def _is_new_plain(tensor: Tensor) -> bool:
    """Whether the tensor has the dispatch keys of a new tensor on its device. Slow; called once per device, and for unusual
    tensors."""
    if tensor.device.type not in DEVICES or is_watched():
        return False
    _PLAIN.update(_plain_keys(tensor.device.type))
    return _dispatch_keys(tensor).raw_repr() in _PLAIN


@functools.cache
def _plain_keys(device: str) -> tuple[int, ...]:
    """The dispatch keys of new tensors, inside and outside of inference mode."""
    found = []
    for inference in (False, True):
        with torch.inference_mode(inference):
            found.append(_dispatch_keys(torch.empty(0, device=device)).raw_repr())
    return tuple(found)
