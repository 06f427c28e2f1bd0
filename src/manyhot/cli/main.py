"""The command ``manyhot``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import manyhot
from manyhot.cli.commands import COMMANDS
from manyhot.cli.io.errors import InterruptionError, check_streams, ending_of_error
from manyhot.cli.io.help import complete_help

ABOUT = "Multi-label learning: from a file of labelled examples to a model and its predictions."


class LazyCommands(TyperGroup):
    """A group that imports a command only when it is called; the list of commands comes from the registry."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Names in the order of the registry: inspect, train, evaluate, predict, ..."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """A placeholder with the command's name and help."""
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(str(name)), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Ctrl-C becomes an ``InterruptionError``, because typer would end the command without a message."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptionError from None


def load_command(name: str) -> Any:
    """Import a command of the registry and build it.

    Example:
        >>> load_command("losses").name
        'losses'
    """
    found = getattr(importlib.import_module(f"manyhot.cli.commands.{COMMANDS[name][0]}"), name)
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings=_HELP)
        app.command(name)(found)
        found = app
    command = typer.main.get_command(found)
    command.name = name
    complete_help(command)
    return command


_HELP: dict[Any, Any] = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(name="manyhot", help=ABOUT, cls=LazyCommands, pretty_exceptions_enable=False, context_settings=_HELP)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"manyhot {manyhot.__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=False)
def _everything(
    _: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Multi-label learning: from a file of labelled examples to a model and its predictions."""


def _switches(given: Sequence[str]) -> dict[str, bool]:
    """The flags of the called command by their Python names; True for flags that take no value."""
    name = next((each for each in given if not each.startswith("-")), "")
    if name not in COMMANDS:
        return {}
    command = load_command(name)
    if (parts := getattr(command, "commands", None)) is not None:
        command = next((parts[each] for each in given if each in parts), command)
    options = [each for each in command.params if any(part.startswith("--") for part in each.opts)]
    return {str(part)[2:].replace("-", "_"): bool(getattr(each, "is_flag", False)) for each in options for part in each.opts}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0 done, 1 bad data or a failure, 2 wrong usage, 70 an error in manyhot itself, 130 interrupted.

    Example:
        >>> main(["--version"])
        manyhot ...
        0
    """
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        check_streams()
        code = typer.main.get_command(app).main(args=given, prog_name="manyhot", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:
        return ending_of_error(error, lambda: _switches(given))
    return int(code or 0)
