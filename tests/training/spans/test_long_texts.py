"""One very long text: cut into windows, trained and read in time and memory that are linear in it."""

import time
from dataclasses import replace

import pytest

from manyhot.cli.commands.spans.scores import span_scores
from manyhot.data.spans.examples import SpanExamples, TextSpan
from manyhot.training.spans.session import SpanSession
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans
from training.spans.problems import SMALL, joined, people

# Seconds of a processor that nobody else uses; quadratic work took minutes.
MOST_SECONDS = 60


def test_a_text_of_400000_characters_trains_and_is_measured_in_seconds():
    long = joined(people(18_000), 18_000)
    assert len(long.texts[0]) > 400_000
    begun = time.process_time()
    model = train_spans(long, replace(SpanSettings(**SMALL), epochs=1))
    assert model.about["windows"] > 500
    found = span_scores(model, long)
    assert found.metrics.counts().gold == 54_000
    assert time.process_time() - begun < MOST_SECONDS


def test_words_of_a_long_text_have_vectors_of_their_own():
    long = joined(people(400), 400)
    session = SpanSession(long, SpanSettings(**SMALL, max_tokens=64, overlap=16), None)
    assert {"ada", "uni", "rom"} <= set(session.inputs.tables[0].symbols)


def test_a_long_text_is_learned_as_its_sentences_are():
    long = joined(people(240), 240)
    settings = replace(SpanSettings(**SMALL), epochs=30, max_tokens=32, overlap=16)
    assert span_scores(train_spans(long, settings), joined(people(40, seed=2), 40)).metrics.f1() > 0.9


@pytest.mark.parametrize(("overlap", "cut"), [(8, 0), (2, 1)])
def test_spans_that_no_window_has_whole_are_counted_and_said(overlap, cut):
    text = " ".join(["wort"] * 40)
    # Words 7 to 13: whole in a window of 10 that begins at word 4 or later and ends after word 13.
    spans = [TextSpan("X", 7 * 5, 13 * 5 + 4), TextSpan("Y", 0, 4)]
    told = []
    settings = replace(SpanSettings(**SMALL), epochs=1, max_tokens=10, overlap=overlap, validation=0.0)
    model = train_spans(SpanExamples([text], [spans]), settings, progress=told.append)
    assert model.about["cut_spans"] == cut
    assert any("cut at a window's end" in event.message for event in told) == bool(cut)
