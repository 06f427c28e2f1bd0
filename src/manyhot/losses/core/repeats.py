"""A cache for repeated loss calls: a call of the same kind as an earlier one skips the checks and the choice of an engine.

A training run calls its loss thousands of times with scores and labels of the same types and shapes, and a small loss takes
longer to check than to compute. What may still differ between two calls of a kind is checked every time: whether the tensors
can be read, whether a gradient is needed, and whether the engine is still in use.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from manyhot.engines.again import Again
from manyhot.engines.readable import all_readable
from manyhot.engines.registry import Engine
from manyhot.engines.saved import take_apart
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.fusion import repeated

MOST = 4096
# Up to this many scores, calling the parts of a loss one by one takes longer than writing a gradient that nobody needs.
FEW_SCORES = {"cuda": 1 << 24, "cpu": 1 << 18}
_PLAIN_TYPES = (Tensor, torch.nn.Parameter)


def in_forward_mode() -> bool:
    """Whether forward-mode derivatives may flow; a gradient that is computed beforehand has none."""
    return getattr(forward_ad, "_current_level", -1) >= 0


def faster_with_gradient(logits: Tensor) -> bool:
    """Whether the one pass that also computes the gradient is faster than the many small ones that do not. On CPUs a compiler
    merges the small ones."""
    device = logits.device.type
    return logits.numel() <= FEW_SCORES.get(device, 0) and not (device == "cpu" and torch.compiler.is_compiling())


class Repeat:
    """A cache entry for one kind of call: the engine's function that runs it, the function that adds it to autograd's graph,
    and the settings and constants of backward."""

    __slots__ = ("apply", "constants", "run", "settings")

    def __init__(self, run: Any, apply: Any, settings: tuple[Any, ...], constants: list[Any]) -> None:
        self.run, self.apply, self.settings, self.constants = run, apply, settings, constants


# The cache key of a call, and its tensors other than the scores.
Kind = tuple[Any, tuple[Tensor, ...]]
# None for kinds that no engine can repeat.
KNOWN: dict[Any, Repeat | None] = {}


def kind_of(who: str, form: str, logits: Any, labels: Any, offset: Any, reduction: str) -> Kind | None:
    """The kind of a call; None for calls that are not repeated."""
    if type(logits) not in _PLAIN_TYPES or type(offset) is not float or torch.compiler.is_compiling() or in_forward_mode():
        return None
    if not (logits.requires_grad if torch.is_grad_enabled() else faster_with_gradient(logits)):
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
    """The loss of a call of this kind; None if the kind is not cached, or if this call needs the full checks."""
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
    """Cache how to repeat the call that was just served; ``ways`` is the engine's function that returns how."""
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
