"""Settings files: TOML with the tables ``[files]``, ``[read]``, ``[train]`` and ``[search]``, read and written back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

from manyhot._files import write_whole
from manyhot._suggest import nearest
from manyhot.cli.io.reading import READ_FLAGS
from manyhot.training.rows.settings import TrainSettings

CONFIG = "config.toml"
FILE_KEYS = ("train", "validation", "test")
TABLES: dict[str, tuple[str, ...]] = {
    "files": FILE_KEYS,
    "read": tuple(flag.name for flag in READ_FLAGS),
    "train": tuple(each.name for each in fields(TrainSettings)),
    "search": ("trials", "metric", "space"),
}


def read_config(path: str | Path) -> dict[str, dict[str, Any]]:
    """The tables of a settings file; missing ones are empty. The error for an unknown name suggests the nearest one."""
    try:
        given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise typer.BadParameter(f"{path}: there is no such settings file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path}: must be TOML; {error}.") from None
    for table, content in given.items():
        if table not in TABLES:
            owner = next((name for name, keys in TABLES.items() if table in keys), None)
            hint = f" It belongs under [{owner}]." if owner else nearest(table, TABLES)
            raise typer.BadParameter(f"{path}: the tables are {', '.join(TABLES)}; got {table!r}.{hint}")
        if not isinstance(content, Mapping):
            raise typer.BadParameter(f"{path}: [{table}] must be a table; got {content!r}.")
        for key in content:
            if key not in TABLES[table]:
                raise typer.BadParameter(f"{path}: unknown key {key!r} in [{table}].{nearest(key, TABLES[table])}")
    files = {key: [value] if isinstance(value, str) else value for key, value in given.get("files", {}).items()}
    for key, value in files.items():
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise typer.BadParameter(f"{path}: {key} in [files] must be a file or a list of files; got {value!r}.")
    folder = Path(path).absolute().parent
    files = {key: [part if part == "-" else str(folder / part) for part in value] for key, value in files.items()}
    return {"files": files, **{table: dict(given.get(table, {})) for table in TABLES if table != "files"}}


def write_config(path: Path, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a settings file for ``read_config``, atomically. Settings that are None have their default and are not written."""
    lines = ["# All settings of this run. Repeat it with: manyhot train --config THIS_FILE"]
    for table, content in tables.items():
        if table == "search" and not content:
            continue
        lines += ["", f"[{table}]", *(f"{key} = {toml_value(value)}" for key, value in content.items() if value is not None)]
    write_whole(path, ("\n".join(lines) + "\n").encode())


def toml_value(value: Any) -> str:
    r"""A string, number, bool or list in TOML.

    Example:
        >>> print(toml_value(["a\t\"b\"", 0.1, True]))
        ["a\t\"b\"", 0.1, true]
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(part) for part in value) + "]"
    return repr(value)
