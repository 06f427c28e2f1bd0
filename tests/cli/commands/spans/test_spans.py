"""Spans on the command line: train, show, evaluate, predict, inspect, resume."""

import json
import shutil

import pytest

from cli.processes import real
from manyhot.cli.commands.spans.predict import highlighted
from manyhot.cli.main import main
from manyhot.data.spans.write import write_span_examples
from manyhot.training.spans.bundle import load_span_model
from training.spans.problems import SMALL, people, same_network

FLAGS = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spans")
    write_span_examples(people(), folder / "train.jsonl")
    write_span_examples(people(20, seed=1), folder / "test.jsonl")
    return folder


@pytest.fixture(scope="module")
def trained(texts):
    folder = texts / "run"
    given = ["--task", "spans", texts / "train.jsonl", "--run", folder, "--epochs", 8, "--quiet", *FLAGS]
    assert main(["train", *map(str, given)]) == 0
    return folder


def test_the_whole_way_in_processes_of_their_own(tmp_path, texts):
    done = real("train", "--task", "spans", texts / "train.jsonl", "--epochs", "8", *FLAGS, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "80 texts, 240 spans, 3 types" in done.err
    assert "span-F1" in done.err
    assert "Done: runs/train." in done.out
    found = real("predict", "runs/train", stdin=b"Kim rief die Uni Bonn.\n", cwd=tmp_path)
    assert found.code == 0, found.err
    spans = json.loads(found.out)["spans"]
    assert [(span["type"], span["text"]) for span in spans] == [("PER", "Kim"), ("ORG", "Uni Bonn"), ("LOC", "Bonn")]


def test_evaluate_tells_figures_types_and_errors(run, trained, texts):
    done = run("evaluate", trained, texts / "test.jsonl", "--json")
    told = done.json()
    assert told["scores"]["F1"] > 0.9
    assert {"outer F1", "inner F1", "boundary F1", "macro F1"} <= set(told["scores"])
    assert [row["type"] for row in told["types"]] == ["LOC", "ORG", "PER"]
    wrong = json.loads((texts / "test.jsonl").read_text().splitlines()[0])
    wrong["spans"] = [{"start": 0, "end": 2, "type": "PER"}, {"start": 0, "end": 3, "type": "DOG"}]
    (texts / "wrong.jsonl").write_text(json.dumps(wrong) + "\n")
    shown = run("evaluate", trained, texts / "wrong.jsonl")
    assert shown.code == 0, shown.err
    for part in ("Errors", "DOG", "1 of 2 spans do not align with tokens", "the model does not know", "spurious"):
        assert part in shown.out


def test_predict_writes_lines_that_train_and_evaluate_read(run, trained, texts, tmp_path):
    out = tmp_path / "found.jsonl"
    done = run("predict", trained, texts / "test.jsonl", "--to", out, "--scores", "--probabilities")
    assert done.code == 0, done.err
    first = json.loads(out.read_text().splitlines()[0])["spans"][0]
    assert set(first) == {"start", "end", "type", "text", "score", "probability"}
    assert run("evaluate", trained, out, "--json").json()["scores"]["F1"] == 1.0


def test_a_page_is_written_on_request(run, trained, texts, tmp_path):
    page = tmp_path / "page.html"
    done = run("predict", trained, texts / "test.jsonl", "--html", page)
    assert (done.code, done.out) == (0, ""), done.err
    assert "20 texts" in done.err
    content = page.read_text()
    assert content.startswith("<!doctype html>")
    assert "http:" not in content
    assert "https:" not in content


def test_show_and_inspect_say_what_is_there(run, trained, texts, tmp_path):
    shown = run("show", trained)
    assert "nested" in shown.out
    assert run("show", trained, "--json").json()["task"] == "spans"
    inspected = run("inspect", "--task", "spans", texts / "train.jsonl", "--test", texts / "test.jsonl")
    assert inspected.code == 0, inspected.err
    assert "240, 80 of them inside another" in inspected.out
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "Ada", "spans": [[0, 9, "PER"]]}\n{"text": "50km", "spans": [[2, 4, "UNIT"]]}\n')
    told = run("inspect", "--task", "spans", bad)
    assert told.code == 1
    assert "must lie in the text" in told.out
    assert "begins inside a token" in told.out
    assert run("inspect", "--task", "spans", bad, "--json").json()["unaligned"][0]["text"] == "km"


def test_a_run_is_resumed_as_it_was_begun(run, trained, texts, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(trained, copy)
    shutil.rmtree(copy / "model")
    done = run("train", "--resume", copy, "--json")
    assert done.code == 0, done.err
    assert same_network(load_span_model(copy), load_span_model(trained))
    refused = run("train", "--resume", copy, "--head", "efficient")
    assert refused.code == 2
    assert "leave out: --head." in refused.err


def test_a_settings_file_is_enough_to_repeat_a_run(run, trained, tmp_path):
    done = run("train", "--config", trained / "config.toml", "--epochs", "1", "--run", tmp_path / "again", "--json")
    assert done.code == 0, done.err
    assert done.json()["model"]["settings"]["hidden"] == SMALL["hidden"]
    assert done.json()["model"]["epochs_run"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "FILE", "--head", "efficient"], "--head needs --task spans"),
        (["train", "FILE", "--scheme", "iob2"], "--scheme needs --task spans"),
        (["train", "--task", "spans", "FILE", "--separator", "|"], "--separator is for files of labels"),
        (["train", "--task", "spans", "FILE", "--mixup", "1"], "unknown setting 'mixup'"),
        (["train", "--task", "spans", "FILE", "--loss", "lsep"], "--loss must be one of 'zlpr', 'bce', 'focal'"),
        (["train", "--task", "spans", "FILE", "--format", "csv"], "--format must be one of brat, conll"),
        (["train", "--task", "words", "FILE"], "--task must be one of labels, spans"),
        (["train", "--task", "spans"], "name a file of texts with spans"),
        (["predict", "MODEL", "FILE", "--top-k", "2"], "are for models of labels"),
        (["evaluate", "MODEL", "FILE", "--metric", "P@5"], "are for models of labels"),
    ],
)
def test_flags_of_the_other_task_are_wrong_usage(run, trained, texts, tmp_path, arguments, message):
    named = {"FILE": texts / "train.jsonl", "MODEL": trained}
    extra = ["--run", tmp_path / "new"] if arguments[0] == "train" else []
    done = run(*(named.get(each, each) for each in arguments), *extra)
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "new").exists()


def test_a_wrong_file_is_one_line_with_file_and_line(run, tmp_path):
    bad = tmp_path / "bad.conll"
    bad.write_text("a B-X\nb\n")
    done = run("train", "--task", "spans", bad, "--format", "conll", "--run", tmp_path / "run")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "bad.conll, line 2: must have a token and 1 column of tags" in done.err


def test_a_terminal_shows_brackets_and_colours():
    text = highlighted("Uni Leipzig heute", [("ORG", 0, 11), ("LOC", 4, 11)], ["LOC", "ORG"])
    assert text.plain == "[Uni [Leipzig]LOC]ORG heute"
    assert {str(span.style) for span in text.spans} >= {"bold cyan", "magenta reverse"}
    assert highlighted("", [], []).plain == ""
