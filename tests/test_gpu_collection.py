"""``make test-gpu`` reads only the files that have tests for a device, and deals the slow ones out first."""

import ast
import runpy
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = runpy.run_path(str(TESTS.parent / "conftest.py"))


def wants_device(text):
    """Whether a module has a function that takes the fixture of every device, or names the mark of a device."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr == "gpu":
            return True
        if (
            isinstance(node, ast.FunctionDef)
            and node.name.startswith("test")
            and "place" in [arg.arg for arg in node.args.args]
        ):
            return True
    return False


def test_every_file_with_tests_for_a_device_is_read():
    texts = {path: path.read_text() for path in TESTS.rglob("test_*.py")}
    wanted = {path for path, text in texts.items() if wants_device(text)}
    assert len(wanted) > 30
    assert wanted <= {path for path, text in texts.items() if ROOT["ON_GPU"].search(text)}


@pytest.mark.parametrize(("tests", "slow", "processes"), [(100, 9, 4), (17, 5, 3), (3, 3, 5), (40, 0, 7), (28, 14, 14)])
def test_every_process_begins_with_its_share_of_the_slow_tests(tests, slow, processes):
    items = [f"slow {place}" if place >= tests - slow else f"test {place}" for place in range(tests)]
    order = ROOT["dealt"](items, items[tests - slow :], processes)
    assert sorted(order) == sorted(items)
    start = 0
    for place in range(processes):
        share = slow // processes + (place < slow % processes)
        assert [item.startswith("slow") for item in order[start : start + share]] == [True] * share
        start += (tests - start) // (processes - place)
