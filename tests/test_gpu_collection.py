"""``make test-gpu`` reads only the files that have tests for a device, and deals the slow ones out first."""

import ast
import runpy
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("tests", "slow", "processes"), [(100, 9, 4), (17, 5, 3), (3, 3, 5), (40, 0, 7), (28, 14, 14), (1974, 60, 16)]
)
def test_every_process_begins_with_its_share_of_the_slow_tests(tests, slow, processes):
    items = [f"slow {place}" if place >= tests - slow else f"test {place}" for place in range(tests)]
    order = ROOT["dealt"](items, items[tests - slow :], processes)
    assert sorted(order) == sorted(items)
    start = 0
    for place in range(processes):
        share = slow // processes + (place < slow % processes)
        assert [item.startswith("slow") for item in order[start : start + share]] == [True] * share
        start += (tests - start) // (processes - place)


@pytest.mark.parametrize(("marked", "drawn"), [(False, False), (True, False), (False, True)])
def test_tests_that_are_marked_slow_or_draw_examples_are_slow(marked, drawn):
    def plain(number):
        """A test."""

    test = given(number=st.integers())(plain) if drawn else plain
    item = types.SimpleNamespace(get_closest_marker=lambda name: name if marked and name == "slow" else None, obj=test)
    assert ROOT["is_slow"](item) == (marked or drawn)


def test_the_mark_of_a_slow_test_may_say_how_long_it_takes():
    marks = [pytest.mark.slow.mark, pytest.mark.slow(100).mark, None]
    items = [types.SimpleNamespace(get_closest_marker=lambda _, mark=mark: mark) for mark in marks]
    assert [ROOT["seconds"](item) for item in items] == [10, 100, 10]
