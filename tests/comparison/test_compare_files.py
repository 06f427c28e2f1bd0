"""A comparison as a function: the statistics of the command, kept in a folder where one is named."""

import json

import pytest

import manyhot
from comparison.problems import write_table
from manyhot import CompareSettings, compare
from manyhot.cli.main import main
from manyhot.comparison.records import STATISTICS
from training.problems import text_examples

BUDGET = CompareSettings(trials=1, epochs=2)


@pytest.fixture
def file(tmp_path):
    manyhot.write_examples(text_examples(60), tmp_path / "rows.jsonl")
    return tmp_path / "rows.jsonl"


def test_compare_gives_the_statistics_and_keeps_the_cells(file, tmp_path):
    told = []
    options = {"models": ["linear"], "seeds": 2, "folder": tmp_path / "out"}
    found = compare(file, ["zlpr", "bce"], BUDGET, progress=told.append, **options)
    assert found["methods"] == ["zlpr", "bce"]
    assert json.loads((tmp_path / "out" / "statistics.json").read_text()) == json.loads(json.dumps(found))
    assert len(told) == 2
    told.clear()
    assert compare(file, ["zlpr", "bce"], BUDGET, progress=told.append, **options)["values"] == found["values"]
    assert not told, "cells that are there are not run again"


def test_files_that_are_not_there_and_losses_that_do_not_exist_are_named(file, tmp_path):
    with pytest.raises(ValueError, match="`files` must be files of examples"):
        compare(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="zlrp"):
        compare(file, ["zlrp"])


def test_the_command_and_the_function_give_the_same(tmp_path, capfd):
    write_table(tmp_path / "table.csv", 60, 0)
    flags = ["--labels", "y*", "--losses", "zlpr,bce", "--models", "linear", "--seeds", "1", "--trials", "1", "--epochs", "2"]
    assert main(["compare", str(tmp_path / "table.csv"), "--out", str(tmp_path / "out"), "--jobs", "1", "-q", *flags]) == 0
    budget = CompareSettings(trials=1, epochs=2)
    reading = {"labels": "y*"}
    found = compare(tmp_path / "table.csv", ["zlpr", "bce"], budget, models=["linear"], seeds=1, reading=reading)
    saved = json.loads((tmp_path / "out" / STATISTICS).read_text())
    assert saved["methods"] == found["methods"]
    assert timeless(saved) == timeless(json.loads(json.dumps(found)))


def timeless(value):
    """Without what the clock and the machine say."""
    if isinstance(value, dict):
        kept = {name: part for name, part in value.items() if not any(word in name for word in ("second", "cost", "memory"))}
        return {name: timeless(part) for name, part in kept.items()}
    return [timeless(part) for part in value] if isinstance(value, list) else value
