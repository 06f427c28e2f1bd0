import pytest
import torch
from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments

from integrations import tiny
from manyhot import zlpr_loss
from manyhot.integrations.sentence_transformers import MultiLabelLoss, QueryDocumentsLoss


@pytest.fixture
def make_model(tmp_path):
    def make(num_labels):
        names = tuple(str(number) for number in range(num_labels))
        tiny.make_classifier(names=names).save_pretrained(tmp_path / "model")
        tiny.make_tokenizer().save_pretrained(tmp_path / "model")
        return CrossEncoder(str(tmp_path / "model"), num_labels=num_labels, device="cpu")

    return make


def settings(folder, **others):
    return CrossEncoderTrainingArguments(
        output_dir=str(folder),
        learning_rate=1e-2,
        per_device_train_batch_size=16,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **others,
    )


def losses_of(trainer):
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_a_cross_encoder_learns_several_labels_of_a_pair(make_model, tmp_path):
    texts = tiny.make_texts(64, length=3)
    rows = {"a": texts, "b": tiny.make_texts(64, seed=1, length=3)}
    both = tiny.label_sets([f"{a} {b}" for a, b in zip(rows["a"], rows["b"], strict=True)])
    rows["label"] = [[float(name in own) for name in tiny.NAMES] for own in both]
    model = make_model(4)
    loss = MultiLabelLoss(model, smoothing=0.01)
    trainer = CrossEncoderTrainer(
        model, settings(tmp_path, num_train_epochs=20), train_dataset=Dataset.from_dict(rows), loss=loss
    )
    found = losses_of(trainer)
    assert found[-1] < 0.8 * found[0]
    labels = torch.tensor(rows["label"])
    with torch.no_grad():
        scores = torch.tensor(model.predict(list(zip(rows["a"], rows["b"], strict=True)), activation_fn=torch.nn.Identity()))
        assert loss([rows["a"], rows["b"]], labels).item() == pytest.approx(
            zlpr_loss(scores, labels, smoothing=0.01).item(), rel=1e-4
        )


def test_a_query_has_several_right_documents(make_model, tmp_path):
    queries, documents, labels = [], [], []
    for number, text in enumerate(tiny.make_texts(60, length=4)):
        query = ("sweet", "meat")[number % 2]
        own = text.split()[: 2 + number % 3]
        queries.append("honey" if query == "sweet" else "fish")
        documents.append(own)
        labels.append([float(word in tiny.MEANING[query]) for word in own])
    model = make_model(1)
    loss = QueryDocumentsLoss(model)
    data = Dataset.from_dict({"query": queries, "docs": documents, "labels": labels})
    trainer = CrossEncoderTrainer(model, settings(tmp_path, num_train_epochs=20), train_dataset=data, loss=loss)
    found = losses_of(trainer)
    assert found[-1] < 0.7 * found[0]
    with torch.no_grad():
        rows = []
        for query, own, truth in zip(queries[:5], documents[:5], labels[:5], strict=True):
            scores = model.predict([(query, word) for word in own], activation_fn=torch.nn.Identity(), convert_to_tensor=True)
            rows.append(zlpr_loss(scores.reshape(1, -1), torch.tensor([truth])))
        assert loss([queries[:5], documents[:5]], [torch.tensor(each) for each in labels[:5]]).item() == pytest.approx(
            torch.stack(rows).mean().item(), rel=1e-4
        )


def test_wrong_uses_are_named(make_model):
    model = make_model(4)
    with pytest.raises(ValueError, match="num_labels = 1; got 4"):
        QueryDocumentsLoss(model)
    with pytest.raises(ValueError, match="list of 4 numbers per row"):
        MultiLabelLoss(model)([["egg"], ["jam"]], torch.ones(1))
    single = make_model(1)
    with pytest.raises(ValueError, match="at least 2; got 1"):
        MultiLabelLoss(single)
    with pytest.raises(ValueError, match="one number for each document"):
        QueryDocumentsLoss(single)([["egg"], [["jam", "fish"]]], [torch.ones(1)])
