"""Reports of span models on the command line."""

import shutil

import pytest

from manyhot.data.spans.jsonl import write_span_examples
from training.spans.problems import SMALL, people

FLAGS = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]
NAMES = ("report.json", "report.html", "report.md")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spans")
    write_span_examples(people(), folder / "train.jsonl")
    write_span_examples(people(20, seed=1), folder / "test.jsonl")
    return folder


@pytest.fixture
def trained(run, texts, tmp_path):
    done = run("train", "--task", "spans", texts / "train.jsonl", "--run", tmp_path / "run", "--epochs", 6, *FLAGS)
    assert done.code == 0, done.err
    assert f"Report: {tmp_path / 'run' / 'report.html'}" in done.out
    assert "On 8 texts (held out, also used for tuning): F1" in done.out
    return tmp_path / "run"


def test_train_leaves_a_report_and_another_of_the_test_texts(run, texts, tmp_path):
    given = ["--run", tmp_path / "run", "--epochs", 2, "--test", texts / "test.jsonl", "--json", *FLAGS]
    done = run("train", "--task", "spans", texts / "train.jsonl", *given)
    assert done.code == 0, done.err
    assert done.json()["reports"] == [str(tmp_path / "run" / "report.html"), str(tmp_path / "run" / "test" / "report.html")]
    assert "test.jsonl" in (tmp_path / "run" / "test" / "report.html").read_text()
    assert "Learning curves" in (tmp_path / "run" / "report.html").read_text()


def test_no_report_leaves_none_and_no_held_out_texts_leave_none(run, texts, tmp_path):
    for flags in (["--no-report"], ["--validation", "0"]):
        folder = tmp_path / flags[0].strip("-")
        done = run("train", "--task", "spans", texts / "train.jsonl", "--run", folder, "--epochs", 1, *flags, *FLAGS)
        assert done.code == 0, done.err
        assert not any((folder / name).exists() for name in NAMES)


def test_a_run_that_was_killed_before_its_report_gets_it_when_it_is_resumed(run, trained, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    for name in NAMES:
        (copy / name).unlink()
    done = run("train", "--resume", copy)
    assert done.code == 0, done.err
    kept = [(folder / "report.json").read_text().split('"model"', 1)[1] for folder in (trained, copy)]
    assert kept[0] == kept[1]
    (copy / "report.html").unlink()
    assert run("train", "--resume", copy, "--no-report").code == 0
    assert not (copy / "report.html").exists()


def test_evaluate_and_report_write_pages_of_spans(run, trained, texts, tmp_path):
    done = run("evaluate", trained, texts / "test.jsonl", "--report", tmp_path / "on-test", "--json")
    assert done.code == 0, done.err
    assert done.json()["report"] == str(tmp_path / "on-test" / "report.html")
    again = run("report", tmp_path / "on-test", "--to", tmp_path / "again", "--title", "Titel")
    assert again.code == 0, again.err
    assert "Titel" in (tmp_path / "again" / "report.html").read_text()
