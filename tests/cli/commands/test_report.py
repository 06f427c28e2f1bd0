"""`manyhot report`, and the reports that training and evaluating leave."""

import json
import re
import shutil

from report.problems import cells


def test_training_leaves_a_report_on_scores_of_rows_not_seen(trained):
    told = json.loads((trained / "report.json").read_text())
    assert told["rows"]["what"] == "cross-fitted"
    assert told["rows"]["count"] == 240
    assert told["rows"]["files"] == ["train.jsonl"]
    assert told["learning"] == []  # labels are solved one by one, so there are no epochs
    assert told["worst"] == [] or told["worst"][0]["text"]
    page = (trained / "report.html").read_text()
    assert "each scored by a model that was not trained on it" in page
    assert "micro-F1" in (trained / "report.md").read_text()


def test_the_page_is_made_again_without_the_data(run, trained, tmp_path):
    folder = tmp_path / "posts"
    folder.mkdir()
    shutil.copy(trained / "report.json", folder)
    done = run("report", folder)
    assert done.code == 0, done.err
    assert done.out == f"Report: {folder / 'report.html'}\n"
    for name in ("report.html", "report.md", "report.json"):
        assert (folder / name).read_bytes() == (trained / name).read_bytes()


def test_title_and_place_can_be_chosen(run, trained, tmp_path):
    done = run("report", trained, "--to", tmp_path / "there", "--title", "My <posts>", "--json")
    assert done.json() == {"report": str(tmp_path / "there" / "report.html")}
    assert "<h1>My &lt;posts&gt;</h1>" in (tmp_path / "there" / "report.html").read_text()


def test_test_rows_get_a_report_of_their_own(run, tmp_path, posts):
    done = run("train", posts / "train.jsonl", "--test", posts / "test.jsonl", "--run", tmp_path / "run", "--quiet")
    assert done.code == 0, done.err
    assert f"Report: {tmp_path / 'run' / 'report.html'}" in done.out
    line = r"^On \d+ rows \((held out|cross-fitted), also used for tuning\): micro-F1 [01]\.\d{4}, macro-F1 "
    assert re.search(line, done.out, re.MULTILINE)
    told = json.loads((tmp_path / "run" / "test" / "report.json").read_text())
    assert told["rows"]["what"] == "test"
    assert told["rows"]["count"] == 80
    assert told["rows"]["files"] == ["test.jsonl"]


def test_no_report_where_none_is_wanted(run, tmp_path, posts):
    done = run("train", posts / "train.jsonl", "--run", tmp_path / "run", "--quiet", "--no-report")
    assert done.code == 0
    assert not list((tmp_path / "run").glob("report.*"))


def test_evaluating_writes_a_report_whose_figures_are_those_it_prints(run, trained, posts, tmp_path):
    done = run("evaluate", trained, posts / "test.jsonl", "--report", tmp_path / "page", "--json")
    assert done.code == 0, done.err
    told = json.loads((tmp_path / "page" / "report.json").read_text())
    values = {each["name"]: each["value"] for each in told["metrics"]}
    for name, value in done.json()["scores"].items():
        if name in values:
            assert abs(values[name] - value) < 1e-9
    assert done.json()["report"] == str(tmp_path / "page" / "report.html")


def test_validation_rows_are_named_as_such_and_shown_by_their_own_texts(run, tmp_path, posts):
    done = run(
        "train", posts / "train.jsonl", "--validation-file", posts / "test.jsonl", "--run", tmp_path / "run", "--quiet",
        "--model", "bag", "--epochs", "2", "--learning-rate", "0.01",
    )  # fmt: skip
    assert done.code == 0, done.err
    told = json.loads((tmp_path / "run" / "report.json").read_text())
    assert told["rows"]["what"] == "validation"
    texts = [json.loads(line)["text"] for line in (posts / "test.jsonl").read_text().splitlines()]
    assert all(each["text"] == texts[each["row"] - 1] for each in told["worst"])
    assert told["learning"][0]["metric"] == "micro-F1"


def test_rows_held_out_are_shown_by_their_place_in_the_training_file(run, tmp_path, posts):
    done = run(
        "train", posts / "train.jsonl", "--run", tmp_path / "run", "--quiet", "--model", "bag", "--epochs", "1",
        "--learning-rate", "0.001",
    )  # fmt: skip
    assert done.code == 0, done.err
    told = json.loads((tmp_path / "run" / "report.json").read_text())
    assert told["rows"]["what"] == "held out"
    assert told["rows"]["count"] == 48
    texts = [json.loads(line)["text"] for line in (posts / "train.jsonl").read_text().splitlines()]
    assert told["worst"]
    assert all(each["text"] == texts[each["row"] - 1] for each in told["worst"])


def test_a_comparison_is_told_from_a_run(run, tmp_path):
    (tmp_path / "cells.jsonl").write_text("".join(json.dumps(cell) + "\n" for cell in cells()))
    done = run("report", tmp_path, "--title", "Losses")
    assert done.code == 0, done.err
    page = (tmp_path / "report.html").read_text()
    assert "critical difference" in page
    assert "ants/linear" in (tmp_path / "report.md").read_text()


def test_a_folder_without_results_is_one_line(run, tmp_path):
    done = run("report", tmp_path)
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "manyhot evaluate RUN FILE --report FOLDER" in done.err
    assert run("report", tmp_path / "none").code == 1
