"""Plain weights: matrix products give the scores, thresholds the decisions."""

import copy
import json
import runpy

import numpy as np
import pytest
from safetensors.numpy import load_file

from manyhot.decisions.rule import DecisionRule
from manyhot.export.plain_weights import export_weights
from training.problems import text_examples


@pytest.mark.parametrize("name", ["linear", "bag", "wide"])
def test_texts_are_decided_by_products_and_thresholds(trained, tmp_path, name):
    model, examples = copy.copy(trained[name][0]), trained[name][1]
    # The rule of a wide body also limits the number of labels.
    model.rule = DecisionRule(threshold=model.rule.threshold)
    parity = export_weights(model, tmp_path, rows=examples)
    assert (parity.rows, parity.different) == (len(examples), 0)
    weights, told = load_file(tmp_path / "weights.safetensors"), json.loads((tmp_path / "weights.json").read_text())
    module = runpy.run_path(str(tmp_path / "vectoriser.py"))
    data = module["load"](tmp_path / "vectoriser.json")
    texts = text_examples(50, seed=9).texts
    wanted = model.predict(texts).lists()
    probs = model.probabilities(texts).numpy()
    for row, text in enumerate(texts):
        columns, values = zip(*module["features"](data, text), strict=True)
        score = np.array(values) @ weights["first"][list(columns)]
        if "second" in weights:
            score = score @ weights["second"].T
        score = score + weights["bias"]
        assert np.flatnonzero(score > weights["threshold"]).tolist() == wanted[row]
        np.testing.assert_allclose(1 / (1 + np.exp(-(weights["slope"] * score + weights["intercept"]))), probs[row], atol=1e-4)
    assert told["labels"] == list(model.label_names)


@pytest.mark.parametrize("name", ["linear-features", "sparse-features"])
def test_features_are_compared_too(trained, tmp_path, name):
    model, examples = trained[name]
    parity = export_weights(model, tmp_path, rows=examples)
    assert (parity.rows, parity.different) == (len(examples), 0)


def test_a_mismatch_writes_nothing(trained, tmp_path, monkeypatch):
    model, examples = trained["linear-features"]
    factors = model.factors()
    monkeypatch.setattr(model, "factors", lambda: factors._replace(bias=factors.bias + 1))
    with pytest.raises(ValueError, match=r"decisions differ.*Nothing was written"):
        export_weights(model, tmp_path / "out", rows=examples)
    assert not (tmp_path / "out").exists()


def test_what_is_not_linear_or_counts_labels_is_refused(trained, tmp_path):
    with pytest.raises(ValueError, match=r"linear in their inputs \(linear, bag, wide\); got 'mlp'"):
        export_weights(trained["mlp"][0], tmp_path, rows=trained["mlp"][1])
    model = trained["linear"][0]
    kept, model.rule = model.rule, DecisionRule(top_k=1)
    try:
        with pytest.raises(ValueError, match="cannot be folded"):
            export_weights(model, tmp_path, rows=trained["linear"][1])
    finally:
        model.rule = kept
