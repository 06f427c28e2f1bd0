"""Command-line flags, generated from the fields of settings classes: a setting is named and explained in one place only."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from manyhot.cli.io.help import DEFAULT

# How messages of the library name arguments: `labels`, `header=False`, `separator=' '`.
_ARGUMENT = re.compile(r"`([a-z_]+)(?:=('[^`]*'|[A-Za-z0-9]+))?`")
METAVARS: dict[Any, str] = {str: "TEXT", int: "N", float: "X", list[str]: "TEXT"}


@dataclass(frozen=True)
class Flag:
    """One flag.

    Args:
        name: the Python name; the flag is the same with dashes.
        type: ``str``, ``int``, ``float``, ``bool`` or ``list[str]``.
        help: one line; it ends with ``Default: ...`` if the default is not a fixed value.
        default: the default value, for the help text only.
        choices: values that shell completion offers.
    """

    name: str
    type: Any
    help: str
    default: Any = None
    choices: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The help text as a sentence.

        Example:
            >>> Flag("clip", float, "clip the gradient to this norm").sentence
            'Clip the gradient to this norm.'
        """
        return self.help[:1].upper() + self.help[1:].removesuffix(".") + "."

    @property
    def shown_default(self) -> str | None:
        """The default as the help prints it; None if there is none, or if ``help`` already says it."""
        if self.default in (None, "", ()) or DEFAULT in self.help:
            return None
        return {True: "yes", False: "no"}[self.default] if isinstance(self.default, bool) else str(self.default)


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


def with_other_defaults(flags: Iterable[Flag], others: Iterable[Flag], *, name: str) -> list[Flag]:
    """``flags`` with the default of another task added to the help, where it differs.

    Args:
        flags: the flags to show.
        others: the flags of the other task; those with the same name are compared.
        name: the name of the other task.

    Example:
        >>> rows, spans = Flag("clip", float, "largest norm", 1.0), Flag("clip", float, "largest norm", 5.0)
        >>> with_other_defaults([rows], [spans], name="spans")[0].help
        'largest norm. Default: 1.0; for spans 5.0'
    """
    by_name, found = {flag.name: flag for flag in others}, []
    for flag in flags:
        other = by_name.get(flag.name, flag)
        said = other.help.partition(DEFAULT)[2] or other.shown_default
        own = flag.help.partition(DEFAULT)[2] or flag.shown_default
        if said in (None, own):
            found.append(flag)
        else:
            help = flag.help if DEFAULT in flag.help else f"{flag.help}. {DEFAULT}{own or 'none'}"
            found.append(replace(flag, help=f"{help}; for {name} {said}"))
    return found


def with_flags(into: str, flags: Iterable[Flag], *, panel: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add flags to a command. The command gets the flags that the user gave as one dict.

    Args:
        into: the name of the command's argument for this dict.
        flags: the flags to add.
        panel: the heading above the flags in the help.
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
    """A message of the library with arguments replaced by flags.

    Args:
        message: names arguments in backticks.
        switches: the command's flags by their Python names; True for a flag that takes no value.

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
        help=flag.sentence,
        metavar=METAVARS.get(flag.type),
        rich_help_panel=panel,
        show_default=flag.shown_default or False,
        autocompletion=_completer(flag.choices) if flag.choices else None,
    )
    return inspect.Parameter(
        flag.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[flag.type | None, option]
    )


def _completer(choices: tuple[str, ...]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


def _plain_type(hint: Any) -> Any:
    """``T`` for ``T`` and ``T | None``; ``str`` for a setting that takes a number or a string."""
    if isinstance(hint, UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        hint = str if str in parts else parts[0]
    if get_origin(hint) is tuple:
        return list[get_args(hint)[0]]  # type: ignore[misc]
    return hint
