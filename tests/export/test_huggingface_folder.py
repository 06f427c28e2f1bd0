"""The Hugging Face folder: a stock pipeline with a cut at 0.5 decides as the model, or nothing is written."""

import copy
import json

import pytest

from manyhot.decisions.rule import DecisionRule, decide

pytest.importorskip("transformers", reason="the extra `text` is not installed")

from manyhot.export.huggingface_folder import export_huggingface, pipeline_scores


@pytest.fixture
def model(encoder_model):
    changed = copy.copy(encoder_model[0])
    changed.rule = DecisionRule(threshold=(0.4, -0.3, 0.0, 1.0, -1.0, 0.2))
    return changed


def test_the_pipeline_decides_as_the_rule(model, encoder_model, tmp_path):
    texts = encoder_model[1].texts
    parity = export_huggingface(model, tmp_path, rows=texts)
    assert (parity.rows, parity.different) == (60, 0)
    decided = pipeline_scores(tmp_path, texts, model.label_names, max_tokens=24) > 0.5
    assert decided.equal(decide(model.logits(texts), model.rule))
    assert not decided.equal(decide(model.logits(texts)))
    names = {path.name for path in tmp_path.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "modeling_manyhot.py", "README.md"} <= names
    assert json.loads((tmp_path / "config.json").read_text())["problem_type"] == "multi_label_classification"
    card = (tmp_path / "README.md").read_text()
    assert "| bread | -0.3 |" in card
    assert "0 of 360 decisions differ" in card


def test_a_mismatch_writes_nothing(model, encoder_model, tmp_path, monkeypatch):
    monkeypatch.setattr("manyhot.export.huggingface_folder.fold_rule", lambda weight, bias, *_: (weight, bias))
    with pytest.raises(ValueError, match=r"decisions of the pipeline differ.*Nothing was written"):
        export_huggingface(model, tmp_path / "out", rows=encoder_model[1].texts)
    assert not (tmp_path / "out").exists()


def test_a_rule_that_counts_labels_is_refused(model, encoder_model, tmp_path):
    model.rule = DecisionRule(min_labels=1)
    with pytest.raises(ValueError, match="cannot be folded into a head"):
        export_huggingface(model, tmp_path, rows=encoder_model[1].texts)


def test_other_bodies_are_refused(trained, tmp_path):
    model, examples = trained["linear"]
    with pytest.raises(ValueError, match="a Hugging Face folder holds an encoder; the body is 'linear'"):
        export_huggingface(model, tmp_path, rows=examples)
