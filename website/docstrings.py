"""A griffe extension: the section ``Example:`` of our docstrings is one of examples, which run and are shown as code."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^Example:[ ]*$", re.MULTILINE)


class Examples(griffe.Extension):
    """Renames the section before it is parsed; left as it is, griffe would take it for a remark in prose."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:  # noqa: ARG002
        """Look at every docstring once."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub("Examples:", obj.docstring.value)
