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
    done = run("evaluate", trained, posts / "test.jsonl", "--hierarchy", parents)
    assert done.code == 0, done.err
    assert "h-F1" in done.out
    assert "broken-rows before" in done.out


@pytest.mark.parametrize("command", ["predict", "evaluate"])
@pytest.mark.parametrize("flags", [["--hierarchy-mode", "down"], ["--hierarchy-ignore-unknown"]])
def test_flags_about_a_hierarchy_without_one_are_refused(run, trained, posts, command, flags):
    done = run(command, trained, posts / "test.jsonl", *flags)
    assert done.code == 2
    assert f"{flags[0]} needs --hierarchy" in done.err


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
