"""A trained span model as the teacher of another one."""

from dataclasses import replace

import pytest

from manyhot import SpanExamples, SpanSettings, TrainSettings, load_span_model, train, train_spans
from manyhot.data.spans.examples import TextSpan
from manyhot.training.spans.teacher import LEAST, open_span_teacher, taught_spans
from training.problems import feature_examples
from training.spans.problems import people
from training.spans.test_train import SMALL

SETTINGS = replace(SpanSettings(**SMALL), epochs=6, dropout=0.0, word_dropout=0.0)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher") / "run"
    train_spans(people(60), SETTINGS, run=folder)
    return folder


def test_labels_are_the_marked_spans_mixed_with_the_teachers_probabilities(teacher):
    examples, model = people(8), load_span_model(teacher)
    wide = model.with_settings(replace(model.settings, decode="all", threshold=-20.0))
    taught = taught_spans(model, examples, 0.25)
    assert taught.texts == examples.texts
    for row, found in enumerate(wide.predict(examples)):
        says = {TextSpan(each.type, each.start, each.end): each.probability for each in found}
        listed = dict(zip(taught.spans[row], taught.values[row], strict=True))
        for span in {*says, *examples.spans[row]}:
            p = says.get(span, 0.0)
            wanted = 0.75 * (span in examples.spans[row]) + 0.25 * (p if p >= LEAST else 0.0)
            assert listed.get(span, 0.0) == pytest.approx(wanted if wanted >= LEAST else 0.0, abs=1e-5)


def test_a_student_of_the_teacher_alone_finds_what_the_teacher_finds(teacher):
    # No span that is marked is right: what the student learns it has from the teacher.
    texts = people(60).texts
    wrong = SpanExamples(texts, [[TextSpan(name, 0, 1) for name in load_span_model(teacher).type_names] for _ in texts])
    student = train_spans(wrong, replace(SETTINGS, epochs=12, teacher=str(teacher), teacher_share=1.0, validation=0.0))
    assert student.link == "soft"
    held = people(20, seed=7).texts
    wanted = [{each[:3] for each in row} for row in load_span_model(teacher).predict(held)]
    found = [{each[:3] for each in row} for row in student.predict(held)]
    hits = sum(len(a & b) for a, b in zip(wanted, found, strict=True))
    assert hits > 0.8 * sum(map(len, wanted))


def test_held_out_texts_are_judged_by_their_own_spans(teacher):
    seen = []
    given = replace(SETTINGS, epochs=1, validation=0.2, teacher=str(teacher), teacher_share=1.0)
    train_spans(people(20), given, held_out=lambda _, held: seen.append(held))
    texts = dict(zip(people(20).texts, people(20).spans, strict=True))
    assert len(seen[0]) == 4
    for text, spans in zip(seen[0].texts, seen[0].spans, strict=True):
        assert set(spans) == set(texts[text])


def test_a_teacher_must_read_spans_and_know_the_types(teacher, tmp_path):
    others = SpanExamples(["Ada met"], [[TextSpan("FISH", 0, 3)]])
    with pytest.raises(ValueError, match=r"`teacher` must know all types of the examples; .* does not know 'FISH' \(1 of 1\)"):
        open_span_teacher(teacher, others)
    train(feature_examples(), TrainSettings(epochs=1, hidden=4), run=tmp_path / "rows")
    with pytest.raises(ValueError, match="`teacher` must be a run or model folder of spans"):
        train_spans(people(8), replace(SETTINGS, teacher=str(tmp_path / "rows")))
    with pytest.raises(ValueError, match="`teacher_share` must go with `teacher`"):
        SpanSettings(teacher_share=0.2)


def test_a_run_with_another_teacher_is_not_resumed(teacher, tmp_path):
    given = replace(SETTINGS, epochs=1, teacher=str(tmp_path / "teacher"))
    load_span_model(teacher).save(tmp_path / "teacher")
    train_spans(people(12), given, run=tmp_path / "run")
    model = load_span_model(teacher)
    model.with_settings(replace(model.settings, threshold=1.0)).save(tmp_path / "teacher")
    with pytest.raises(ValueError, match="the data changed"):
        train_spans(people(12), given, run=tmp_path / "run", resume=True)
