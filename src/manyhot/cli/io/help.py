"""The help of a command as it is printed: paragraphs without line breaks, and defaults in one form, ``Default: ...``."""

from __future__ import annotations

from typing import Any

DEFAULT = "Default: "


def complete_help(command: Any) -> None:
    """Join the lines of each paragraph, and add the default of each flag to its help. Groups: the same for their commands."""
    command.help = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    for param in command.params:
        default = shown_default(param)
        if default is not None:
            param.help = f"{param.help} {DEFAULT}{default}."
        param.show_default = False
    for inner in getattr(command, "commands", {}).values():
        complete_help(inner)


def shown_default(param: Any) -> str | None:
    """The default to print: ``show_default`` if it is a string, otherwise the value. None for switches and missing values."""
    if isinstance(param.show_default, str):
        return str(param.show_default)
    if not param.show_default or isinstance(param.default, bool) or param.default in (None, (), []):
        return None
    return str(param.default)
