import json

import lightning
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from manyhot import DecisionRule, digit_scenes, tune_rule, zlpr_loss
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


def test_a_validation_step_that_returns_something_else_is_named(tmp_path):
    trainer = make_trainer(tmp_path, RuleTuning(), enable_checkpointing=False)
    with pytest.raises(TypeError, match=r"must return a dict with `logits` and `labels`; got \['logits'\]"):
        trainer.fit(Digits(returns=("logits",)), loader(40, "train"), loader(40, "test"))
