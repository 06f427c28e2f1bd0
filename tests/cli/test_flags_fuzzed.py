"""Every flag of every command with hostile values: an answer or one line that says what is wrong, never a traceback."""

import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from manyhot.cli.commands import COMMANDS
from manyhot.cli.io.terminal import printable
from manyhot.cli.main import load_command, main

TEXTS = ["", " ", "nan", "-", "\x1b[31m", "../..", "/dev/null", "a" * 5000, "é\u202e", "auto", "{}", "gpu"]
NUMBERS = ["nan", "inf", "-inf", "-1", "0", "1e308", "-0.5", "1e-320", "9" * 30]
WHOLE = ["-1", "0", "2147483648", "9" * 25, "-9223372036854775809"]
# Commands with the arguments that make them work here; those left out take none, or run for long or for ever.
CALLS = {
    "inspect": ["rows.jsonl"],
    "train": ["rows.jsonl", "--run", "new", "--quiet", "--no-report", "--threads", "1", "--epochs", "1"],
    "pack": ["rows.jsonl", "--output", "again", "--quiet"],
    "evaluate": ["run", "rows.jsonl"],
    "predict": ["run", "rows.jsonl"],
    "tune": ["run", "rows.jsonl", "--dry-run"],
    "report": ["run", "--to", "again"],
    "show": ["run"],
    "losses": [],
    "metrics": [],
    "explain": ["run", "rows.jsonl"],
    "sample": ["run", "rows.jsonl"],
    "suspects": ["rows.jsonl", "--folds", "2", "--quiet"],
    "export": ["run", "rows.jsonl", "--to", "weights", "--folder", "again"],
    "compare": ["rows.jsonl", "--dry-run", "--losses", "zlpr", "--trials", "1", "--seeds", "1", "--jobs", "1"],
}
# A very large value is allowed here and takes its time: it is interrupted.
LONG = {("train", "--epochs")}
SECONDS = 30
UNTRIED = {"demo", "data", "serve"}
# These wait for another process, a port or a download, or print what a shell wants.
LEFT_OUT = {"help", "install_completion", "show_completion"}
TRIES = int(os.environ.get("MANYHOT_FUZZ", "1"))


def hostile_flags(name):
    """Each flag of a command with some values, drawn by its name."""
    for parameter in load_command(name).params:
        flags = [flag for flag in parameter.opts if flag.startswith("--")]
        if parameter.param_type_name != "option" or parameter.name in LEFT_OUT:
            continue
        if parameter.is_flag:
            yield [*flags[:1]]
            continue
        values = {int: WHOLE, float: NUMBERS}.get(parameter.bare_type(), TEXTS + NUMBERS)
        draw = random.Random(f"{name} {parameter.name}")
        # Every number is tried with one that no machine can hold.
        always = ["9" * 25] if parameter.bare_type() in (int, float) else []
        for value in dict.fromkeys([*always, *draw.sample(values, min(TRIES, len(values)))]):
            yield [flags[0], value]


@pytest.fixture
def place(posts, trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "run")
    lines = (posts / "train.jsonl").read_text().splitlines()[:40]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield tmp_path


@pytest.fixture(autouse=True)
def _calls_end():
    """A call that takes too long is interrupted, as from the keyboard."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CALLS))
def test_a_hostile_value_is_answered_in_one_line(name, place, capfd):
    for flag in hostile_flags(name):
        arguments = [name, *CALLS[name], *flag]
        capfd.readouterr()
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            code = main(arguments)
        except BaseException as error:
            raise AssertionError(f"{arguments}: {error!r}") from error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if (name, flag[0]) in LONG and code == 130:
            shutil.rmtree("new")
            continue
        told = capfd.readouterr().err
        assert code in (0, 1, 2), f"{arguments[-2:]}: {code}, {told}"
        assert "Traceback" not in told, arguments
        assert "\x1b[31m" not in told, arguments
        if code:
            assert told.splitlines()[-1].startswith("manyhot: "), (arguments, told)
            assert not Path("new").exists(), (arguments, told)
            assert flag[0] in told or printable(flag[-1].strip())[:20] in told, (arguments, told)
        shutil.rmtree("new", ignore_errors=True)
        shutil.rmtree("again", ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CALLS))
def test_a_refused_value_is_told_with_its_flag_as_typed(name, place, capfd):
    silent = []
    for parameter in load_command(name).params:
        flags = [flag for flag in parameter.opts if flag.startswith("--")]
        if parameter.param_type_name != "option" or parameter.name in LEFT_OUT or parameter.is_flag:
            continue
        value = {int: "-7", float: "-7"}.get(parameter.bare_type(), "no-such-thing")
        capfd.readouterr()
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            code = main([name, *CALLS[name], flags[0], value])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        told = capfd.readouterr().err
        shutil.rmtree("new", ignore_errors=True)
        shutil.rmtree("again", ignore_errors=True)
        if code not in (0, 130) and flags[0] not in told and value not in told.split("got")[0]:
            silent.append((flags[0], told.splitlines()[-1]))
    assert not silent


def test_every_command_is_tried_or_named():
    assert set(CALLS) | UNTRIED == set(COMMANDS)
