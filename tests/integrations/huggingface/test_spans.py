import pytest
import torch
from transformers import AutoModelForTokenClassification, BertModel, Trainer

from integrations import tiny
from integrations.huggingface.test_trainer import settings
from manyhot import SpanLabels, zlpr_loss
from manyhot.integrations.huggingface import GlobalPointerForTokenClassification, SpanCollator, TrainerSpanMetrics

TYPES = ("food", "pair")


def make_model(seed=0, **others):
    torch.manual_seed(seed)
    return GlobalPointerForTokenClassification.from_encoder(
        BertModel(tiny.bert_settings(), add_pooling_layer=False), types=TYPES, head_size=8, **others
    )


def make_rows(count, seed=0):
    """``honey`` is food, and so is ``jam``; the two words from a ``fish`` on are a pair."""
    tokenizer, rows = tiny.make_tokenizer(), []
    for text in tiny.make_texts(count, seed=seed):
        spans, place, words = [], 0, text.split()
        for number, word in enumerate(words):
            if word in ("honey", "jam"):
                spans.append((place, place + len(word), "food"))
            if word == "fish" and number + 1 < len(words):
                spans.append((place, place + len(word) + 1 + len(words[number + 1]), "pair"))
            place += len(word) + 1
        rows.append({**tokenizer(text, truncation=True, return_offsets_mapping=True), "labels": spans})
    return rows


def collator(**others):
    return SpanCollator(tiny.make_tokenizer(), types=TYPES, width=8, **others)


def test_character_spans_become_token_spans():
    tokenizer = tiny.make_tokenizer()
    row = tokenizer("fish honey jam", return_offsets_mapping=True)
    batch = collator()([{**row, "labels": [(0, 10, "pair"), (11, 14, "food"), (6, 9, "food")]}])
    assert [span for span in batch["labels"][0].tolist() if span[0] >= 0] == [[0, 2, 2], [0, 3, 3], [1, 1, 2]]
    cut = tokenizer("fish honey jam", return_offsets_mapping=True, truncation=True, max_length=4)
    batch = collator()([{**cut, "labels": [(11, 14, "food"), (0, 4, "pair")]}])
    assert [span for span in batch["labels"][0].tolist() if span[0] >= 0] == [[1, 1, 1]]


@pytest.mark.parametrize("head", ["global_pointer", "efficient"])
def test_the_loss_is_that_of_the_dense_grid(head):
    model = make_model(head=head).train()
    batch = collator()(make_rows(5))
    loss = model(**batch).loss
    hidden = model.encoder(batch["input_ids"], batch["attention_mask"]).last_hidden_state
    scores = model.head(hidden, batch["attention_mask"].sum(dim=1))
    lists = [[tuple(span) for span in row if span[0] >= 0] for row in batch["labels"].tolist()]
    dense = SpanLabels.from_lists(lists, num_types=2, num_tokens=hidden.shape[1]).dense()
    tokens = torch.arange(hidden.shape[1])
    there = batch["attention_mask"].bool()
    where = (tokens[:, None] <= tokens) & there[:, None, :, None] & there[:, None, None, :]
    wanted = zlpr_loss(scores.dense().masked_fill(~where, 0), dense.float(), where=where, dim=(-2, -1)).mean()
    torch.testing.assert_close(loss, wanted)


def test_accumulated_steps_are_one_batch_and_the_model_learns(tmp_path):
    found = []
    for size, steps in ((32, 1), (8, 4)):
        model = make_model()
        given = settings(
            tmp_path,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
            max_steps=40,
            optim="adamw_torch",
            remove_unused_columns=False,
        )
        rows = make_rows(64)
        trainer = Trainer(
            model,
            given,
            train_dataset=rows,
            eval_dataset=make_rows(30, seed=1),
            data_collator=collator(),
            compute_metrics=TrainerSpanMetrics(),
        )
        trainer.train()
        found.append((trainer.evaluate(), model))
    assert found[0][0]["eval_f1"] > 0.8
    assert found[0][0]["eval_loss"] == pytest.approx(found[1][0]["eval_loss"], rel=0.02)
    first = [step["loss"] for step in trainer.state.log_history if "loss" in step]
    assert first[-1] < first[0]


def test_the_saved_folder_is_read_by_the_auto_class(tmp_path):
    model = make_model().eval()
    model.save_pretrained(tmp_path)
    again = AutoModelForTokenClassification.from_pretrained(tmp_path).eval()
    batch = collator()(make_rows(4))
    assert again.config.id2label == {0: "food", 1: "pair"}
    torch.testing.assert_close(again(**batch).loss, model(**batch).loss)
    assert torch.equal(again(**batch).spans, model(**batch).spans)


def test_wrong_uses_are_named():
    rows = make_rows(2)
    del rows[0]["offset_mapping"]
    with pytest.raises(ValueError, match="remove_unused_columns=False"):
        collator()(rows)
    with pytest.raises(ValueError, match=r"unknown span type 'foot'\. Did you mean 'food'"):
        collator()([{**make_rows(1)[0], "labels": [(0, 3, "foot")]}])
    tokenizer = tiny.make_tokenizer()
    tokenizer.padding_side = "left"
    with pytest.raises(ValueError, match="pad on the right"):
        SpanCollator(tokenizer, types=TYPES)
    model = make_model()
    batch = collator()(make_rows(2))
    with pytest.raises(ValueError, match=r"whole numbers \[B, K, 3\]"):
        model(**{**batch, "labels": batch["input_ids"]})
