"""The page of the public names, docs/api.md: ``python tests/api_page.py`` writes it anew."""

import importlib
import inspect
from pathlib import Path

import manyhot
from manyhot._doors import read_stub

SOURCE = Path(manyhot.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "api.md"
# Packages whose frameworks are installed apart have pages of their own.
APART = "integrations"
OPENING = """# Public names

Every name below can be imported from its package, `from manyhot.losses import zlpr_loss`, and those marked with a dot from
`manyhot` too. Nothing is loaded before it is used. `help(name)` has shapes, arguments and an example.
"""


def packages() -> list[str]:
    """The packages with a door, the top one left out."""
    folders = sorted(path.parent for path in SOURCE.rglob("__init__.pyi"))
    dotted = [".".join(("manyhot", *folder.relative_to(SOURCE).parts)) for folder in folders if folder != SOURCE]
    return [name for name in dotted if APART not in name.split(".")]


def names_of(package: str) -> list[str]:
    """The public names of a package, the top one's own among them where no package has them."""
    return sorted(read_stub(SOURCE.joinpath(*package.split(".")[1:]) / "__init__.pyi"), key=str.lower)


def own_names() -> list[str]:
    """Names of the top that no package shows."""
    shown = {name for package in packages() for name in names_of(package)}
    return [name for name in names_of("manyhot") if name not in shown]


def row(package: str, name: str, *, top: bool) -> str:
    """A line of a table: the name, a dot where the top has it, the first line of its documentation."""
    thing = getattr(importlib.import_module(package), name)
    said = inspect.getdoc(thing) if callable(thing) else None
    first = (said or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|") or "the registry itself"
    return f"| `{name}` | {'·' if top else ''} | {first} |"


def page() -> str:
    """The whole page."""
    top = set(names_of("manyhot"))
    parts = [OPENING]
    for package, names in [("manyhot", own_names()), *((package, names_of(package)) for package in packages())]:
        if names:
            rows = [row(package, name, top=name in top) for name in names]
            parts.append("\n".join([f"## {package}", "", "| name | | what it is |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
