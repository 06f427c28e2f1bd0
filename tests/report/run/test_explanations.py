"""What a report tells of reasons: they are the model's own, and stand at the right words."""

import pytest
import torch

from manyhot.data.examples import Examples
from manyhot.labels.sparse import SparseLabels
from manyhot.report.run.explanations import TEXT_CHARACTERS, measure_explanations
from manyhot.report.run.judged import Judged, Origin
from manyhot.report.run.page import run_page
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from report.problems import run_report
from training.problems import feature_examples, image_examples, text_examples


def measured(examples, **settings):
    model = train(examples, TrainSettings(epochs=5, threads=1, **settings))
    judged = Judged.by_model(model, model.logits(examples), examples.labels, None)
    return model, measure_explanations(model, judged, Origin("test", examples))


@pytest.fixture(scope="module")
def texts():
    return measured(text_examples(), model="linear")


def test_every_label_is_listed_with_the_words_of_the_model(texts):
    model, found = texts
    assert sorted(each["label"] for each in found["words"]) == sorted(model.label_names)
    for each in found["words"]:
        own = model.label_words(labels=[each["label"]], most=8)[0]
        assert [name for name, _ in each["for"]] == [name for name, _ in own.speak_for]


def test_the_parts_of_a_decision_add_up_to_its_score(texts):
    _, found = texts
    assert found["examples"]
    for each in found["examples"]:
        total = each["base"] + sum(part for _, part in each["parts"]) + each["rest"]
        assert total == pytest.approx(each["score"], abs=1e-3)
        assert each["method"] == "exact"


def test_a_right_decision_comes_before_the_mistakes(texts):
    _, found = texts
    assert found["examples"][0]["true"]
    assert found["examples"][0]["predicted"]


def test_a_long_text_is_cut_to_where_the_words_are_that_speak():
    words = ["salt", "bread"] * 20
    labels = SparseLabels.from_lists([[0], [1]] * 20, num_labels=2)
    padded = ["dull " * 300 + word + " dull" * 300 for word in words]
    _, found = measured(Examples(labels, ("salt", "bread"), texts=padded), model="linear")
    assert found["examples"]
    for each in found["examples"]:
        assert len(each["text"]) <= TEXT_CHARACTERS
        assert each["before"]
        assert each["after"]
        start, end, share = max(each["words"], key=lambda word: word[2])
        assert each["text"][start:end] == each["label"]
        assert share == 1


def test_bodies_that_are_not_linear_have_no_words_and_say_what_is_unexplained():
    _, found = measured(feature_examples(), model="mlp", hidden=8)
    assert found["words"] == []
    assert {each["method"] for each in found["examples"]} == {"integrated gradients"}
    assert all("text" not in each for each in found["examples"])


def test_pictures_are_not_explained():
    _, found = measured(image_examples(), model="conv", hidden=8)
    assert found == {"words": [], "examples": []}


def test_the_page_marks_the_words_and_a_report_without_reasons_has_no_section(texts):
    _, found = texts
    report = {**run_report(), "explanations": found}
    page = run_page(report, title="t")
    assert 'id="explanations"' in page
    assert page.count("<mark ") == sum(len(each["words"]) for each in found["examples"])
    del report["explanations"], report["suspects"]
    bare = run_page(report, title="t")
    assert "explanations" not in bare
    assert "suspects" not in bare


def test_scores_without_a_number_do_not_break_the_report(texts):
    model, _ = texts
    examples = text_examples()
    logits = model.logits(examples)
    logits[0, 0] = torch.nan
    logits[1, 1] = torch.inf
    found = measure_explanations(model, Judged.by_model(model, logits, examples.labels, None), Origin("test", examples))
    assert found["examples"]
