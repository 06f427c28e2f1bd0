import json

import pytest
import torch
from typer.testing import CliRunner

from integrations import tiny
from manyhot import DecisionRule, load_model
from manyhot.cli.main import app
from manyhot.integrations.huggingface import from_manyhot, score_texts, to_manyhot


def trained(**settings):
    return to_manyhot(tiny.make_classifier().eval(), tiny.make_tokenizer(), **settings)


def test_a_bundle_gives_the_logits_of_the_model(tmp_path):
    texts = [*tiny.make_texts(40, length=9), "apple"]
    model = tiny.make_classifier().eval()
    bundle = to_manyhot(model, tiny.make_tokenizer(), rule=DecisionRule(threshold=0.05))
    bundle.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    wanted = score_texts(model, tiny.make_tokenizer(), texts)
    torch.testing.assert_close(loaded.logits(texts), wanted, rtol=1e-5, atol=1e-6)
    assert loaded.label_names == tiny.NAMES
    assert loaded.rule.threshold == 0.05
    assert loaded.link == "hard"


def test_evaluate_predict_and_report_take_the_bundle(tmp_path):
    trained().save(tmp_path / "model")
    texts = tiny.make_texts(30)
    rows = [{"text": text, "labels": own} for text, own in zip(texts, tiny.label_sets(texts), strict=True)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["evaluate", str(tmp_path / "model"), str(file), "--json", "--report", str(tmp_path / "report")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["rows"] == 30
    assert (tmp_path / "report" / "report.html").is_file()
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "model"), str(file), "--to", str(tmp_path / "out.jsonl")])
    assert done.exit_code == 0, done.output
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 30


def test_there_and_back_gives_the_same_model(tmp_path):
    texts = tiny.make_texts(20)
    bundle = trained(label_names=("a", "b", "c", "d"))
    model, tokenizer = from_manyhot(bundle)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    again, reader = AutoModelForSequenceClassification.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    torch.testing.assert_close(score_texts(again, reader, texts), bundle.logits(texts), rtol=1e-5, atol=1e-6)
    assert again.config.id2label == {0: "a", 1: "b", 2: "c", 3: "d"}
    assert again.config.problem_type == "multi_label_classification"


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="must be 4 different names; got 2"):
        trained(label_names=("a", "b"))
    tokenizer = tiny.make_tokenizer()
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match="padding token"):
        to_manyhot(tiny.make_classifier(), tokenizer)
    bundle = trained()
    bundle.body, bundle.shape = torch.nn.Linear(1, 1), {"body": "linear"}
    with pytest.raises(ValueError, match="got 'linear'"):
        from_manyhot(bundle)
