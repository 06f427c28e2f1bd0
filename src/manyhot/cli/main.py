"""The command ``manyhot``: its verbs in the order a person works, and how errors end it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import manyhot
from manyhot._checks import nearest
from manyhot.cli.commands.catalogs import losses, metrics
from manyhot.cli.commands.compare import compare
from manyhot.cli.commands.demo import demo
from manyhot.cli.commands.evaluate import evaluate
from manyhot.cli.commands.explain import explain
from manyhot.cli.commands.fetch import data
from manyhot.cli.commands.inspect import inspect
from manyhot.cli.commands.predict import predict
from manyhot.cli.commands.report import report
from manyhot.cli.commands.show import show
from manyhot.cli.commands.train import train
from manyhot.cli.commands.tune import tune
from manyhot.data.files.problems import DataError

USAGE, FAILED, INTERRUPTED = 2, 1, 130

app = typer.Typer(
    name="manyhot",
    help="Multi-label learning: from a file of examples and their labels to a model, its scores and predictions.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (demo, inspect, train, evaluate, predict, explain, tune, compare, report, show, losses, metrics):
    app.command()(verb)
app.add_typer(data, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"manyhot {manyhot.__version__}\n")
        raise typer.Exit


@app.callback()
def _everything(
    _: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Multi-label learning: from a file of examples and their labels to a model, its scores and predictions."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 bad data or a failure, 2 wrong usage, 130 interrupted.

    Example:
        >>> main(["--version"])
        manyhot ...
        0
    """
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = typer.main.get_command(app).main(args=given, prog_name="manyhot", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return _stop("interrupted.", INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has left: nobody is there to be told, and Python's own flush at exit would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except DataError as error:
        return _stop(str(error), FAILED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _stop(f"{where}{error.strerror or error}.", FAILED)
    except Exception as error:
        if hasattr(error, "format_message"):
            return _stop(_usage_line(error), USAGE)
        if os.environ.get("MANYHOT_TRACEBACK") or not isinstance(error, (ValueError, TypeError)):
            raise
        return _stop(str(error), FAILED)
    return int(code or 0)


def _stop(message: str, code: int) -> int:
    """One line, whatever is in the message."""
    sys.stderr.write(f"manyhot: {' '.join(message.split())}\n")
    return code


def _usage_line(error: Any) -> str:
    """What the parser found wrong, with the nearest name where there is one, and where to read on."""
    context = error.ctx
    message = str(error.format_message()).split("(Possible options")[0].removeprefix("Invalid value: ").strip()
    option = getattr(error, "option_name", None)
    if option is not None and type(error).__name__ == "NoSuchOption" and context is not None:
        known = [name for parameter in context.command.params for name in (*parameter.opts, *parameter.secondary_opts)]
        message = f"No such option: {option}.{nearest(option, known)}"
    if not message.endswith((".", "?", "!")):
        message += "."
    return message if context is None else f"{message} See: {context.command_path} --help"
