"""The generated lists of public names. ``python tests/public_names.py`` writes them after a package's stub has changed:
the top stub ``manyhot/__init__.pyi``, the frozen list ``public_names.txt`` and the pages of docs/api.
"""

import importlib
from pathlib import Path

import api_page
import manyhot
from manyhot._doors import read_stub

SOURCE = Path(manyhot.__file__).parent
STUB = SOURCE / "__init__.pyi"
FROZEN = Path(__file__).parent / "public_names.txt"
# All public names of these packages are names of ``manyhot`` too; of other packages the top stub lists some by hand.
WHOLE = ("data", "engines", "heads", "labels", "losses", "scores", "training")


def top_names() -> dict[str, str]:
    """The names of ``manyhot`` and their modules: all of the packages above, and the names that the stub lists besides."""
    inside = tuple(f"manyhot.{package}." for package in WHOLE)
    names = {name: module for name, module in read_stub(STUB).items() if not module.startswith(inside)}
    for package in WHOLE:
        names |= read_stub(SOURCE / package / "__init__.pyi")
    return names


def stub_text(names: dict[str, str]) -> str:
    """The text of the stub, its imports in the order that ruff keeps: constants, classes, functions of each module."""

    def place(name: str) -> tuple[str, int, str]:
        return names[name], 0 if name.isupper() else 1 if name[0].isupper() else 2, name

    head, _, rest = STUB.read_text().partition("\n\n")
    tail = [line for line in rest.splitlines() if line and not line.startswith("from ")]
    lines = [f"from {names[name]} import {name} as {name}" for name in sorted(names, key=place)]
    return "\n".join([head, "", *lines, *(["", *tail] if tail else []), ""])


if __name__ == "__main__":
    found = top_names()
    STUB.write_text(stub_text(found))
    FROZEN.write_text("\n".join(sorted(found)) + "\n")
    importlib.reload(manyhot)
    api_page.write()
