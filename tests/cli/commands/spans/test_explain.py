"""Explanations of spans on the command line."""

import json

import pytest

from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans
from training.spans.problems import SMALL, people


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    train_spans(people(), SpanSettings(**SMALL, epochs=4)).save(folder)
    (folder.parent / "texts.txt").write_text("Kim rief die Uni Bonn.\nAda traf die Uni Rom.\n")
    return folder


def test_spans_are_explained_for_people_and_for_machines(run, saved):
    file = saved.parent / "texts.txt"
    shown = run("explain", saved, file, "--steps", 8)
    assert shown.code == 0, shown.err
    assert "unexplained" in shown.out
    assert "Kim" in shown.out
    lines = [json.loads(line) for line in run("explain", saved, file, "--json", "--label", "LOC").out.splitlines()]
    assert [line["row"] for line in lines] == [0, 1]
    for line in lines:
        for span in line["spans"]:
            assert span["type"] == "LOC"
            parts = sum(part for _, _, part in span["words"])
            assert span["base"] + parts + span["error"] == pytest.approx(span["score"], abs=1e-4)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--words"], "linear and bag models"),
        (["--label", "DOG"], "must be a type of the model"),
        (["--separator", "|"], "files of labels"),
    ],
)
def test_what_spans_cannot_do_is_refused(run, saved, flags, message):
    done = run("explain", saved, saved.parent / "texts.txt", *flags)
    assert done.code == 2
    assert message in done.err
