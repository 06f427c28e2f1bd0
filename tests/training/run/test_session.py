"""Progress inside long epochs: a line every few seconds, in the log of the run and where there is no terminal."""

import json

import pytest

from manyhot import SpanSettings, TrainSettings, train, train_spans
from manyhot.cli.io.progress import Watch
from manyhot.training.run import session
from manyhot.training.run.progress import Event
from training.problems import feature_examples, text_examples
from training.spans.problems import people


@pytest.fixture
def impatient(monkeypatch):
    """Every step is long enough for a sign of life."""
    monkeypatch.setattr(session, "SECONDS_BETWEEN_EVENTS", 0.0)


@pytest.mark.parametrize("make", [feature_examples, text_examples])
def test_a_long_epoch_is_told_and_logged_step_by_step(make, impatient, tmp_path):
    told = []
    train(make(96), TrainSettings(epochs=2, batch_size=16, threads=1), run=tmp_path / "run", progress=told.append)
    steps = [event for event in told if event.kind == "step" and event.extra["fit"] == "final"]
    assert len(steps) >= 2 * 5
    assert all(event.epoch in (1, 2) and 1 <= event.extra["batch"] <= event.extra["batches"] for event in steps)
    assert all(event.remaining >= 0 and event.loss > 0 for event in steps)
    assert "batch 1/" in steps[0].line()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["batch"] for line in lines if line["kind"] == "step" and line["fit"] == "final"] == [
        event.extra["batch"] for event in steps
    ]


def test_spans_tell_it_too(impatient):
    told = []
    train_spans(people(40), SpanSettings(hidden=8, head_size=8, epochs=1, batch_size=8), progress=told.append)
    assert sum(event.kind == "step" for event in told) >= 4


def test_without_a_terminal_a_line_says_that_training_goes_on(capsys):
    with Watch() as watch:
        watch(Event("step", epoch=1, epochs=3, loss=0.5, extra={"fit": "fold-1", "batch": 7, "batches": 90}))
    assert "epoch 1/3  batch 7/90  loss 0.5" in " ".join(capsys.readouterr().err.split("\n"))


def test_short_epochs_are_not_interrupted_by_lines(tmp_path):
    told = []
    train(feature_examples(60), TrainSettings(epochs=2, learning_rate=0.01, hidden=8), progress=told.append)
    assert not [event for event in told if event.kind == "step"]
