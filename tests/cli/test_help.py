"""Help texts: one sentence each, with the default that applies."""

import re

import command_page
import pytest

from manyhot.cli.commands.spans.train import with_span_defaults
from manyhot.cli.io.flags import Flag, flags_of
from manyhot.cli.main import main
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
    assert param.help.count("Default: ") <= 1, param.help
    assert param.show_default is False


def test_defaults_of_zero_and_one_are_on_the_page_of_commands():
    text = command_page.page()
    assert "| `--workers` | Number of worker processes. Default: 1. |" in text
    assert "| `--jobs` | Number of processes; 0 uses one per CPU core. Default: 0. |" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_cut_off_in_the_printed_help(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Usage: " in shown
    assert "\u2026" not in shown


def test_a_paragraph_of_the_help_is_one_line_whatever_its_width_in_the_source():
    assert "\n" not in COMMANDS["predict"].help.split("\n\n")[1]


def test_shared_flags_also_say_the_defaults_of_spans():
    shown = {flag.name: flag.sentence for flag in with_span_defaults(flags_of(TrainSettings))}
    assert shown["clip"].endswith(". Default: 1.0; for spans 5.0.")
    assert shown["dropout"].endswith("Default: 0.3, 0 for bag, 0.5 for wide; for spans 0.5.")
    assert shown["seed"] == "Random seed of the run."


def test_an_empty_default_is_not_shown():
    assert Flag("loss_option", list[str], "option of the loss", ()).shown_default is None
