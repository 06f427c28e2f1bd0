"""The formulas of docs/scale.md, as the page has them."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


def formulas():
    """The functions that the page defines, by name."""
    names = {}
    for example in doctest.DocTestParser().get_examples(PAGE.read_text(encoding="utf-8")):
        if example.source.startswith("def "):
            exec(example.source, names)
    return names
