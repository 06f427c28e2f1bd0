"""Saves terms in an autograd context: tensors through ``save_for_backward``, other fields as attributes.

Torch frees saved tensors after backward, and raises if one was changed in place. It does neither for a tensor stored as an
attribute of the context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

Constants = list[Any]
# Marks the place of a saved tensor. The compiler of torch 2.11 can compare only constants, not objects.
_SAVED = ...


def take_apart(fields: Iterable[Any]) -> tuple[list[Tensor], Constants]:
    """The tensors among the fields, and the other fields in their places."""
    tensors: list[Tensor] = []
    constants = list(fields)
    for place, field in enumerate(constants):
        # Exact types are compared first: isinstance is slow for None and numbers.
        if field is not None and type(field) is not float and isinstance(field, Tensor):
            tensors.append(field)
            constants[place] = _SAVED
    return tensors, constants


def put_together(tensors: Sequence[Tensor], constants: Constants) -> tuple[list[Any], list[Tensor]]:
    """All fields in their order, and the tensors that are left over."""
    rest = iter(tensors)
    fields = [next(rest) if constant is _SAVED else constant for constant in constants]
    return fields, list(rest)
