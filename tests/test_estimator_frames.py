"""The estimator on columns of a data frame."""

import numpy as np
import pytest

from manyhot.estimator import ManyhotClassifier

pandas = pytest.importorskip("pandas", reason="pandas is not installed")

TEXTS, SETS = ["boil the egg", "an iron pan", "egg in a pan", "nothing here"] * 30, [["egg"], ["pan"], ["pan", "egg"], []] * 30


@pytest.mark.parametrize(
    "y",
    [
        pandas.Series(SETS),
        pandas.Series([frozenset(row) for row in SETS], index=range(7, 127)),
        pandas.DataFrame({"labels": SETS}),
    ],
    ids=["column", "column of sets", "frame"],
)
def test_a_column_of_names_is_taken(y):
    fitted = ManyhotClassifier().fit(pandas.Series(TEXTS), y)
    assert fitted.predict(TEXTS[:4]) == [["egg"], ["pan"], ["egg", "pan"], []]
    assert fitted.score(TEXTS, y) == 1


@pytest.mark.parametrize("column", ["series", "frame", "string type"])
def test_a_column_of_texts_and_columns_of_labels_come_from_a_frame(column):
    frame = pandas.DataFrame({"text": TEXTS, "egg": ["egg" in row for row in SETS], "pan": ["pan" in row for row in SETS]})
    X = {"series": frame["text"], "frame": frame[["text"]], "string type": frame["text"].astype("string")}[column]
    fitted = ManyhotClassifier().fit(X, frame[["egg", "pan"]])
    assert fitted.classes_.tolist() == ["egg", "pan"]
    assert fitted.predict(X)[:4].tolist() == [[1, 0], [0, 1], [1, 1], [0, 0]]


def test_columns_of_features_are_known_by_name_after_loading(tmp_path):
    X = np.random.default_rng(0).normal(size=(100, 3))
    features, labels = pandas.DataFrame(X, columns=list("abc")), pandas.DataFrame(X[:, :2] > 0, columns=["u", "v"])
    fitted = ManyhotClassifier(epochs=2).fit(features, labels)
    fitted.save(tmp_path)
    loaded = ManyhotClassifier.load(tmp_path)
    assert np.array_equal(loaded.predict(features), fitted.predict(features))
    assert loaded.classes_.tolist() == ["u", "v"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(features.rename(columns={"a": "other"}))
