"""Every command that writes is killed at random moments: no file is half-written under its name, and the next call succeeds.

Training has more tests of its own (training/run).
"""

import os
import random
import shutil
import time

import pytest

from cli.forked import Forked
from cli.writers import READERS, WRITERS, check_whole, next_call, openml, start  # noqa: F401 - two are fixtures
from kill_counts import in_parts
from manyhot.cli.commands import COMMANDS

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="signals"), pytest.mark.slow]


@in_parts(2)
@pytest.mark.parametrize("name", list(WRITERS))
def test_a_killed_command_leaves_whole_files_and_can_be_called_again(name, part, kills, start, openml, tmp_path, monkeypatch):  # noqa: F811
    whole = tmp_path / "whole"
    shutil.copytree(start, whole)
    monkeypatch.chdir(whole)
    began = time.monotonic()
    done = Forked(*WRITERS[name], before=openml).done()
    seconds = time.monotonic() - began
    assert done.code == 0, done.err
    check_whole(whole)
    draw = random.Random(f"{name} {part}")
    for kill in range(kills):
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
