import json

import pytest
import torch
from typer.testing import CliRunner

from integrations import tiny
from manyhot import DecisionRule, decide, load_model
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


def test_evaluate_report_and_predict_take_the_run_of_a_model(tmp_path):
    trained().save(tmp_path / "run" / "model")
    run, report = str(tmp_path / "run"), str(tmp_path / "report")
    texts = tiny.make_texts(30)
    rows = [{"text": text, "labels": own} for text, own in zip(texts, tiny.label_sets(texts), strict=True)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def called(*arguments):
        done = CliRunner().invoke(app, [*arguments])
        assert done.exit_code == 0, done.output
        return done.output

    assert json.loads(called("evaluate", run, str(file), "--json", "--report", report))["rows"] == 30
    assert "report.html" in called("report", report, "--to", str(tmp_path / "again"))
    assert (tmp_path / "again" / "report.html").is_file()
    called("predict", run, str(file), "--to", str(tmp_path / "out.jsonl"))
    predicted = [json.loads(line)["labels"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    model, tokenizer = tiny.make_classifier().eval(), tiny.make_tokenizer()
    decided = decide(score_texts(model, tokenizer, texts)).tolist()
    assert [sorted(own) for own in predicted] == [
        sorted(name for name, held in zip(tiny.NAMES, row, strict=True) if held) for row in decided
    ]


def test_there_and_back_gives_the_same_model(tmp_path):
    texts = tiny.make_texts(20)
    trained(label_names=("a", "b", "c", "d")).save(tmp_path / "run" / "model")
    bundle = load_model(tmp_path / "run")
    model, tokenizer = from_manyhot(bundle)
    model.save_pretrained(tmp_path / "back")
    tokenizer.save_pretrained(tmp_path / "back")
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "back")
    reader = AutoTokenizer.from_pretrained(tmp_path / "back")
    wanted = score_texts(tiny.make_classifier().eval(), tiny.make_tokenizer(), texts)
    torch.testing.assert_close(score_texts(again, reader, texts), wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(to_manyhot(again, reader).logits(texts), bundle.logits(texts), rtol=1e-5, atol=1e-6)
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
