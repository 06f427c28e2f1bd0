"""Reasons: the model that scored a row says which words made a label suspect."""

import pytest

from manyhot.curation.cross_fit import cross_fitted_logits
from manyhot.curation.reasons import Reasons
from manyhot.curation.suspects import Suspect
from manyhot.training.rows.settings import TrainSettings
from training.problems import WORDS, feature_examples, text_examples


def test_the_word_of_a_missing_label_is_the_reason_and_comes_from_the_model_that_scored_the_row():
    examples = text_examples()
    reasons, models = Reasons(), {}

    def keep(rows, model):
        reasons.keep(rows, model)
        models.update(dict.fromkeys(rows.tolist(), model))

    logits = cross_fitted_logits(examples, TrainSettings(model="linear", epochs=3, threads=1), folds=3, on_model=keep)
    assert sorted(models) == list(range(len(examples)))
    row = next(row for row, text in enumerate(examples.texts) if "salt" in text.split())
    found = reasons.of(Suspect(row, WORDS.index("salt"), "missing", 0.9, 0.9), examples, most=200)
    assert "salt" in [feature for feature, _ in found]
    parts = [part for _, part in found]
    assert parts == sorted(parts, reverse=True)
    label = models[row].explain(examples[row : row + 1], labels=["salt"])[0].labels[0]
    assert label.score == pytest.approx(float(logits[row, WORDS.index("salt")]), abs=1e-4)
    against = reasons.of(Suspect(row, WORDS.index("oven"), "wrong", 0.1, 0.9), examples)
    assert against
    assert all(part < 0 for _, part in against)


def test_bodies_without_exact_parts_give_no_reasons():
    examples, reasons = feature_examples(), Reasons()
    cross_fitted_logits(examples, TrainSettings(model="mlp", hidden=8, epochs=2, threads=1), folds=2, on_model=reasons.keep)
    assert reasons.of(Suspect(0, 0, "missing", 0.9, 0.9), examples) == []
