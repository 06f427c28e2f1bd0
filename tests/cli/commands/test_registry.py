"""The registry of commands says what the commands themselves say."""

import inspect
from pathlib import Path

import pytest

import manyhot
from manyhot.cli.commands import COMMANDS
from manyhot.cli.main import load_command

FOLDER = Path(manyhot.__file__).parent / "cli" / "commands"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_help_of_a_command_begins_as_the_registry_says(name):
    command = load_command(name)
    assert command.name == name
    assert inspect.cleandoc(command.help or "").splitlines()[0] == COMMANDS[name][1]


def test_every_module_of_commands_is_in_the_registry():
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert modules == {module for module, _ in COMMANDS.values()}
