"""What each process checks about a LinearHead on a device mesh, against one head with all labels and all rows."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from manyhot import LinearHead, LinearScores, SparseLabels, gather_rows, zlpr_loss
from scores.scale_page import formulas

ROWS, SIZE, NUM_LABELS = 8, 6, 21


def batch(seed):
    draw = torch.Generator().manual_seed(seed)
    lists = [torch.randperm(NUM_LABELS, generator=draw)[: place % 4].tolist() for place in range(ROWS)]
    return torch.randn(ROWS, SIZE, generator=draw), SparseLabels.from_lists(lists, num_labels=NUM_LABELS)


def head_alone(like, **settings):
    """One head with the weights of a divided one."""
    alone = LinearHead(SIZE, NUM_LABELS, **settings)
    with torch.no_grad():
        alone.weight.copy_(like.weight.full_tensor())
        alone.bias.copy_(like.bias.full_tensor())
    return alone


def check_updates(rank):
    """Labels divided among all: fused steps are those of one head, also those of empty shards, and so are the first weights."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for kind, dtype, close in (("sgd", torch.float32, 1e-5), ("adagrad", torch.float32, 1e-4), ("sgd", torch.bfloat16, 0.05)):
        torch.manual_seed(0)
        settings = {"update": kind, "lr": 0.3, "weight_decay": 0.01, "dtype": dtype, "chunk_size": 4}
        head = LinearHead(SIZE, NUM_LABELS, mesh=mesh, **settings)
        assert isinstance(head.weight, DTensor)
        alone = head_alone(head, **settings)
        if rank == 0:
            held = [each.to_local() for each in head.state_dict().values() if isinstance(each, DTensor)]
            memory = formulas()["head_memory"](NUM_LABELS, SIZE, dist.get_world_size(), dtype.itemsize, kind)
            assert sum(each.numel() * each.element_size() for each in held) == memory
        for step in range(4):
            hidden, labels = batch(step)
            values = [zlpr_loss(one(hidden.requires_grad_()), labels) for one in (head, alone)]
            torch.testing.assert_close(*values, rtol=close, atol=close)
            grads = [torch.autograd.grad(value, hidden)[0] for value in values]
            torch.testing.assert_close(*grads, rtol=close, atol=close)
        torch.testing.assert_close(head.weight.full_tensor(), alone.weight.data, rtol=close, atol=close)
        torch.testing.assert_close(head.bias.full_tensor(), alone.bias.data, rtol=close, atol=close)
        top, wanted = head.top_k(hidden, 5), alone.top_k(hidden, 5)
        torch.testing.assert_close(top.values, wanted.values, rtol=close, atol=close)


def encoder():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(SIZE, 12), nn.Tanh(), nn.Linear(12, SIZE))


def reference(head, hidden, labels):
    """Gradients of one process: encoder, weight and bias."""
    model, alone = encoder(), head_alone(head)
    zlpr_loss(alone(model(hidden)), labels).backward()
    return [each.grad for each in model.parameters()], alone.weight.grad, alone.bias.grad


def check_head_gradients(head, by_weight, by_bias):
    torch.testing.assert_close(head.weight.grad.full_tensor(), by_weight)
    torch.testing.assert_close(head.bias.grad.full_tensor(), by_bias)


def check_ddp_on_two_axes(rank):
    """Two data replicas of two label shards: DDP round the encoder, the same rows along the label axis."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "labels"))
    hidden, labels = batch(7)
    rows = slice(0, ROWS // 2) if mesh.get_local_rank("data") == 0 else slice(ROWS // 2, ROWS)
    torch.manual_seed(2)
    head = LinearHead(SIZE, NUM_LABELS, mesh=mesh)
    by_encoder, by_weight, by_bias = reference(head, hidden, labels)
    model = DistributedDataParallel(encoder())
    zlpr_loss(head(model(hidden[rows])), labels[rows]).backward()
    for own, wanted in zip(model.parameters(), by_encoder, strict=True):
        torch.testing.assert_close(own.grad, wanted)
    check_head_gradients(head, by_weight, by_bias)
    with pytest.raises(ValueError, match="`update` must be None on a mesh with a data axis"):
        LinearHead(SIZE, NUM_LABELS, mesh=mesh, update="sgd")


def check_fsdp_with_rows_of_each(rank):
    """Every process encodes rows of its own, under FSDP2 and under DDP; the label axis gathers them."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "labels"))
    hidden, labels = batch(8)
    # The two replicas have as many rows, their two processes have not.
    first = [0, 1, 4, 7][rank]
    rows = slice(first, [1, 4, 7, 8][rank])
    torch.manual_seed(3)
    head = LinearHead(SIZE, NUM_LABELS, mesh=mesh)
    by_encoder, by_weight, by_bias = reference(head, hidden, labels)
    for kind in ("ddp", "fsdp"):
        model = encoder()
        model = DistributedDataParallel(model) if kind == "ddp" else fully_shard(model, mesh=init_device_mesh("cpu", (4,)))
        head.zero_grad()
        together = gather_rows(model(hidden[rows]), mesh.get_group("labels"))
        zlpr_loss(head(together), gather_rows(labels[rows], mesh.get_group("labels"))).backward()
        for own, wanted in zip(model.parameters(), by_encoder, strict=True):
            grad = own.grad.full_tensor() if isinstance(own.grad, DTensor) else own.grad
            torch.testing.assert_close(grad, wanted)
        check_head_gradients(head, by_weight, by_bias)


def check_dtensor_weights(rank):
    """A weight that somebody else has sharded; what cannot be served is said."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    hidden, labels = batch(9)
    weight = torch.randn(NUM_LABELS, SIZE, generator=torch.Generator().manual_seed(4), requires_grad=True)
    sharded = nn.Parameter(distribute_tensor(weight.detach(), mesh, [Shard(0)]))
    scores = LinearScores(hidden, sharded)
    assert scores.shape == (ROWS, NUM_LABELS)
    zlpr_loss(scores, labels).backward()
    zlpr_loss(LinearScores(hidden, weight), labels).backward()
    torch.testing.assert_close(sharded.grad.full_tensor(), weight.grad)
    for placement in (Replicate(), Shard(1)):
        with pytest.raises(ValueError, match="must be sharded by labels"):
            LinearScores(hidden, distribute_tensor(weight.detach(), mesh, [placement]))
    with pytest.raises(ValueError, match="has its own group"):
        LinearScores(hidden, sharded, group=dist.group.WORLD)


def check_all(rank, folder):
    """All of it over four processes; at the end a head is saved."""
    check_updates(rank)
    check_ddp_on_two_axes(rank)
    check_fsdp_with_rows_of_each(rank)
    check_dtensor_weights(rank)
    torch.manual_seed(5)
    head = LinearHead(SIZE, NUM_LABELS, mesh=init_device_mesh("cpu", (4,)), update="adagrad")
    hidden, labels = batch(0)
    zlpr_loss(head(hidden), labels).backward()
    checkpoint.save(head.state_dict(), checkpoint_id=folder / "saved")
    alone = head_alone(head, update="adagrad")
    whole = {"weight": head.weight.full_tensor().detach(), "squares": head.squares.full_tensor(), "step": head.step}
    if rank == 0:
        torch.save({**whole, "scores": alone(hidden).dense().detach()}, folder / "whole.pt")


def check_loaded(rank, folder):
    """A head that four processes saved, loaded by another number of them."""
    head = LinearHead(SIZE, NUM_LABELS, mesh=init_device_mesh("cpu", (dist.get_world_size(),)), update="adagrad")
    checkpoint.load(head.state_dict(), checkpoint_id=folder / "saved")
    whole = torch.load(folder / "whole.pt")
    assert torch.equal(head.weight.full_tensor(), whole["weight"])
    assert torch.equal(head.squares.full_tensor(), whole["squares"])
    assert int(head.step) == int(whole["step"]) == 1
    torch.testing.assert_close(head(batch(0)[0]).dense(), whole["scores"])
