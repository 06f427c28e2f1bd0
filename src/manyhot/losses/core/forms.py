"""Forms of the family: functions of the two sides of a row, each defined in the file of its loss.

Engines refer to a form by its name. ``side_form`` registers the plain function under that name, as the reference for the
engines and as their fallback.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from manyhot.engines.terms import LogSum

Form = Callable[[LogSum, LogSum, Tensor | float], Tensor]

FORMS: dict[str, Form] = {}

# The cost of one label, given scores and the weights of both sides; and a function that makes one from a loss's settings.
Term = Callable[[Tensor, Tensor, Tensor], Tensor]
MakeTerm = Callable[..., Term]

LABEL_TERMS: dict[str, MakeTerm] = {}


def side_form(name: str) -> Callable[[Form], Form]:
    """Register ``(pos, neg, offset) -> values`` as the form that engines call ``name``."""

    def register(form: Form) -> Form:
        FORMS[name] = form
        return form

    return register


def label_term(*names: str) -> Callable[[MakeTerm], MakeTerm]:
    """Register ``(**powers) -> term`` under the engines' ``names``, for labelwise losses."""

    def register(make: MakeTerm) -> MakeTerm:
        LABEL_TERMS.update(dict.fromkeys(names, make))
        return make

    return register
