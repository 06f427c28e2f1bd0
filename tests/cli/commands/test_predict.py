"""`manyhot predict`: rows in, labels out."""

import csv
import io
import json
import shutil
import subprocess

import pytest

from cli.processes import command, environment, real
from manyhot.training.rows.bundle import load_model


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_labels_follow_the_saved_rule_and_carry_the_ids(run, trained, posts):
    done = run("predict", trained, posts / "test.jsonl")
    truth = lines((posts / "test.jsonl").read_text())
    rows = lines(done.out)
    assert [row["row"] for row in rows] == list(range(80))
    assert [row["id"] for row in rows] == [row["id"] for row in truth]
    right = sum(set(row["labels"]) == set(want["labels"]) for row, want in zip(rows, truth, strict=True))
    assert right > 70


def test_top_k_gives_that_many_labels_from_the_best_on(run, trained, posts):
    done = run("predict", trained, posts / "test.jsonl", "--top-k", "2", "--scores", "--probabilities")
    for row in lines(done.out):
        assert len(row["labels"]) == 2
        assert row["scores"][0] >= row["scores"][1]
        assert row["probabilities"][0] >= row["probabilities"][1]
        assert all(0 <= value <= 1 for value in row["probabilities"])


def test_csv_comes_out_as_csv(run, trained, posts, tmp_path):
    out = tmp_path / "out.csv"
    done = run("predict", trained, posts / "test.jsonl", "--output-format", "csv", "--probabilities", "--to", out)
    assert "80 rows" in done.err
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert len(rows) == 80
    assert list(rows[0]) == ["row", "id", "labels", "probabilities"]
    assert all(row["labels"].count("|") == row["probabilities"].count("|") for row in rows)


def test_a_file_named_csv_is_written_as_csv(run, trained, posts, tmp_path):
    for name, format in (("a.csv", "csv"), ("a.jsonl", "jsonl"), ("a.out", "jsonl")):
        run("predict", trained, posts / "test.jsonl", "--to", tmp_path / name)
        run("predict", trained, posts / "test.jsonl", "--to", tmp_path / "wanted", "--output-format", format)
        assert (tmp_path / name).read_bytes() == (tmp_path / "wanted").read_bytes()
        (tmp_path / "wanted").unlink()
    run("predict", trained, posts / "test.jsonl", "--json", "--to", tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_bytes() == (tmp_path / "a.jsonl").read_bytes()


def test_other_formats_are_read_with_the_columns_of_the_run(run, trained, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text\negg\ndough\n")
    done = run("predict", trained, path)
    assert [row["labels"][0] for row in lines(done.out)] == ["eggs", "bread"]


def test_a_pipe_is_answered_while_it_is_still_open(trained):
    process = subprocess.Popen(
        command("predict", trained), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True
    )
    answers = []
    for text in ("boil the egg", "steel pan"):
        process.stdin.write(json.dumps({"text": text}) + "\n")
        process.stdin.flush()
        answers.append(json.loads(process.stdout.readline()))
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    process.stdout.close()
    assert [answer["labels"][0] for answer in answers] == ["eggs", "pans"]
    assert [answer["row"] for answer in answers] == [0, 1]


def test_blocks_of_a_long_file_are_numbered_through(run, trained, tmp_path, monkeypatch):
    monkeypatch.setattr("manyhot.cli.io.blocks.ROWS", 3)
    path = tmp_path / "long.jsonl"
    path.write_text('{"text": "egg"}\n' * 7 + '{"text": 5}\n')
    done = run("predict", trained, path)
    assert done.code == 1
    assert "line 8, column 'text'" in done.err
    assert [row["row"] for row in lines(done.out)] == list(range(6))


@pytest.mark.parametrize(("content", "said"), [(b"", "empty"), (b'{"text": "\xff"}\n', "UTF-8"), (b"{\n", "line 1")])
def test_rows_that_cannot_be_read_are_one_line(run, trained, tmp_path, content, said):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    done = run("predict", trained, path)
    assert done.code == 1
    assert said in done.err
    assert done.err.count("\n") == 1


def test_an_unknown_output_format_is_wrong_usage(run, trained):
    done = run("predict", trained, "rows.jsonl", "--output-format", "cvs")
    assert done.code == 2
    assert "Did you mean 'csv'?" in done.err


def test_evaluate_gives_the_metrics_that_are_asked_for(run, trained, posts):
    found = run("evaluate", trained, posts / "test.jsonl", "--metric", "micro-F1", "--metric", "P@1", "--json").json()
    assert list(found["scores"]) == ["micro-F1", "P@1", "empty"]
    assert found["scores"]["micro-F1"] > 0.9
    table = run("evaluate", trained, posts / "test.jsonl").out
    assert "macro-F1" in table


def test_evaluate_gives_propensity_scored_precision_beside_precision(run, trained, posts):
    plain = run("evaluate", trained, posts / "test.jsonl", "--json").json()["scores"]
    assert list(plain)[6:10] == ["P@1", "P@3", "PSP@1", "PSP@3"]
    steeper = run("evaluate", trained, posts / "test.jsonl", "--propensity-b", "40", "--json").json()["scores"]
    assert steeper["PSP@1"] != plain["PSP@1"]
    assert steeper["P@1"] == plain["P@1"]
    refused = run("evaluate", trained, posts / "test.jsonl", "--metric", "P@1", "--propensity-a", "1")
    assert refused.code == 2
    assert "--propensity-a is for PSP@k, which is not among the metrics" in refused.err


def test_evaluate_refuses_propensities_of_a_model_without_label_counts(run, trained, posts, tmp_path):
    model = load_model(trained)
    model.label_counts = None
    model.save(tmp_path / "bare")
    assert "PSP@1" not in run("evaluate", tmp_path / "bare", posts / "test.jsonl", "--json").json()["scores"]
    refused = run("evaluate", tmp_path / "bare", posts / "test.jsonl", "--metric", "PSP@1")
    assert refused.code == 2
    assert "was saved without these counts. Train it again" in " ".join(refused.err.split())


def test_evaluate_gives_no_calibration_error_where_scores_only_rank(run, posts, tmp_path):
    flags = ["--loss", "pairwise", "--epochs", "1", "--no-report", "--quiet"]
    assert run("train", posts / "train.jsonl", "--run", tmp_path / "run", *flags).code == 0
    found = run("evaluate", tmp_path / "run", posts / "test.jsonl", "--json").json()
    assert not {name for name in found["scores"] if name in ("ECE", "macro-Brier", "mAP-binned")}
    done = run("evaluate", tmp_path / "run", posts / "test.jsonl", "--metric", "ECE")
    assert done.code != 0
    assert "these scores only rank" in done.err
    assert done.err.count("\n") == 1


def test_files_without_any_label_of_the_model_are_refused(run, trained, tmp_path):
    file = tmp_path / "others.jsonl"
    file.write_text('{"text": "an egg", "labels": ["food"]}\n{"text": "a pan", "labels": ["tool"]}\n' * 10)
    for verb in ("evaluate", "tune"):
        done = run(verb, trained, file)
        assert done.code == 1
        assert "none of its labels is known to the model" in done.err


@pytest.mark.parametrize(
    "flags", [["--propensity-a", "9e29"], ["--propensity-a", "nan"], ["--propensity-a", "-1"], ["--propensity-b", "0"]]
)
def test_propensities_that_cannot_be_are_refused(run, trained, posts, flags):
    done = run("evaluate", trained, posts / "test.jsonl", *flags)
    assert done.code == 2
    assert flags[0] in done.err


def test_evaluate_tells_labels_the_model_does_not_know(run, trained, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "egg", "labels": ["eggs", "omelette"]}\n{"text": "pan", "labels": ["pans"]}\n')
    done = run("evaluate", trained, path)
    assert done.code == 0
    assert "1 labels of the file are not in the model and are ignored: omelette" in done.err


def test_a_metric_with_a_typo_is_wrong_usage(run, trained, posts):
    done = run("evaluate", trained, posts / "test.jsonl", "--metric", "micro-f1")
    assert done.code == 2
    assert "Did you mean 'micro-F1'?" in done.err
    done = run("evaluate", trained, posts / "test.jsonl", "--metric", "micro-F1", "--metric", "P@9")
    assert done.code == 2
    assert "--metric P@9 needs more labels than the model has, 3." in done.err


def test_tune_saves_the_rule_and_the_calibration_with_the_model(run, trained, posts, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(trained, copy)
    done = run("tune", copy, posts / "test.jsonl", "--always", "--min-labels", "1", "--calibrate", "platt", "--json")
    assert done.code == 0, done.err
    rule = done.json()["rule"]
    assert rule["min_labels"] == 1
    shown = run("show", copy).out
    assert "at least 1 label per row" in shown
    assert "calibrated, platt" in shown
    rows = lines(run("predict", copy, posts / "test.jsonl").out)
    assert all(row["labels"] for row in rows)


def test_a_dry_run_of_tune_changes_nothing(run, trained, posts):
    before = {path: path.read_bytes() for path in sorted(trained.rglob("*")) if path.is_file()}
    assert run("tune", trained, posts / "test.jsonl", "--always", "--dry-run").code == 0
    assert before == {path: path.read_bytes() for path in sorted(trained.rglob("*")) if path.is_file()}


def test_show_tells_labels_and_files(run, trained):
    shown = run("show", trained).out
    assert "bread, eggs, pans" in shown
    assert "train.jsonl" in shown
    assert run("show", trained, "--json").json()["files"]["train"]


def test_a_text_on_the_command_line_is_a_row(run, trained):
    lines = run("predict", trained, "--input", "boil the egg\nyolk", "--input", "iron pan steel").out.splitlines()
    assert [json.loads(line)["labels"] for line in lines] == [["eggs"], ["pans"]]
    done = run("predict", trained, "rows.jsonl", "--input", "egg")
    assert done.code == 2
    assert "--input and files" in done.err


def test_plain_text_is_predicted_from_a_file_and_from_a_pipe(run, trained, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("boil the egg yolk\niron pan steel\n")
    assert [json.loads(line)["labels"] for line in run("predict", trained, file).out.splitlines()] == [["eggs"], ["pans"]]
    done = real("predict", trained, stdin=b"boil the egg yolk\n")
    assert json.loads(done.out)["labels"] == ["eggs"]


def test_json_and_csv_contradict_each_other(run, trained):
    assert run("predict", trained, "--input", "egg", "--json", "--output-format", "csv").code == 2
