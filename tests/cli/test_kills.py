"""Every command that writes is killed at random moments: no file is half-written under its name, and the next call succeeds.

Two kills a command, or as many as the environment's MANYHOT_KILLS says. Training has more tests of its own (training/run).
"""

import os
import random
import shutil
import time

import pytest

from cli.forked import Forked
from cli.writers import READERS, WRITERS, check_whole, next_call, openml, start  # noqa: F401 - two are fixtures
from manyhot.cli.commands import COMMANDS

KILLS = int(os.environ.get("MANYHOT_KILLS", "2"))
# Kills of one test: many are spread over several, which run side by side.
PART = 10

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="signals"), pytest.mark.slow]


@pytest.mark.parametrize("first", range(0, KILLS, PART))
@pytest.mark.parametrize("name", list(WRITERS))
def test_a_killed_command_leaves_whole_files_and_can_be_called_again(name, first, start, openml, tmp_path, monkeypatch):  # noqa: F811
    whole = tmp_path / "whole"
    shutil.copytree(start, whole)
    monkeypatch.chdir(whole)
    began = time.monotonic()
    done = Forked(*WRITERS[name], before=openml).done()
    seconds = time.monotonic() - began
    assert done.code == 0, done.err
    check_whole(whole)
    draw = random.Random(f"{name} {first}")
    for kill in range(first, min(first + PART, KILLS)):
        folder = tmp_path / f"kill{kill}"
        shutil.copytree(start, folder)
        monkeypatch.chdir(folder)
        process = Forked(*WRITERS[name], before=openml)
        # Most writing is done towards the end.
        process.process.join(seconds * draw.random() ** 0.5)
        process.kill()
        check_whole(folder)
        done = Forked(*next_call(name, folder), before=openml).done()
        assert done.code == 0, done.err
        check_whole(folder)
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(folder)


def test_every_command_is_tested_for_kills_or_writes_nothing():
    assert {name.split()[0] for name in WRITERS} | READERS == set(COMMANDS)
