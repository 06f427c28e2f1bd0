"""Help texts: one sentence each, with the default that applies."""

import re

import command_page
import pytest

from manyhot.cli.commands.spans.train import with_span_defaults
from manyhot.cli.io.flags import Flag, flags_of
from manyhot.training.rows.settings import TrainSettings

COMMANDS = command_page.commands()


def params():
    """Every parameter of every command, with its command's name."""
    return [pytest.param(each, id=f"{name} {each.opts[0]}") for name, command in COMMANDS.items() for each in command.params]


@pytest.mark.parametrize("param", params())
def test_every_help_text_is_one_sentence_cased_line(param):
    assert re.fullmatch(r"[A-Z-].*\.", param.help.strip()), param.help
    assert "\n" not in param.help.strip()


@pytest.mark.parametrize("param", params())
def test_no_flag_tells_two_defaults(param):
    assert not ("Default: " in param.help and param.show_default not in (True, False, None)), param.help


def test_defaults_of_zero_and_one_are_on_the_page_of_commands():
    text = command_page.page()
    assert "| `--workers` | Number of worker processes. [default: 1] |" in text
    assert "| `--jobs` | Number of processes; 0: one per CPU core. [default: 0] |" in text


def test_shared_flags_also_say_the_defaults_of_spans():
    shown = {flag.name: flag.sentence for flag in with_span_defaults(flags_of(TrainSettings))}
    assert shown["clip"].endswith("; 5.0 by default for spans.")
    assert shown["dropout"].endswith("Default: 0.3, 0 for bag, 0.5 for wide; for spans 0.5.")
    assert shown["seed"] == "Random seed of the run."


def test_an_empty_default_is_not_shown():
    assert Flag("loss_option", list[str], "option of the loss", ()).shown_default is None
