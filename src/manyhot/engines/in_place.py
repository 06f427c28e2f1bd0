"""Makes Inductor, the compiler of ``torch.compile``, multiply a finished gradient by its factor in place.

The factor of a loss is nearly always 1, and then nothing is left to do. But Inductor writes a product to new memory, so it
would read and write every gradient once more, which takes almost as long as the loss. Torch marks saved tensors that nothing
else refers to and only one backward reads (donated buffers). Those are multiplied in place, by a kernel that does nothing if
the factor is 1. All others are copied as usual.

Torch raises if a backward with donated buffers is run twice, but not for code from its cache on disk (2.11 and 2.13). The
in-place operator changes the version of the saved tensor, so that autograd raises there too, instead of returning a wrong
gradient.

This uses private names of Inductor. If one is missing, the copying operator is called, which is only slower.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch


def register_lowerings() -> None:
    """Register the lowerings of the operators that finish gradients, if Inductor is in use.

    Called while a graph is traced. Inductor is not imported here, because another compiler may be in use and the import takes
    seconds.
    """
    if "torch._inductor.lowering" in sys.modules:
        _register()


@functools.cache
def _register() -> bool:
    """Whether the lowerings could be registered."""
    operators = torch.ops.manyhot
    try:
        from torch._inductor import lowering

        for copying, in_place in ((operators.scaled, operators.scale_), (operators.half_scaled, operators.half_scale_)):
            lower = _lowering(copying.default, in_place.default)
            lowering.register_lowering(copying.default, type_promotion_kind=None)(lower)
    except (ImportError, AttributeError, TypeError):
        return False
    return True


def _lowering(copying: Any, in_place: Any) -> Any:
    """The lowering of the operator ``copying``: ``in_place`` if the gradient is a donated buffer with no other use."""
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import V

    graph_of: Any = V
    donated, call, fallback = ir.DonatedBuffer, ir.FallbackKernel.create, lowering.fallback_handler
    functional = fallback(copying, add_to_fallback_set=False)  # type: ignore[no-untyped-call]

    def lower(grad: Any, *others: Any) -> Any:
        graph = graph_of.graph
        only_use = len(graph.current_node.args[0].users) == 1
        if not only_use or not isinstance(graph.graph_inputs_original.get(grad.get_name()), donated):
            return functional(grad, *others)
        call(in_place, grad, *others)
        return grad

    return lower
