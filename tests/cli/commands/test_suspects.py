"""`manyhot suspects`: mistakes of a file, as a table, as JSON lines, and put right."""

import json

import pytest


@pytest.fixture
def spoiled(posts, tmp_path):
    """A file with three mistakes: two labels taken away, one added."""
    rows = [json.loads(line) for line in (posts / "train.jsonl").read_text().splitlines()]
    taken = [row for row in rows if row["labels"] == ["eggs"]][:2]
    for row in taken:
        row["labels"] = []
    added = next(row for row in rows if row["labels"] == ["bread"])
    added["labels"] = ["bread", "pans"]
    path = tmp_path / "spoiled.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, {(row["id"], "eggs", "missing") for row in taken} | {(added["id"], "pans", "wrong")}


def test_planted_mistakes_are_listed_first_and_can_be_put_right(run, spoiled, tmp_path):
    path, planted = spoiled
    done = run("suspects", path, "--json", "--most", "3", "--corrected", tmp_path / "mended.jsonl", "--folds", "3")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert {(each["id"], each["label"], each["kind"]) for each in found} == planted
    assert [each["rank"] for each in found] == [1, 2, 3]
    for each in found:
        parts = [reason["part"] for reason in each["because"]]
        assert parts
        assert all(part > 0 if each["kind"] == "missing" else part < 0 for part in parts)
    mended = [json.loads(line) for line in (tmp_path / "mended.jsonl").read_text().splitlines()]
    own = {row["id"]: row["labels"] for row in mended}
    for name, label, kind in planted:
        assert (label in own[name]) == (kind == "missing")


def test_a_run_is_taken_with_its_files_and_settings(run, trained):
    done = run("suspects", trained, "--most", "2", "--folds", "2")
    assert done.code == 0
    assert "are expected to be mistakes" in " ".join(done.out.split())
    assert "because" in done.out


def test_an_unknown_kind_is_wrong_usage(run, spoiled):
    assert run("suspects", spoiled[0], "--kind", "odd").code == 2
