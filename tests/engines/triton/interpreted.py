"""Triton kernels in Python, on the CPU: that is settled when Triton is first imported, so it takes a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
NO_FAILURE = """
from manyhot.engines.triton.launch.gate import GATE
assert not GATE.failure, GATE.failure
"""


def check_interpreted(program, *arguments, fails=False):
    """Run a program, which gets this folder and ``arguments`` and prints "checked" at its end. No kernel may have failed, or
    the plain form would have been checked, unless the program ``fails`` on purpose."""
    done = _run(["-W", "ignore", "-c", program if fails else program + NO_FAILURE, str(TESTS), *map(str, arguments)])
    assert done.returncode == 0, done.stderr[-3000:]
    assert "checked" in done.stdout


def check_tests_interpreted(file, chosen):
    """Run the tests of a file whose names have ``chosen`` in them."""
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning", "-k", chosen]
    done = _run(["-m", "pytest", *options, str(TESTS / file)])
    assert done.returncode == 0, done.stdout[-3000:]
    assert "[100%]" in done.stdout


def _run(arguments):
    pytest.importorskip("triton", reason="triton is not installed")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=TESTS.parent)
