import pytest
import torch
from transformers import Trainer, TrainingArguments

from integrations import tiny
from integrations.together import run_together
from manyhot import DecisionRule
from manyhot.integrations.huggingface import TrainerLoss, TrainerMetrics, trainer_parts


def settings(folder, **others):
    given = {
        "max_steps": 6,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.0,
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "train_sampling_strategy": "sequential",
        **others,
    }
    return TrainingArguments(output_dir=str(folder), **given)


def train(folder, *, loss="zlpr", width=None, rows=96, **others):
    texts = tiny.make_texts(rows)
    data = tiny.tokenized(texts, tiny.label_sets(texts))
    model = tiny.make_classifier()
    parts = trainer_parts(tiny.make_tokenizer(), label_names=tiny.NAMES, loss=loss, width=width)
    trainer = Trainer(model, settings(folder, **others), train_dataset=data, eval_dataset=data, **parts)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, model, trainer


def assert_same(one, other):
    # The Trainer rounds the losses that it logs to four digits.
    assert one[0] == pytest.approx(other[0], abs=2e-4)
    for a, b in zip(one[1].parameters(), other[1].parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", ["zlpr", "bce"])
def test_one_batch_of_32_is_8_rows_times_4_steps(tmp_path, loss):
    whole = train(tmp_path, loss=loss, per_device_train_batch_size=32)
    parts = train(tmp_path, loss=loss, per_device_train_batch_size=8, gradient_accumulation_steps=4)
    assert_same(whole, parts)
    assert whole[0][0] > 0.1


def test_label_lists_accumulate_too(tmp_path):
    whole = train(tmp_path, width=4, per_device_train_batch_size=32)
    parts = train(tmp_path, width=4, per_device_train_batch_size=8, gradient_accumulation_steps=4)
    assert_same(whole, parts)
    assert_same(whole, train(tmp_path, per_device_train_batch_size=32))


def test_a_last_step_with_fewer_rows_has_their_mean(tmp_path):
    whole = train(tmp_path, rows=40, max_steps=-1, num_train_epochs=1, per_device_train_batch_size=32)
    split = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    parts = train(tmp_path, rows=40, max_steps=-1, num_train_epochs=1, **split)
    assert len(parts[0]) == 2
    assert_same(whole, parts)


def test_a_mean_in_the_place_of_the_loss_is_four_times_too_large(tmp_path):
    """Why TrainerLoss is needed: what the Trainer does with a plain mean."""
    texts = tiny.make_texts(32)
    data = tiny.tokenized(texts, tiny.label_sets(texts))
    seen = []
    for size, steps in ((32, 1), (8, 4)):
        parts = trainer_parts(tiny.make_tokenizer(), label_names=tiny.NAMES)
        loss = TrainerLoss()
        parts["compute_loss_func"] = lambda outputs, labels, loss=loss, **_: loss(outputs, labels)
        given = settings(tmp_path, per_device_train_batch_size=size, gradient_accumulation_steps=steps, max_steps=1)
        trainer = Trainer(tiny.make_classifier(), given, train_dataset=data, **parts)
        trainer.train()
        seen.append(trainer.state.log_history[0]["loss"])
    assert seen[1] == pytest.approx(4 * seen[0], rel=1e-3)


@pytest.mark.slow
def test_two_processes_are_one(tmp_path):
    run_together("trainer_process.py", lambda _: [tmp_path / "run"])
    saved = torch.load(tmp_path / "run" / "weights.pt", weights_only=True)
    losses, model, trainer = train(tmp_path, per_device_train_batch_size=16, gradient_accumulation_steps=2)
    assert saved.pop("losses").tolist() == pytest.approx(losses, abs=2e-4)
    assert saved.pop("micro-F1").item() == pytest.approx(trainer.evaluate()["eval_micro-F1"], abs=1e-6)
    for name, each in model.state_dict().items():
        torch.testing.assert_close(saved[name], each, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("batch_eval_metrics", [False, True])
@pytest.mark.parametrize("names", [["micro-F1", "P@1"], ["AvgPrec", "macro-F1"], ["SubACC"], ["P@1", "P@3"]])
def test_metrics_of_the_trainer_are_those_of_the_whole_set(tmp_path, names, batch_eval_metrics):
    import manyhot

    _, model, trainer = train(tmp_path, per_device_train_batch_size=32, max_steps=2)
    measured = TrainerMetrics(names, num_labels=len(tiny.NAMES), rule=DecisionRule(threshold=-0.5))
    trainer.compute_metrics = measured.compute_metrics
    trainer.preprocess_logits_for_metrics = measured.preprocess_logits_for_metrics
    trainer.args.batch_eval_metrics = batch_eval_metrics
    trainer.args.per_device_eval_batch_size = 10
    for _ in range(2):
        found = trainer.evaluate()
    batch = trainer.data_collator(trainer.eval_dataset)
    labels = batch.pop("labels")
    with torch.no_grad():
        logits = model(**batch).logits
    metrics = manyhot.Metrics(names, num_labels=len(tiny.NAMES), rule=DecisionRule(threshold=-0.5))
    metrics.update(logits, labels)
    for name, value in metrics.compute().items():
        assert found[f"eval_{name}"] == pytest.approx(float(value), abs=1e-6)


def test_arguments_that_would_do_nothing_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"ignores `label_smoothing_factor`.*TrainerLoss\(smoothing=0.1\)"):
        train(tmp_path, label_smoothing_factor=0.1)
    model = tiny.make_classifier(problem_type="single_label_classification")
    parts = trainer_parts(tiny.make_tokenizer(), label_names=tiny.NAMES)
    data = tiny.tokenized(tiny.make_texts(4), [["meat"]] * 4)
    with pytest.raises(ValueError, match="problem_type must be"):
        Trainer(model, settings(tmp_path), train_dataset=data, **parts).train()
