"""The default on texts: a squared hinge that is solved label by label, with a cost chosen on held-out rows."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from manyhot import Examples, SparseLabels, TrainSettings, evaluate, load_model, train
from manyhot.training.rows import choose
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.linear import phase
from manyhot.training.rows.linear.solver import Job, OneVsRest
from training.problems import same_weights, text_examples, title_examples

PLATT = "platt"


def told(examples, settings=None, **given):
    notes = []
    model = train(examples, settings or TrainSettings(), progress=lambda event: notes.append(event.message), **given)
    return model, notes


def test_texts_are_solved_with_a_squared_hinge_and_the_model_says_why():
    model, notes = told(text_examples())
    assert model.settings.loss == "squared_hinge"
    assert model.calibration.kind == PLATT
    assert "margin" in model.about["why"]["loss"]
    assert "solved" in model.about["why"]["stopping"]
    assert "margins" in model.about["why"]["probabilities"]
    assert any("the cost of an error is" in note for note in notes)
    assert evaluate(model, text_examples(seed=1), ["micro-F1", "ECE"])["micro-F1"] > 0.95
    probabilities = model.probabilities(text_examples(20))
    assert bool(((probabilities > 0) & (probabilities < 1)).all())


@pytest.mark.parametrize(
    "given",
    [
        {"tune": "none"},
        {"calibrate": "none"},
        {"pos_weight": 3.0},
        {"smoothing": 0.1},
        {"learn_threshold": True},
        {"strategy": "br"},
        {"loss": "bce"},
    ],
)
def test_settings_that_need_another_loss_keep_it(given):
    model = train(text_examples(), TrainSettings(epochs=2, **given))
    assert model.settings.loss == given.get("loss", "bce" if "strategy" in given else "zlpr")


def test_few_rows_without_held_out_ones_keep_a_loss_that_decides_by_itself():
    model = train(text_examples(29))
    assert model.settings.loss == "zlpr"
    assert train(text_examples(30)).settings.loss == "squared_hinge"


@pytest.mark.parametrize("given", [{"learning_rate": 0.1}, {"batch_size": 16}, {"loss_option": ("margin=2",)}])
def test_settings_of_gradient_steps_lead_to_them(given):
    settings = TrainSettings(loss="squared_hinge", epochs=2, **given)
    model, notes = told(text_examples(), settings)
    assert not any("the cost of an error" in note for note in notes)
    assert "solved" not in model.about["why"]["stopping"]


def test_unknown_labels_are_trained_by_steps():
    examples = text_examples()
    unknown = SparseLabels.from_lists([[0]] + [[]] * (len(examples) - 1), num_labels=examples.num_labels)
    model, _ = told(replace(examples, unknown=unknown))
    assert "solved" not in model.about["why"]["stopping"]


def test_without_the_native_engine_steps_are_taken(monkeypatch):
    monkeypatch.setattr(choose, "native", SimpleNamespace(available=lambda: (False, "not here.")))
    model, notes = told(text_examples())
    assert model.settings.loss == "squared_hinge"
    assert any("the learning rate times" in note for note in notes)


def test_the_model_is_solved_on_all_rows_and_the_scores_to_tune_on_are_of_others():
    examples, seen = title_examples(400, num_labels=12), []
    model = train(examples, TrainSettings(folds=4), held_out=lambda _, tuning: seen.append(tuning))
    tuning = seen[0]
    assert tuning.rows.tolist() == list(range(400))
    assert tuning.fold.bincount().tolist() == [100] * 4
    rows = model.inputs.rows(examples)
    solver = OneVsRest(TrainingRows(rows, examples.labels), passes=phase.PASSES, seed=0, threads=1)
    every = np.arange(len(examples))
    fits = {}
    for cost in phase.COSTS:
        (whole,) = solver.solve([Job(every, cost)])
        fits[cost] = bool(torch.equal(whole.weight, model.body.head.weight.detach()))
    assert sum(fits.values()) == 1
    cost = next(cost for cost, same in fits.items() if same)
    for number in range(4):
        own = (tuning.fold == number).nonzero().flatten().numpy()
        (weights,) = solver.solve([Job(np.setdiff1d(every, own), cost)])
        wanted = torch.from_numpy(rows[own].toarray()) @ weights.weight + weights.bias
        torch.testing.assert_close(tuning.logits[torch.from_numpy(own)], wanted, rtol=1e-4, atol=1e-5)


def test_the_cost_is_the_best_of_those_tried_and_the_search_goes_on_while_it_gains(monkeypatch):
    values = {cost: -abs(np.log2(cost) - 2) for cost in phase.COSTS}
    tried = []

    def value(settings, tuning):
        return values[tried[-1]]

    def solve(self, jobs):
        for job in jobs:
            tried.append(job.cost)
            yield original(self, [job]).__next__()

    original = OneVsRest.solve
    monkeypatch.setattr(OneVsRest, "solve", solve)
    monkeypatch.setattr(phase, "best_value", value)
    _, notes = told(text_examples(), validation=text_examples(50, seed=2))
    assert tried == [0.5, 0.25, 1.0, 2.0, 4.0, 8.0]
    assert any("the cost of an error is 4," in note for note in notes)


def test_validation_rows_choose_the_cost_and_tune_the_rule():
    held, seen = text_examples(80, seed=3), []
    model = train(text_examples(), validation=held, held_out=lambda _, tuning: seen.append(tuning))
    torch.testing.assert_close(seen[0].logits, model.logits(held))
    assert seen[0].rows is None


def test_the_number_of_folds_depends_on_the_rows():
    assert train(text_examples(300)).settings.folds == 3
    assert train(text_examples(1000)).settings.folds == 5
    assert train(text_examples(1000), TrainSettings(folds=2)).settings.folds == 2
    assert train(text_examples(1000), TrainSettings(loss="zlpr", epochs=1)).settings.folds == 3


def test_threads_and_another_start_change_no_bit_and_a_saved_model_predicts_the_same(tmp_path):
    examples = title_examples(300, num_labels=140)
    first = train(examples, TrainSettings(threads=1), run=tmp_path / "run")
    again = train(examples, TrainSettings(threads=1), run=tmp_path / "run", resume=True)
    assert same_weights(first, train(examples, TrainSettings(threads=4)))
    assert same_weights(first, again)
    loaded = load_model(tmp_path / "run" / "model")
    assert torch.equal(loaded.probabilities(examples), first.probabilities(examples))
    assert loaded.predict(examples).lists() == first.predict(examples).lists()


def test_weights_of_rows_are_used():
    examples = text_examples()
    weights = torch.ones(len(examples))
    weights[:100] = 5
    assert not same_weights(train(examples), train(examples, sample_weight=weights))


def test_a_label_without_rows_scores_low():
    examples = text_examples()
    labels = SparseLabels.from_lists(examples.labels.lists(), num_labels=examples.num_labels + 1)
    wider = Examples(labels, (*examples.label_names, "never"), texts=examples.texts)
    assert float(train(wider).logits(examples.texts)[:, -1].max()) < -0.5
