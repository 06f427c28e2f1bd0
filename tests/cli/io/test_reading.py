"""How commands read files: like the training files, once, and with what was guessed or left out said."""

import json
import os
import threading

import numpy as np
import pytest

from cli.forked import Forked

TABLE = "size,colour,labels\n" + "".join(
    f"{size},{colour},{label}\n" for size, colour, label in [(1, "red", "a"), (9, "blue", "b"), (2, "red", "a")] * 40
)


@pytest.fixture(scope="module")
def table_model(tmp_path_factory):
    from manyhot.cli.main import main

    folder = tmp_path_factory.mktemp("table")
    (folder / "train.csv").write_text(TABLE)
    assert main(["train", str(folder / "train.csv"), "--run", str(folder / "run"), "--quiet", "--no-report"]) == 0
    return folder / "run"


def labels_of(done):
    return [json.loads(line)["labels"] for line in done.out.splitlines()]


def write_svm(path, rows, *, zero=True):
    """Label p where feature 3 is there, q where feature 4 is; feature 0 only where ``zero``."""
    lines = []
    for row in range(rows):
        start = "0:1 " if zero and row < 10 else ""
        lines.append(f"{'p' if row % 2 else 'q'} {start}{3 if row % 2 else 4}:1 {5 + row % 7}:0.5")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def svm_model(tmp_path_factory):
    from manyhot.cli.main import main

    folder = tmp_path_factory.mktemp("svm")
    write_svm(folder / "train.svm", 200)
    assert main(["train", str(folder / "train.svm"), "--run", str(folder / "run"), "--quiet", "--no-report"]) == 0
    return folder / "run"


def test_the_first_rows_of_the_training_file_are_predicted_like_all(run, table_model, tmp_path):
    (tmp_path / "all.csv").write_text(TABLE)
    (tmp_path / "three.csv").write_text("\n".join(TABLE.split("\n")[:4]) + "\n")
    whole = labels_of(run("predict", table_model, tmp_path / "all.csv", "-q"))
    assert labels_of(run("predict", table_model, tmp_path / "three.csv", "-q")) == whole[:3] == [["a"], ["b"], ["a"]]


def test_one_json_line_at_a_time_is_predicted_like_the_table(run, table_model, tmp_path):
    for row, wanted in (({"size": 1, "colour": "red"}, ["a"]), ({"size": 9, "colour": "blue"}, ["b"])):
        (tmp_path / "one.jsonl").write_text(json.dumps(row) + "\n")
        assert labels_of(run("predict", table_model, tmp_path / "one.jsonl", "-q")) == [wanted]


def test_other_columns_are_refused_with_the_names(run, table_model, tmp_path):
    (tmp_path / "other.csv").write_text("size,color\n1,red\n")
    done = run("predict", table_model, tmp_path / "other.csv")
    assert done.code == 1
    assert "must have the columns that the model was trained on; there is no 'colour'. Did you mean 'color'?" in done.err


def test_a_test_file_without_feature_0_is_read_with_the_models_base(run, svm_model, tmp_path):
    write_svm(tmp_path / "test.svm", 200, zero=False)
    scores = run("evaluate", svm_model, tmp_path / "test.svm", "--json").json()["scores"]
    assert scores["micro-F1"] > 0.99


def test_the_base_holds_for_every_block_of_a_stream(run, svm_model, tmp_path):
    write_svm(tmp_path / "long.svm", 6000)
    found = labels_of(run("predict", svm_model, tmp_path / "long.svm", "-q"))
    assert found == [["p"] if row % 2 else ["q"] for row in range(6000)]


def test_a_guessed_base_is_said_once_and_can_be_given(run, tmp_path):
    write_svm(tmp_path / "a.svm", 100, zero=False)
    train = ["train", tmp_path / "a.svm", "--no-report", "--run"]
    assert run(*train, tmp_path / "one").err.count("counted from 1") == 1
    done = run(*train, tmp_path / "two", "--index-base", "0")
    assert "counted from" not in done.err
    assert json.loads((tmp_path / "two/model/model.json").read_text())["reading"]["first_index"] == 0
    assert run(*train, tmp_path / "three", "--index-base", "7").code == 2


def through_fifo(path, content):
    os.mkfifo(path)
    thread = threading.Thread(target=lambda: path.write_bytes(content))
    thread.start()
    return thread


def test_a_pipe_is_read_once(table_model, tmp_path):
    rows = [line for line in TABLE.splitlines()[1:] for _ in range(50)]
    content = ("size,colour,labels\n" + "\n".join(rows) + "\n").encode()
    thread = through_fifo(tmp_path / "fifo.csv", content)
    done = Forked("predict", table_model, tmp_path / "fifo.csv", "-q").done()
    thread.join()
    assert done.code == 0
    assert len(done.out.splitlines()) == len(rows) == 6000


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_a_pipe_of_a_binary_format_is_read_once(tmp_path, kind):
    if kind == "npz":
        np.savez(tmp_path / "a.npz", X=np.random.default_rng(0).random((6000, 20)), Y=np.eye(2)[np.arange(6000) % 2])
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        import pyarrow

        table = pyarrow.table({"text": [f"row {n} of many" for n in range(6000)], "labels": [["x"]] * 6000})
        parquet.write_table(table, tmp_path / "a.parquet")
    thread = through_fifo(tmp_path / f"fifo.{kind}", (tmp_path / f"a.{kind}").read_bytes())
    done = Forked("inspect", tmp_path / f"fifo.{kind}", "--json").done()
    thread.join()
    assert json.loads(done.out)["rows"] == 6000


def test_bad_rows_can_be_skipped_and_are_listed(run, tmp_path):
    good = '{"text": "boil the egg", "labels": ["eggs"]}\n{"text": "iron pan", "labels": ["pans"]}\n' * 30
    (tmp_path / "a.jsonl").write_text(good + "{broken\n" + '{"text": 3, "labels": ["x"]}\n')
    train = ["train", tmp_path / "a.jsonl", "--no-report", "--run"]
    assert "line 61" in run(*train, tmp_path / "one").err
    assert not (tmp_path / "one").exists()
    done = run(*train, tmp_path / "two", "--skip-bad")
    assert done.code == 0
    assert "2 bad rows were skipped" in done.err
    assert "line 61" in done.err
    assert "line 62" in done.err


def test_bad_rows_are_listed_when_files_are_packed(run, tmp_path):
    good = '{"text": "boil the egg", "labels": ["eggs"]}\n' * 5000
    (tmp_path / "a.jsonl").write_text("{broken\n" + good + "{broken\n")
    assert run("pack", tmp_path / "a.jsonl", "--output", tmp_path / "one").code == 1
    done = run("pack", tmp_path / "a.jsonl", "--output", tmp_path / "two", "--skip-bad")
    assert done.code == 0
    assert "a.jsonl: 2 bad rows were skipped" in done.err
    assert "line 1," in done.err
    assert "line 5002" in done.err
    assert "nowhere: must be a file on disk" in run("pack", "nowhere", "--output", tmp_path / "three").err


def test_bad_rows_of_a_stream_are_skipped_with_their_lines(run, trained, tmp_path):
    lines = ['{"text": "boil the egg"}'] * 9000
    lines[5000] = "{broken"
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    assert run("predict", trained, tmp_path / "a.jsonl").code == 1
    done = run("predict", trained, tmp_path / "a.jsonl", "--skip-bad")
    assert done.code == 0
    assert len(done.out.splitlines()) == 8999
    assert "line 5001" in done.err


def test_labels_of_the_test_file_that_training_does_not_have_are_told(run, posts, tmp_path):
    (tmp_path / "test.jsonl").write_text('{"text": "boil the egg", "labels": ["eggs", "soup"]}\n' * 20)
    done = run("train", posts / "train.jsonl", "--test", tmp_path / "test.jsonl", "--run", tmp_path / "run", "--no-report")
    assert "1 labels of the file are not in the model and are ignored: soup" in done.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", '[\n {"text": "a b", "labels": ["x"]}\n]\n', "jq -c '.[]'"),
        ("a.json", '[{"text": "Ada met", "spans": [{"start": 0, "end": 3, "type": "PER"}]}]', "--task spans"),
        ("a.csv", "I like it,joy\nOh no no,fear\n", "--no-header"),
        ("a.csv", "1,2\n3,4\n", "--no-header"),
        ("a.conll", "Ada B-PER\nmet O\nBob B-PER\n", "--task spans"),
        ("a.jsonl", '{"text": "Ada met", "spans": [{"start": 0, "end": 3, "type": "PER"}]}\n', "--task spans"),
        ("a.jsonl", '{"text": "Ada met", "entities": [[0, 3, "PER"]]}\n', "--task spans"),
        ("a.svm", "1 1:1\n1 2:\x01\n", "line 2"),
        ("a.arff", "@relation r\n@attribute f numeric\n@data\n1\n", "--label-file"),
        ("a.csv", 'text,tags\na b,x|y\na b,"x,z"\n', "--separator"),
    ],
)
def test_the_message_names_the_remedy_as_it_is_typed(run, tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    done = run("train", tmp_path / name, "--run", tmp_path / "run")
    assert done.code == 1
    assert said in done.err
    assert "`" not in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_labels_between_blanks_are_remarked_on(run, tmp_path):
    (tmp_path / "a.csv").write_text("text,tags\nboil the egg,eggs boiling\niron pan here,pans iron\n")
    assert "--separator ' '" in run("inspect", tmp_path / "a.csv").out
    found = run("inspect", tmp_path / "a.csv", "--separator", " ", "--json").json()
    assert set(found["labels"]["counts"]) == {"eggs", "boiling", "pans", "iron"}


def test_plain_text_is_predicted_line_by_line(run, trained, tmp_path):
    (tmp_path / "texts").write_text("boil the egg and the yolk\nan iron pan of steel\n")
    assert labels_of(run("predict", trained, tmp_path / "texts")) == [["eggs"], ["pans"]]
