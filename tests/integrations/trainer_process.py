"""One of two processes that train together; the first saves weights, losses and a metric."""

import gc
import sys
from pathlib import Path

import torch

from integrations.huggingface.test_trainer import train


def main(folder):
    losses, model, trainer = train(folder, per_device_train_batch_size=8, gradient_accumulation_steps=2, ddp_backend="gloo")
    measured = trainer.evaluate()["eval_micro-F1"]
    if trainer.args.process_index == 0:
        kept = {name: each.clone() for name, each in model.state_dict().items()}
        kept |= {"losses": torch.tensor(losses), "micro-F1": torch.tensor(measured)}
        torch.save(kept, folder / "weights.pt")
    # The group must not be left to DDP's reducer: it would end the group while it holds the interpreter's lock, and wait for
    # gloo's threads, which may wait for that lock.
    del model, trainer
    gc.collect()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
