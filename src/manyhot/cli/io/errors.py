"""Errors that end a command: one line that says what to do, and an exit code. A traceback is printed only on request."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

FAILED, USAGE, UNEXPECTED, INTERRUPTED = 1, 2, 70, 130
TRACEBACK = "MANYHOT_TRACEBACK"
LONGEST = 1000
# Prefix of messages about settings; it says nothing to a user who typed a flag.
_SETTINGS = re.compile(r"^\w+Settings: ")
OUT_OF_MEMORY = (
    "not enough memory{where}. Try fewer rows at once (--batch-size), a smaller model (--hidden, --max-features),"
    " or a machine with more memory."
)


class ClosedStreamError(Exception):
    """The standard output or input is closed."""


class InterruptionError(Exception):
    """The command was interrupted from the keyboard."""


class _ClosedInput:
    """Replaces a closed standard input, and raises an error when it is read."""

    def __getattr__(self, name: str) -> Any:
        raise ClosedStreamError("the standard input is closed. Name a file, or pipe the rows in.")


def check_streams() -> None:
    """Raise an error if the standard output is closed; a closed input matters only to commands that read it."""
    if sys.stdin is None:
        sys.stdin = cast(Any, _ClosedInput())
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open as long as the process
    if sys.stdout is None:
        raise ClosedStreamError("the standard output is closed. Send it to a file or a pipe, or to /dev/null.")


def ending_of_error(error: BaseException, switches: Callable[[], Mapping[str, bool]] = dict) -> int:
    """Print one line about the error; returns the exit code.

    Args:
        error: the error that ended the command.
        switches: returns the command's flags for ``name_flags``; called if the message names arguments.
    """
    if isinstance(error, SystemExit):
        raise error
    if os.environ.get(TRACEBACK) and not _expected(error):
        raise error
    if isinstance(error, BrokenPipeError):
        # The reader has closed our output; Python's own flush at exit would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    message, code = _message(error)
    if "`" in message and code != UNEXPECTED:
        from manyhot.cli.io.flags import name_flags

        message = name_flags(_SETTINGS.sub("", message), switches())
    stop(message)
    return code


def stop(message: str) -> None:
    """Write the message to the standard error as one line."""
    from manyhot.cli.io.terminal import printable

    text = printable(" ".join(message.split()))
    if len(text) > LONGEST:
        # A quoted value can be a megabyte. Keep the beginning, which says what is wrong, and the end, which has the remedy.
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    sys.stderr.write(f"manyhot: {text}\n")


def _expected(error: BaseException) -> bool:
    return (
        isinstance(error, KeyboardInterrupt | InterruptionError | OSError)
        or type(error).__name__ == "Abort"
        or hasattr(error, "format_message")
    )


def _message(error: BaseException) -> tuple[str, int]:
    from manyhot.data.files.problems import DataError

    if isinstance(error, KeyboardInterrupt | InterruptionError) or type(error).__name__ == "Abort":
        return "interrupted.", INTERRUPTED
    if isinstance(error, ClosedStreamError | DataError):
        return str(error), FAILED
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{str(error.strerror or error).rstrip('.')}.", FAILED
    if hasattr(error, "format_message"):
        return _usage_line(error), USAGE
    if (device := _out_of_memory(error)) is not None:
        return OUT_OF_MEMORY.format(where=device), FAILED
    if isinstance(error, ValueError | TypeError):
        return str(error), FAILED
    text = f"unexpected error, {type(error).__name__}: {error}. Please report it, with the traceback that {TRACEBACK}=1 prints."
    return text, UNEXPECTED


def _out_of_memory(error: BaseException) -> str | None:
    """The device that ran out of memory, as part of the message; None for another error."""
    text = str(error)
    if isinstance(error, MemoryError):
        return f" ({text.rstrip('.')})" if text else ""
    if type(error).__name__ == "OutOfMemoryError":
        return " on the GPU"
    return "" if isinstance(error, RuntimeError) and "can't allocate memory" in text else None


def _usage_line(error: Any) -> str:
    """The parser's message, a suggestion if a known name is similar, and the command that prints the help."""
    from manyhot._suggest import nearest

    context = error.ctx
    message = str(error.format_message()).split("(Possible options")[0].removeprefix("Invalid value: ").strip()
    option = getattr(error, "option_name", None)
    if option is not None and type(error).__name__ == "NoSuchOption" and context is not None:
        known = [name for parameter in context.command.params for name in (*parameter.opts, *parameter.secondary_opts)]
        message = f"No such option: {option}.{nearest(option, known)}"
    elif message.startswith("No such command") and context is not None:
        word = message.split("'")[1] if "'" in message else ""
        message = f"{message.rstrip('.')}.{nearest(word, context.command.list_commands(context))}"
    if not message.endswith((".", "?", "!")):
        message += "."
    return message if context is None else f"{message} See: {context.command_path} --help"
