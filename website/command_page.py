"""docs/commands.md, generated from the help texts: ``python website/command_page.py`` writes it."""

from pathlib import Path
from typing import Any

from manyhot.cli.commands import COMMANDS
from manyhot.cli.main import load_command

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
OPENING = """# Commands and flags

This page is generated from the help texts, which `manyhot VERB --help` prints. [The command line](command-line.md) explains how
the commands work together.
"""


def commands() -> dict[str, Any]:
    """Every command by name; a group is replaced by its commands."""
    found: dict[str, Any] = {}
    for name in COMMANDS:
        command = load_command(name)
        if hasattr(command, "list_commands"):
            found |= {f"{name} {inner}": command.get_command(None, inner) for inner in command.list_commands(None)}
        else:
            found[name] = command
    return found


def section(name: str, command: Any) -> str:
    """A command: its description, its usage, and its flags under the headings of its help."""
    arguments = [each for each in command.params if not each.opts[0].startswith("-") and not each.hidden]
    calls = " ".join(f"{each.name.upper()}{'...' if each.nargs == -1 else ''}" for each in arguments)
    parts = [f"## manyhot {name}", command.help.strip(), f"    manyhot {name} {calls}".rstrip()]
    if arguments:
        parts.append(_table("argument", [(f"`{each.name.upper()}`", each) for each in arguments]))
    panels: dict[str | None, list[Any]] = {}
    for each in command.params:
        if each.opts[0].startswith("-") and not each.hidden:
            panels.setdefault(each.rich_help_panel, []).append(each)
    for panel, options in panels.items():
        heading = [f"**{panel}**"] if panel else []
        parts += [*heading, _table("flag", [(_flags(each), each) for each in options])]
    return "\n\n".join(parts) + "\n"


def _flags(option: Any) -> str:
    return ", ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))


def _table(first: str, rows: list[tuple[str, Any]]) -> str:
    lines = [f"| {first} | what it does |", "|---|---|"]
    for words, each in rows:
        said = (each.help or "").strip().replace("\n", " ").replace("|", "\\|")
        lines.append(f"| {words} | {said} |")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    return "\n".join([OPENING, *(section(name, command) for name, command in commands().items())])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
