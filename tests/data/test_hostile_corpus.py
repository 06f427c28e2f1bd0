"""No hostile file makes a traceback, hangs, takes more than 1 GB or leaves anything behind: every format, every harm."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from data.hostile.corpus import cases
from data.hostile.harms import HARMS
from data.hostile.samples import SAMPLES
from manyhot.data.formats.registry import FORMATS

pytest.importorskip("pyarrow")
RUNNER = Path(__file__).parent / "hostile" / "runner.py"
MOST_BYTES, MOST_CPU_SECONDS, PROCESSES = 2**30, 40, 2


def test_every_format_of_the_registry_has_a_sample_and_every_harm():
    assert {(entry.holds, entry.name) for entry in FORMATS} == set(SAMPLES)
    every = cases()
    assert len(every) >= 600
    assert len(set(every)) == len(every)
    for entry in FORMATS:
        assert {case.harm for case in every if (case.holds, case.format) == (entry.holds, entry.name)} >= set(HARMS)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    found = [str(Path(__file__).parents[1]), *sys.path]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, found))}
    arguments = [sys.executable, str(RUNNER)]
    with ExitStack() as opened:
        outs = [opened.enter_context(open(folder / f"{share}.jsonl", "w")) for share in range(PROCESSES)]
        shares = [[*arguments, str(share), str(PROCESSES), str(folder)] for share in range(PROCESSES)]
        started = [subprocess.Popen(each, stdout=out, env=environment) for each, out in zip(shares, outs, strict=True)]
        codes = [process.wait() for process in started]
    assert codes == [0] * PROCESSES
    return [json.loads(line) for share in range(PROCESSES) for line in (folder / f"{share}.jsonl").read_text().splitlines()]


def test_all_cases_ran(results):
    assert len(results) == len(cases())


@pytest.mark.parametrize(
    ("what", "fine"),
    [
        ("ends without a traceback", lambda one: one["ended"] and "Traceback" not in one["said"]),
        ("ends with an exit code that is meant", lambda one: set(one["codes"] or [70]) <= {0, 1}),
        # inspect, the only call for spans, tells what is wrong on the standard output.
        ("says why in a line", lambda one: len(one["codes"] or ()) < 2 or not one["codes"][-1] or "manyhot: " in one["said"]),
        ("does not hang", lambda one: one["seconds"] < MOST_CPU_SECONDS),
        ("takes at most 1 GB", lambda one: one["peak"] <= MOST_BYTES),
        ("leaves nothing behind", lambda one: not one["left"]),
    ],
)
def test_no_hostile_file(results, what, fine):
    wrong = [one for one in results if not fine(one)]
    assert not wrong, f"{what}: " + "\n".join(f"{one['case']}: {one}" for one in wrong[:10])


def test_the_good_files_are_read(results):
    good = {one["case"]: one["codes"] for one in results if one["case"].endswith(": nothing") and "text:" not in one["case"]}
    bad = {case: codes for case, codes in good.items() if any(codes) and "brat" not in case}
    assert not bad
