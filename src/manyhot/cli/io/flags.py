"""Flags made from descriptions, so that a setting is named and explained in one place only."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

# Arguments as messages of the library name them: `labels`, `header=False`, `separator=' '`.
_ARGUMENT = re.compile(r"`([a-z_]+)(?:=('[^`]*'|[A-Za-z0-9]+))?`")
METAVARS: dict[Any, str] = {str: "TEXT", int: "N", float: "X", list[str]: "TEXT"}


@dataclass(frozen=True)
class Flag:
    """One flag.

    Args:
        name: the Python name; the flag is the same with dashes.
        type: ``str``, ``int``, ``float``, ``bool`` or ``list[str]``.
        help: one line.
        default: the default value, for the help text only.
        choices: offered by the shell's completion.
    """

    name: str
    type: Any
    help: str
    default: Any = None
    choices: tuple[str, ...] = ()


def flags_of(settings: type, *, choices: dict[str, tuple[str, ...]] | None = None) -> list[Flag]:
    """A flag for each field of a dataclass whose fields carry ``metadata["help"]``."""
    hints = get_type_hints(settings)
    return [
        Flag(
            each.name,
            _plain_type(hints[each.name]),
            each.metadata["help"],
            each.default,
            (choices or {}).get(each.name, ()),
        )
        for each in fields(settings)
    ]


def with_flags(into: str, flags: Iterable[Flag], *, panel: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command flags that arrive together as the dict ``into``, which holds those that were given and no others.

    Args:
        into: the name of the command's argument that takes the dict.
        flags: the flags to add.
        panel: the heading above them in the help.
    """
    listed = list(flags)
    added = [_parameter(flag, panel) for flag in listed]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        kept = [parameter for name, parameter in signature.parameters.items() if name != into]
        taken = {parameter.name for parameter in kept}
        clash = taken & {flag.name for flag in listed}
        if clash:
            raise ValueError(f"with_flags: {sorted(clash)} are flags of the command already.")

        @functools.wraps(command)
        def wrapper(**values: Any) -> None:
            given = {flag.name: values.pop(flag.name) for flag in listed}
            command(**values, **{into: {name: value for name, value in given.items() if value is not None}})

        parameters = [*kept, *added]
        wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapper

    return decorate


def name_flags(message: str, switches: Mapping[str, bool]) -> str:
    """A message of the library with its arguments as flags.

    Args:
        message: names arguments between backticks.
        switches: the flags there are, by their Python names; True for a flag that takes no value.

    Example:
        >>> name_flags("`learning_rate` must be a number > 0; got -1.", {"learning_rate": False})
        '--learning-rate must be a number > 0; got -1.'
    """

    def flag(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        if name not in switches:
            return match[0]
        dashed = name.replace("_", "-")
        if value in ("True", "False") and switches[name]:
            return f"--{dashed}" if value == "True" else f"--no-{dashed}"
        quoted = value if value is None or " " in value else value.strip("'")
        return f"--{dashed}" if value is None else f"--{dashed} {quoted}"

    return _ARGUMENT.sub(flag, message)


def _parameter(flag: Flag, panel: str) -> inspect.Parameter:
    dashed = "--" + flag.name.replace("_", "-")
    declared = f"{dashed}/--no-{dashed[2:]}" if flag.type is bool else dashed
    option = typer.Option(
        declared,
        help=flag.help,
        metavar=METAVARS.get(flag.type),
        rich_help_panel=panel,
        show_default=_shown(flag.default),
        autocompletion=_completer(flag.choices) if flag.choices else None,
    )
    return inspect.Parameter(
        flag.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[flag.type | None, option]
    )


def _shown(default: Any) -> str | bool:
    """The default as the help prints it; a default that depends on the data is not printed."""
    if default is None or default == "":
        return False
    return {True: "yes", False: "no"}[default] if isinstance(default, bool) else str(default)


def _completer(choices: tuple[str, ...]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


def _plain_type(hint: Any) -> Any:
    """``T`` for ``T`` and ``T | None``; ``str`` for a setting that takes a number or a word."""
    if isinstance(hint, UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        hint = str if str in parts else parts[0]
    if get_origin(hint) is tuple:
        return list[get_args(hint)[0]]  # type: ignore[misc]
    return hint
