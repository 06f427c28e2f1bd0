"""Explanations of spans: tokens whose parts add up to the score, but for an error that is told."""

from dataclasses import replace

import pytest

from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans
from training.spans.problems import SMALL, joined, people

TEXT = "Kim rief die Uni Bonn."


@pytest.fixture(scope="module", params=["words", "characters", "transformer", "typed"])
def model(request):
    chosen = {"head": "global-pointer"} if request.param == "typed" else {"body": request.param}
    return train_spans(people(), replace(SpanSettings(**SMALL), epochs=4, **chosen))


def test_parts_base_and_error_add_up_to_the_score_and_more_steps_leave_less(model):
    few, many = (model.explain([TEXT], steps=steps, top=3)[0] for steps in (1, 64))
    assert [span.to_json()["type"] for span in few.spans] == [span.type for span in many.spans]
    for one, two in zip(few.spans, many.spans, strict=True):
        for span in (one, two):
            parts = sum(part for _, _, part in span.words)
            assert span.base + parts + span.error == pytest.approx(span.score, abs=1e-4)
            assert sum(each.part for each in span.contributions) + span.rest == pytest.approx(parts, abs=1e-4)
    assert sum(abs(span.error) for span in many.spans) <= sum(abs(span.error) for span in few.spans) + 1e-3
    assert sum(abs(span.error) for span in many.spans) < 0.2


def test_found_spans_are_explained_reliably_without_a_setting(model):
    for span in model.explain([TEXT])[0].spans:
        if span.predicted:
            assert span.reliable, (span.score, span.base, span.error)
            assert span.to_json()["reliable"] is True


def test_found_spans_come_first_with_the_scores_of_predict(model):
    found = {span[:3]: span.score for span in model.predict([TEXT])[0]}
    told = model.explain([TEXT], top=5)[0]
    assert len(told.spans) >= 5
    assert {(s.type, s.start, s.end) for s in told.spans if s.predicted} == set(found)
    for span in told.spans:
        assert span.text == TEXT[span.start : span.end]
        if span.predicted:
            assert span.score == pytest.approx(found[span.type, span.start, span.end], abs=1e-4)


def test_spans_of_a_long_text_are_explained_in_their_window():
    model = train_spans(people(), replace(SpanSettings(**SMALL), epochs=4))
    long = joined(people(20, seed=1), 20)
    told = model.explain(long, top=1)[0]
    found = {span[:3] for span in model.predict(long)[0]}
    assert {(s.type, s.start, s.end) for s in told.spans if s.predicted} == found
    for span in told.spans:
        assert all(0 <= start < end <= len(long.texts[0]) for start, end, _ in span.words)


def test_types_can_be_named(model):
    assert {span.type for span in model.explain([TEXT], types=["LOC"], top=2)[0].spans} == {"LOC"}
    with pytest.raises(ValueError, match="must be types of the model"):
        model.explain([TEXT], types=["LOK"])
    with pytest.raises(TypeError, match="a list of strings"):
        model.explain(TEXT)
