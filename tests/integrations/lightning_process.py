"""One process of a Lightning training, alone or one of two; it writes what it measured and the rule that it has."""

import json
import sys
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from manyhot import Metrics, digit_scenes, zlpr_loss
from manyhot.integrations.lightning import RuleTuning

ROWS = 151  # an odd number: the processes hold different numbers of validation rows
BATCH = 32


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(600, 10))
        self.metrics = Metrics(["micro-F1", "macro-F1", "P@1", "AvgPrec"], num_labels=10)

    def training_step(self, batch):
        return zlpr_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch):
        logits = self.net(batch[0])
        self.metrics.update(logits, batch[1])
        return {"logits": logits, "labels": batch[1]}

    def on_validation_epoch_end(self):
        self.log_dict(dict(self.metrics.compute()))
        self.metrics.reset()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader(part, rows, rank, count):
    """Every ``count``-th row of each batch, from row ``rank`` on."""
    shares = [share[rank::count] for share in digit_scenes(rows, part=part)]
    return DataLoader(TensorDataset(*shares), batch_size=BATCH // count)


def main(folder, rank, count):
    torch.manual_seed(0)
    tuning = RuleTuning("macro-F1", per_label=True, report="report")
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=count,
        strategy="ddp" if count > 1 else "auto",
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[tuning],
    )
    module = Digits()
    trainer.fit(module, loader("train", 256, rank, count), loader("test", ROWS, rank, count))
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    weights = module.net[1].weight.double().sum(dim=1).tolist()
    told = {"metrics": found, "rule": tuning.rule.to_json(), "value": tuning.tuned.value, "weights": weights}
    (Path(folder) / f"found-{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
