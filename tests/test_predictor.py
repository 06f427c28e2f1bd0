"""Predictor: a path that loads a model where it is used."""

import pickle

import numpy as np
import pytest

from manyhot import Predictor, TrainSettings, train
from training.problems import feature_examples, text_examples


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    examples = text_examples(60)
    train(examples, TrainSettings(epochs=2, threads=1)).save(folder)
    return folder, examples


def test_it_travels_as_a_path_and_loads_at_its_first_call(texts):
    folder, examples = texts
    predictor = Predictor(folder, top_k=2, scores=True, probabilities=True)
    wanted = predictor(examples)
    content = pickle.dumps(predictor)
    assert len(content) < 1000
    there = pickle.loads(content)
    assert there._loaded is None
    assert there(np.asarray(examples.texts, dtype=object)) == wanted
    assert there._loaded is not None
    assert [len(row) for row in wanted["labels"]] == [2] * 60
    assert all(row[0] >= row[1] for row in wanted["scores"])
    assert set(wanted) == {"labels", "scores", "probabilities"}


def test_it_follows_the_models_rule_and_takes_rows_of_features(tmp_path):
    examples = feature_examples(50)
    model = train(examples, TrainSettings(epochs=2, hidden=8, threads=1))
    model.save(tmp_path)
    names = [[model.label_names[label] for label in row] for row in model.predict(examples).lists()]
    found = Predictor(tmp_path)(list(examples.features))["labels"]
    assert [sorted(row) for row in found] == [sorted(row) for row in names]
    assert found == Predictor(tmp_path)(examples.features)["labels"]


def test_a_missing_folder_is_said_where_it_is_used(tmp_path):
    predictor = Predictor(tmp_path / "nothing")
    with pytest.raises(ValueError, match="nothing"):
        predictor(["a"])
