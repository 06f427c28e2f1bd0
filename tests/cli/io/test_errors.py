"""How a command ends when something is wrong: one line, an exit code, no traceback."""

import subprocess
import sys

import pytest
import torch

from cli.processes import command, environment, real
from manyhot.cli.io.errors import FAILED, UNEXPECTED, ending_of_error
from manyhot.cli.main import main


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        (MemoryError(), "not enough memory", FAILED),
        (MemoryError("Unable to allocate 7 GiB"), "Unable to allocate 7 GiB", FAILED),
        (torch.OutOfMemoryError("CUDA out of memory"), "not enough memory on the GPU", FAILED),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "not enough memory", FAILED),
        (RuntimeError("something broke"), "unexpected error, RuntimeError: something broke", UNEXPECTED),
        (ValueError("bad\nvalue"), "bad value", FAILED),
    ],
)
def test_every_error_is_one_line(error, words, code, capsys):
    assert ending_of_error(error) == code
    told = capsys.readouterr().err
    assert told.startswith("manyhot: ")
    assert words in told
    assert told.count("\n") == 1


def test_a_very_long_message_keeps_its_beginning_and_its_end(capsys):
    ending_of_error(ValueError("what is wrong: " + "x" * 100_000 + " the remedy"))
    told = capsys.readouterr().err
    assert len(told) < 2100
    assert told.startswith("manyhot: what is wrong: ")
    assert told.endswith(" the remedy\n")


def test_a_traceback_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("MANYHOT_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="something broke"):
        ending_of_error(RuntimeError("something broke"))


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["train", "x", "--lr", "1"], "--learning-rate"),
        (["train", "x", "--learnig-rate", "1"], "--learning-rate"),
        (["evalute"], "evaluate"),
    ],
)
def test_a_wrong_word_is_answered_with_the_one_meant(arguments, meant, run):
    done = run(*arguments)
    assert done.code == 2
    assert f"Did you mean '{meant}'?" in done.err


def test_dashes_alone_make_no_flag_like_another(run):
    assert "Did you mean" not in run("train", "x", "--hierarchy", "y").err


def test_a_word_of_two_letters_is_not_answered_by_chance(run):
    done = run("train", "x", "--loss", "lp")
    assert done.code != 0
    assert "Did you mean 'zlpr'" not in done.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--learning-rate", "-1"], "manyhot: --learning-rate must be a number > 0 and <= 1e+06; got -1.0."),
        (["--row-threshold", "--learn-threshold"], "--learn-threshold and --row-threshold must not be combined"),
        (["--loss", "focal", "--loss-option", "gama=2"], "manyhot: --loss-option must suit the loss focal"),
        (["--model", "conv"], "train: --model must be linear"),
        (["--seed", "9" * 20], "manyhot: --seed must be a whole number >= 0 and <= 9007199254740991; got 9999"),
        (["--threads", "100000"], "manyhot: --threads must be a whole number >= 0 and <= 1024; got 100000"),
        (["--pos-weight", "1e308"], "manyhot: --pos-weight must be a number > 0 and <= 1e+06; got 1e+308"),
        (["--metric", "P@7"], "train: k in --metric must not exceed the number of labels, 3; got 'P@7'."),
        (["--teacher", "nowhere"], "train: --teacher must be the folder of a run or of a model; got "),
        (["--task", "spans", "--seed", "9" * 20], "manyhot: --seed must be a whole number >= 0 and <= 9007199254740991"),
        (["--rdrop", "1"], "train: --rdrop must be left out: the body linear"),
        (["--learning-rate", "1e6", "--model", "bag"], "Choose a smaller --learning-rate, or leave it out."),
        (["--task", "spans", "--learning-rate", "-1"], "manyhot: --learning-rate must be a number > 0 and <= 1e+06; got -1.0."),
        (["--task", "spans", "--overlap", "1000"], "--overlap must be less than --max-tokens, 256; got 1000."),
    ],
)
def test_an_error_about_a_setting_names_the_flag_as_it_is_typed(flags, said, run, posts, tmp_path):
    done = run("train", posts / "train.jsonl", "--run", tmp_path / "run", "--quiet", "--no-report", *flags)
    assert done.code in (1, 2)
    assert said in done.err
    assert "`" not in done.err
    assert "Settings:" not in done.err
    # Only a training that was begun leaves its folder, with the log.
    assert (tmp_path / "run").exists() == ("1e6" in flags)


def test_errors_of_other_commands_name_the_flag_as_it_is_typed(run, trained):
    done = run("serve", trained, "--max-rows", "-1")
    assert done.code == 2
    assert done.err.startswith("manyhot: --max-rows must be")


def test_a_closed_output_is_refused_in_one_line():
    done = subprocess.run(
        ["bash", "-c", '"$0" "$@" >&-', *command("losses")], capture_output=True, text=True, env=environment(), timeout=120
    )
    assert done.returncode == 1
    assert done.stderr == "manyhot: the standard output is closed. Send it to a file or a pipe, or to /dev/null.\n"


def test_a_closed_input_is_refused_in_one_line(trained):
    done = subprocess.run(
        ["bash", "-c", '"$0" "$@" <&-', *command("predict", trained)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "standard input is closed" in done.stderr


def test_help_and_version_import_nothing_heavy():
    script = (
        "import sys; from manyhot.cli.main import main\n"
        "codes = [main(['--version']), main(['--help'])]\n"
        "print(codes, [name for name in ('torch', 'numpy', 'scipy') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment(), check=True)
    assert done.stderr.strip() == "[0, 0] []"
    assert "manyhot 0." in done.stdout


def test_control_characters_of_names_do_not_reach_the_terminal(run, tmp_path):
    done = run("inspect", tmp_path / "evil\x1b[31m\x9b.jsonl")
    assert "\x1b" not in done.err
    assert "\x9b" not in done.err
    assert "\\x1b[31m" in done.err


def test_interrupting_any_command_says_so(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("manyhot.cli.main.load_command", interrupted)
    assert main(["losses"]) == 130
    assert capsys.readouterr().err == "manyhot: interrupted.\n"


def test_the_command_runs_as_a_module():
    assert real("--version").out.startswith("manyhot ")
