"""Lazy imports: a package lists all its public names and imports their modules when they are first used.

The names are listed once, in the package's ``__init__.pyi``, which type checkers read too.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def open_door(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Args:
        package: its ``__name__``.
        file: its ``__file__``; the stub is beside it.
    """
    homes = read_stub(Path(file).with_suffix(".pyi"))
    rooms = _rooms(Path(file).parent)

    def getattr_(name: str) -> Any:
        if name in homes:
            value = getattr(importlib.import_module(homes[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        if name in rooms:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def dir_() -> list[str]:
        return sorted({*homes, *rooms, *vars(sys.modules[package])})

    return getattr_, dir_, sorted(homes)


def read_stub(path: Path) -> dict[str, str]:
    """Public names and the modules that define them, from lines ``from module import name as name``."""
    lines = ast.parse(path.read_text(encoding="utf-8")).body
    return {
        alias.name: node.module
        for node in lines
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


def _rooms(folder: Path) -> set[str]:
    """Public modules and packages in a folder."""
    modules = {path.stem for path in folder.glob("*.py")}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return {name for name in modules | packages if not name.startswith("_")}
