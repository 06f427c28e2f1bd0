"""`manyhot explain`: rows in, words that count for and against out."""

import json

import pytest

from cli.conftest import WORDS


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_json_lines_tell_what_adds_up_to_each_score(run, trained, posts):
    done = run("explain", trained, posts / "test.jsonl", "--json", "--rows", "20")
    rows = lines(done.out)
    assert [row["row"] for row in rows] == list(range(20))
    assert rows[3]["id"] == "post3"
    for row in rows:
        assert row["method"] == "exact"
        for label in row["labels"]:
            total = label["base"] + sum(each["part"] for each in label["contributions"]) + label["rest"]
            assert total == pytest.approx(label["score"], abs=1e-6)
            if label["predicted"]:
                best = max(label["contributions"], key=lambda each: each["part"])
                assert best["feature"].startswith(WORDS[label["label"]]) or best["feature"].rstrip("*")[:4] in {
                    word[:4] for word in WORDS[label["label"]]
                }
                for start, end in best["spans"]:
                    assert row["text"][start:end].startswith(best["feature"].rstrip("*"))


def test_people_read_scores_thresholds_and_words(run, trained, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "how to boil the egg yolk"}) + "\n")
    done = run("explain", trained, path, "--label", "eggs")
    assert "yes eggs: score +" in done.out
    assert "egg +" in done.out
    assert "unexplained" not in done.out


def test_ten_rows_are_shown_unless_more_are_asked_for(run, trained, posts):
    done = run("explain", trained, posts / "test.jsonl")
    assert "row 9" in done.out
    assert "row 10" not in done.out
    assert "--rows N explains more" in done.err


def test_the_words_of_each_label_come_without_rows(run, trained):
    done = run("explain", trained, "--words", "--json", "--most", "3")
    found = {each["label"]: [feature for feature, _ in each["for"]] for each in json.loads(done.out)}
    assert set(found) == set(WORDS)
    for label, features in found.items():
        assert all(any(word.startswith(feature.rstrip("*")) for word in WORDS[label]) for feature in features)


def test_flags_that_change_nothing_are_refused(run, trained, posts):
    for flags in ([posts / "test.jsonl", "--steps", "3"], ["--words", "--steps", "3"], ["--words", "--rows", "3"]):
        assert run("explain", trained, *flags).code == 2


def test_an_unknown_label_is_named(run, trained, posts):
    done = run("explain", trained, posts / "test.jsonl", "--label", "egs")
    assert done.code == 1
    assert "'egs'. Did you mean 'eggs'?" in done.err
