import json

import lightning
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from integrations.together import run_together
from manyhot import DecisionRule, Metrics, digit_scenes, tune_rule, zlpr_loss
from manyhot.integrations.lightning import RuleTuning


class Digits(lightning.LightningModule):
    def __init__(self, returns=("logits", "labels")):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(600, 10))
        self.returns = returns

    def training_step(self, batch):
        return zlpr_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch):
        found = {"logits": self.net(batch[0]), "labels": batch[1]}
        return {name: found[name] for name in self.returns}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def loader(rows, part):
    return DataLoader(TensorDataset(*digit_scenes(rows, part=part)), batch_size=32)


def make_trainer(folder, tuning, **others):
    return lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(folder),
        callbacks=[tuning],
        **others,
    )


def test_the_rule_is_tuned_on_all_validation_rows_and_saved(tmp_path):
    module, tuning = Digits(), RuleTuning("macro-F1", per_label=True)
    trainer = make_trainer(tmp_path, tuning)
    trainer.fit(module, loader(200, "train"), loader(150, "test"))
    images, labels = digit_scenes(150, part="test")
    with torch.no_grad():
        wanted = tune_rule(module.net(images), labels, objective="macro-F1", per_label=True)
    assert tuning.rule == wanted.recommended
    assert trainer.callback_metrics["macro-F1/cross-fitted"].item() == pytest.approx(wanted.cross_fitted, abs=1e-5)
    assert DecisionRule.from_json(json.loads((tmp_path / "rule.json").read_text())["rule"]) == tuning.rule
    checkpoint = next(tmp_path.glob("checkpoints/*.ckpt"))
    kept = torch.load(checkpoint, weights_only=True)["callbacks"]
    again = RuleTuning("macro-F1", per_label=True)
    again.load_state_dict(next(state for name, state in kept.items() if "RuleTuning" in name))
    assert again.rule == tuning.rule


@pytest.mark.slow
def test_two_processes_have_the_metrics_rule_and_report_of_one(tmp_path):
    folders = {count: tmp_path / str(count) for count in (1, 2)}
    for count, folder in folders.items():
        folder.mkdir()
        run_together("lightning_process.py", lambda rank, folder=folder, count=count: [folder, rank, count], count)
    alone = json.loads((folders[1] / "found-0.json").read_text())
    both = [json.loads((folders[2] / f"found-{rank}.json").read_text()) for rank in (0, 1)]
    assert both[0]["rule"] == both[1]["rule"]
    # The folds of cross-fitting follow the order of the rows, which is another one for two processes.
    for found in (alone, *both):
        found["metrics"].pop("macro-F1/cross-fitted", None)
        found["metrics"].pop("macro-F1/tuned", None)
    assert len(alone["metrics"]) == 4
    for found in both:
        assert found["weights"] == pytest.approx(alone["weights"], abs=1e-4)
        assert found["metrics"] == pytest.approx(alone["metrics"], abs=1e-5)
        assert found["rule"]["threshold"] == pytest.approx(alone["rule"]["threshold"], abs=1e-4)
        assert found["value"] == pytest.approx(alone["value"], abs=1e-6)
    rows = [json.loads((folder / "report" / "report.json").read_text())["rows"]["count"] for folder in folders.values()]
    assert rows == [151, 151]


def test_a_report_is_left_beside_the_checkpoints(tmp_path):
    names = [f"digit {number}" for number in range(10)]
    tuning = RuleTuning("macro-F1", report="report", label_names=names)
    trainer = make_trainer(tmp_path, tuning)
    module = Digits()
    trainer.fit(module, loader(200, "train"), loader(150, "test"))
    told = json.loads((tmp_path / "report" / "report.json").read_text())
    images, labels = digit_scenes(150, part="test")
    metrics = Metrics(["micro-F1", "AvgPrec"], num_labels=10, rule=tuning.rule)
    with torch.no_grad():
        metrics.update(module.net(images), labels)
    shown = {each["name"]: each["value"] for each in told["metrics"]}
    for name, value in metrics.compute().items():
        assert shown[name] == pytest.approx(float(value), abs=1e-6)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "digit 7" in page
    assert "Digits, 6,010 parameters" in page
    with pytest.raises(ValueError, match="one per label, 10; got 2"):
        make_trainer(tmp_path, RuleTuning(report="again", label_names=["a", "b"])).validate(
            module, loader(40, "test"), verbose=False
        )


def test_a_validation_step_that_returns_something_else_is_named(tmp_path):
    trainer = make_trainer(tmp_path, RuleTuning(), enable_checkpointing=False)
    with pytest.raises(TypeError, match=r"must return a dict with `logits` and `labels`; got \['logits'\]"):
        trainer.fit(Digits(returns=("logits",)), loader(40, "train"), loader(40, "test"))
