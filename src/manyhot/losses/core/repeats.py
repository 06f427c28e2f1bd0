"""Calls like an earlier one: the checks that the earlier one passed, and its choice of an engine, need not be made again.

A training run calls its loss with scores and labels of the same types and shapes thousands of times, and a small loss takes
longer to check than to compute. What may differ between two calls of a kind is looked at for each: whether the tensors can be
read, whether a gradient is needed, and whether the engine is still in use.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines.again import Again
from manyhot.engines.readable import all_readable
from manyhot.engines.registry import Engine
from manyhot.engines.saved import take_apart
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.fusion import repeated

MOST = 4096
_PLAIN_TYPES = (Tensor, torch.nn.Parameter)


class Repeat:
    """What calls of one kind share: the engine's way to run them again, their place in autograd's graph, and what backward
    needs to know."""

    __slots__ = ("apply", "constants", "run", "settings")

    def __init__(self, run: Any, apply: Any, settings: tuple[Any, ...], constants: list[Any]) -> None:
        self.run, self.apply, self.settings, self.constants = run, apply, settings, constants


# The key that calls of one kind share, and the tensors beside the scores.
Kind = tuple[Any, tuple[Tensor, ...]]
# None for kinds that no engine runs again.
KNOWN: dict[Any, Repeat | None] = {}


def kind_of(who: str, form: str, logits: Any, labels: Any, offset: Any, reduction: str) -> Kind | None:
    """The kind of a call; None for calls that are not repeated."""
    if type(logits) not in _PLAIN_TYPES or not logits.requires_grad or type(offset) is not float:
        return None
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return None
    about = (who, form, offset, reduction, logits.dtype, logits.shape, logits.get_device())
    if type(labels) is Tensor:
        return (*about, labels.dtype, labels.shape, labels.get_device()), (labels,)
    if type(labels) is not SparseLabels or labels.values is not None:
        return None
    indices, offsets = labels.indices, labels.offsets
    lists = (indices.dtype, offsets.shape, labels.num_labels, indices.get_device(), offsets.get_device())
    return (*about, *lists), (indices, offsets)


def repeat(kind: Kind, logits: Any) -> Tensor | None:
    """The loss of a call of this kind; None if none came before, or if this one has to be looked at in full."""
    key, tensors = kind
    known = KNOWN.get(key)
    if known is None:
        return None
    first = tensors[0]
    if not (logits.is_contiguous() and first.is_contiguous()) or first.requires_grad or not all_readable((logits, *tensors)):
        return None
    made = known.run(logits, tensors)
    if made is None:
        return None
    out: Tensor = known.apply(logits, None, (made, tensors, known.settings, known.constants))
    return out


def learn(kind: Kind, x: Tensor, ways: Any, engine: Engine, loss: Any, scale: Any, terms: Any) -> None:
    """Note how the call that was just served can be repeated; ``ways`` is the function of the engine that tells."""
    key, tensors = kind
    if key in KNOWN:
        return
    if len(KNOWN) >= MOST:
        KNOWN.clear()
    found: Again | None = ways(x, terms, loss.form, key[2], scale)
    kept, constants = take_apart((key[2], scale, *terms))
    same = len(kept) == len(tensors) and all(one is other for one, other in zip(kept, tensors, strict=True))
    settings = (engine, loss, type(terms), found and found.scale)
    KNOWN[key] = Repeat(found.run, repeated(x), settings, constants) if found is not None and same else None
