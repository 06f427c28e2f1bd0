"""One of the processes that share a GPU: python gpu_shards.py BACKEND RANK COUNT PORT."""

import itertools
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

sys.path.insert(0, str(Path(__file__).parents[1]))

from manyhot import LinearHead, SparseLabels, TrainSettings, gather_rows, load_model, train, zlpr_loss
from manyhot.training.run.processes import Processes
from scores.shard_cases import check_decisions, check_extremes, check_losses
from training.problems import title_examples


def check_head(rank, count):
    """A head whose labels are divided takes the steps of one that has them all; rows are gathered."""
    mesh = init_device_mesh("cuda", (count,))
    draw = torch.Generator().manual_seed(1)
    lists = [torch.randperm(5000, generator=draw)[:3].tolist() for _ in range(16)]
    labels = SparseLabels.from_lists(lists, num_labels=5000).to("cuda")
    hidden = torch.randn(16, 32, generator=draw).cuda()
    for dtype, close in ((torch.float32, 1e-4), (torch.bfloat16, 0.05)):
        for kind in ("sgd", "adagrad"):
            settings = {"update": kind, "lr": 0.3, "weight_decay": 0.01, "dtype": dtype}
            head = LinearHead(32, 5000, mesh=mesh, **settings).cuda()
            alone = LinearHead(32, 5000, **settings).cuda()
            with torch.no_grad():
                alone.weight.copy_(head.weight.full_tensor())
                alone.bias.copy_(head.bias.full_tensor())
            for _ in range(3):
                values = [zlpr_loss(one(hidden), labels) for one in (head, alone)]
                torch.testing.assert_close(*values, rtol=close, atol=close)
                for value in values:
                    value.backward()
            torch.testing.assert_close(head.weight.full_tensor(), alone.weight.data, rtol=close, atol=close)
    own = slice(rank, None, count)
    assert gather_rows(hidden[own], dist.group.WORLD).shape == hidden.shape
    assert len(gather_rows(labels[own], dist.group.WORLD)) == 16


def check_train(rank, count, folder):
    """``train`` with label shards on the GPU gives the weights of one without, and a run of it is resumed from its parts."""
    examples = title_examples(300, num_labels=41)
    usual = TrainSettings(model="wide", learning_rate=0.1, hidden=16, epochs=3, batch_size=32, device="cuda:0")
    cases = list(itertools.product(("auto", "zlpr"), (("float32", 1e-3), ("bfloat16", 0.1))))
    # Every run compiles kernels of its own. One process tries all cases; in two, every loss and every precision takes its turn.
    for loss, (precision, close) in cases if count == 1 else cases[::3]:
        own, run = replace(usual, loss=loss, precision=precision), folder / f"{loss}-{precision}"
        divided = replace(own, label_shards=count, checkpoint_seconds=0.0)
        model = train(examples, divided, run=run)
        train(examples, divided, run=run, resume=True, held_out=lambda *_: None)
        if rank == 0:
            saved = load_model(run).body.state_dict()
            alone = alone_on_gpu(examples, own)
            for name, each in alone.items():
                text = f"{loss}, {precision}, {name}: {{}}".format
                torch.testing.assert_close(saved[name].float(), each.float().cpu(), rtol=close, atol=close, msg=text)
            assert model.body.head.weight.shape[0] == 41
        dist.barrier()


def alone_on_gpu(examples, settings):
    """The weights of one process, which does not see the group."""
    current, Processes.current = Processes.current, classmethod(lambda cls: cls())
    try:
        return train(examples, settings).body.state_dict()
    finally:
        Processes.current = current


def main(backend, rank, count, port, folder):
    """All checks over one group."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    torch.cuda.set_device(0)
    dist.init_process_group(backend, rank=rank, world_size=count)
    check_losses(rank, device="cuda")
    check_losses(rank, device="cuda", dtype=torch.float32, close=2e-4)
    check_extremes(rank, device="cuda")
    check_decisions(rank, device="cuda")
    if backend == "nccl":
        # DTensors of a mesh gather by themselves, which gloo cannot do with CUDA tensors.
        check_head(rank, count)
    print(f"losses, extremes, decisions{', head' if backend == 'nccl' else ''}: checked over {backend}, {count} processes")
    check_train(rank, count, Path(folder))
    print(f"train with --label-shards {count}: checked over {backend}")
    dist.destroy_process_group()
    print("checked", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
