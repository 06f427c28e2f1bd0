"""`--hierarchy`: predictions that keep to a file of parents."""

import json

import pytest


@pytest.fixture
def parents(tmp_path):
    path = tmp_path / "parents.tsv"
    path.write_text("eggs\tbread\n")
    return path


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_predictions_are_closed_upwards_or_downwards(run, trained, posts, parents):
    plain = lines(run("predict", trained, posts / "test.jsonl").out)
    up = lines(run("predict", trained, posts / "test.jsonl", "--hierarchy", parents).out)
    down = lines(run("predict", trained, posts / "test.jsonl", "--hierarchy", parents, "--hierarchy-mode", "down").out)
    assert any("eggs" in row["labels"] and "bread" not in row["labels"] for row in plain)
    for before, more, fewer in zip(plain, up, down, strict=True):
        own = set(before["labels"])
        assert set(more["labels"]) == own | ({"bread"} if "eggs" in own else set())
        assert set(fewer["labels"]) == own - ({"eggs"} if "bread" not in own else set())


def test_evaluate_adds_metrics_that_know_the_hierarchy(run, trained, posts, parents):
    scores = json.loads(run("evaluate", trained, posts / "test.jsonl", "--hierarchy", parents, "--json").out)["scores"]
    assert scores["h-F1"] > 0.9
    assert 0 < scores["broken-rows before"] < 1
    assert scores["micro-F1 closed up"] < scores["micro-F1"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("eggs\teggs\n", "no cycle; got 'eggs' -> 'eggs'"),
        ("egs\tbread\n", "got 'egs'. Did you mean 'eggs'?"),
        ("eggs\n", "line 1"),
    ],
)
def test_what_is_wrong_with_the_file_is_one_line(run, trained, posts, tmp_path, content, words):
    path = tmp_path / "wrong.tsv"
    path.write_text(content)
    done = run("predict", trained, posts / "test.jsonl", "--hierarchy", path)
    assert done.code == 1
    assert words in done.err
    assert len(done.err.splitlines()) == 1
