import pytest
import torch
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    pipeline,
)

from integrations import tiny
from manyhot import Calibration, DecisionRule, decide, tune_rule
from manyhot.integrations.huggingface import fold_link_into, fold_rule_into, pipeline_decisions, save_folded, score_texts

INF = float("inf")


def spread_out(model, texts):
    """Scores of a random model, widened, so that every label is predicted on some rows and not on others."""
    head = model.classifier
    with torch.no_grad():
        head.weight.mul_(40)
        head.bias.copy_(torch.linspace(-0.4, 0.4, head.out_features))
    model.eval()
    return score_texts(model, tiny.make_tokenizer(), texts)


def test_a_stock_pipeline_on_the_saved_folder_decides_as_the_rule_on_a_thousand_rows(tmp_path):
    texts = tiny.make_texts(1000, seed=3)
    model, tokenizer = tiny.make_classifier(), tiny.make_tokenizer()
    scores = spread_out(model, texts)
    labels = torch.tensor([[name in own for name in tiny.NAMES] for own in tiny.label_sets(texts)])
    rule = tune_rule(scores, labels, objective="macro-F1", per_label=True).rule
    wanted = decide(scores, rule)
    assert not torch.equal(wanted, decide(scores)), "the rule must differ from s > 0 for the test to say something"
    save_folded(model, tokenizer, rule, tmp_path, texts=texts[:50])

    stock = pipeline("text-classification", model=str(tmp_path), tokenizer=str(tmp_path), top_k=None)
    decided = torch.zeros_like(wanted)
    for row, found in enumerate(stock(texts, batch_size=32)):
        for entry in found:
            decided[row, tiny.NAMES.index(entry["label"])] = entry["score"] > 0.5
    assert torch.equal(decided, wanted)
    assert (wanted.float().mean(dim=0) > 0).all()


def test_thresholds_without_end_become_certainty():
    texts = tiny.make_texts(20)
    model = tiny.make_classifier()
    scores = spread_out(model, texts)
    rule = DecisionRule(threshold=(INF, -INF, 0.1, 0.0))
    wanted = decide(scores, rule)
    fold_rule_into(model, rule)
    model.config.problem_type = "multi_label_classification"
    assert torch.equal(pipeline_decisions(model, tiny.make_tokenizer(), texts), wanted)
    probabilities = score_texts(model, tiny.make_tokenizer(), texts).sigmoid()
    assert probabilities[:, 0].max() < 1e-30
    assert probabilities[:, 1].min() == 1


@pytest.mark.parametrize("architecture", ["roberta", "distilbert"])
def test_other_classifiers_fold_too(architecture):
    sizes = {"vocab_size": 16, "num_labels": 4, "max_position_embeddings": 40}
    torch.manual_seed(0)
    if architecture == "roberta":
        config = RobertaConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, **sizes)
        model = RobertaForSequenceClassification(config).eval()
    else:
        model = DistilBertForSequenceClassification(
            DistilBertConfig(dim=16, n_layers=1, n_heads=2, hidden_dim=16, **sizes)
        ).eval()
    texts = tiny.make_texts(20)
    rule = DecisionRule(threshold=(0.1, -0.1, 0.0, 0.02))
    before = score_texts(model, tiny.make_tokenizer(), texts)
    fold_rule_into(model, rule)
    after = score_texts(model, tiny.make_tokenizer(), texts)
    torch.testing.assert_close(after, before - torch.tensor(rule.threshold), rtol=1e-4, atol=1e-6)
    assert torch.equal(after > 0, decide(before, rule))


def test_a_calibration_folds_into_probabilities():
    texts = tiny.make_texts(20)
    model = tiny.make_classifier()
    before = spread_out(model, texts)
    slope, intercept = torch.tensor([0.5, 2.0, 1.0, 3.0]), torch.tensor([0.1, -1.0, 0.0, 0.5])
    calibration = Calibration("per-label", slope.double(), intercept.double())
    fold_link_into(model, calibration)
    torch.testing.assert_close(score_texts(model, tiny.make_tokenizer(), texts).sigmoid(), calibration(before))


def test_what_weights_cannot_hold_is_refused():
    model = tiny.make_classifier()
    with pytest.raises(ValueError, match="looks at the whole row"):
        fold_rule_into(model, DecisionRule(min_labels=1))
    with pytest.raises(ValueError, match="one threshold per label, 4; got 2"):
        fold_rule_into(model, DecisionRule(threshold=(0.0, 1.0)))
    isotonic = Calibration("isotonic", knots=torch.tensor([0.0, 1.0]).double(), levels=torch.tensor([0.0, 1.0]).double())
    with pytest.raises(ValueError, match="isotonic calibration is not a sigmoid"):
        fold_link_into(model, isotonic)
    config = GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=1, num_labels=4, pad_token_id=0)
    with pytest.raises(ValueError, match="has no bias"):
        fold_rule_into(GPT2ForSequenceClassification(config), DecisionRule(threshold=0.5))


def test_nothing_is_written_where_the_pipeline_disagrees(tmp_path, monkeypatch):
    texts = tiny.make_texts(10)
    model = tiny.make_classifier()
    spread_out(model, texts)
    monkeypatch.setattr("manyhot.integrations.huggingface.fold.fold_rule_into", lambda *_: None)
    with pytest.raises(ValueError, match="decides differently on 10 of 10 texts"):
        save_folded(model, tiny.make_tokenizer(), DecisionRule(threshold=-1e3), tmp_path / "out", texts=texts)
    assert not (tmp_path / "out").exists()
