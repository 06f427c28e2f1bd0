"""What an autograd context keeps of terms: their tensors through ``save_for_backward``, and the rest as it is.

Torch frees saved tensors after backward, and raises if one was changed in place since. A tensor that hangs on the context by
itself would have neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

Constants = list[Any]
# Stands in the place of a tensor that was saved. Compilers of torch 2.11 compare constants only, not objects.
_SAVED = ...


def take_apart(fields: Iterable[Any]) -> tuple[list[Tensor], Constants]:
    """The tensors among the fields, and the other fields in their places."""
    tensors: list[Tensor] = []
    constants = list(fields)
    for place, field in enumerate(constants):
        # None and numbers are told by their type first: isinstance takes long for them.
        if field is not None and type(field) is not float and isinstance(field, Tensor):
            tensors.append(field)
            constants[place] = _SAVED
    return tensors, constants


def put_together(tensors: Sequence[Tensor], constants: Constants) -> tuple[list[Any], list[Tensor]]:
    """All fields in their order, and the tensors that are left over."""
    rest = iter(tensors)
    fields = [next(rest) if constant is _SAVED else constant for constant in constants]
    return fields, list(rest)
