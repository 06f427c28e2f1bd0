"""A classifier goes out as a folder of its stock class, with a card; a mismatch writes nothing."""

import json

import pytest
import torch

from integrations import tiny
from manyhot import DecisionRule, decide
from manyhot.cli.main import main
from manyhot.export.huggingface_folder import pipeline_scores
from manyhot.integrations.huggingface import to_manyhot
from manyhot.integrations.huggingface.export import export_classifier

TEXTS = tiny.make_texts(40)


@pytest.fixture
def trained():
    network = tiny.make_classifier().eval()
    with torch.no_grad():
        network.classifier.weight *= 1e4  # scores that are not all alike
    model = to_manyhot(network, tiny.make_tokenizer())
    model.rule = DecisionRule(threshold=tuple(model.logits(TEXTS).median(dim=0).values.tolist()))
    return model


def test_thresholds_on_scores_of_real_rows_are_decided_alike(trained, tmp_path):
    parity = export_classifier(trained, tmp_path / "out", texts=TEXTS)
    assert (parity.rows, parity.different) == (40, 0)
    got = pipeline_scores(tmp_path / "out", TEXTS, trained.label_names, max_tokens=32) > 0.5
    assert got.tolist() == decide(trained.logits(TEXTS), trained.rule).tolist()
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| baking |" in card
    assert "trust_remote_code" not in card


def test_a_rule_that_cannot_be_folded_writes_nothing(trained, tmp_path):
    trained.rule = DecisionRule(top_k=2)
    with pytest.raises(ValueError, match="top_k=2"):
        export_classifier(trained, tmp_path / "out", texts=TEXTS)
    assert not (tmp_path / "out").exists()


def test_the_command_exports_it(trained, tmp_path):
    trained.save(tmp_path / "model")
    rows = [json.dumps({"text": text, "labels": []}) for text in TEXTS]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    assert main(["export", str(tmp_path / "model"), str(tmp_path / "rows.jsonl"), "--to", "huggingface"]) == 0
    assert (tmp_path / "model-huggingface" / "config.json").exists()
