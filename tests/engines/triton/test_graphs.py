"""CUDA graphs whose label lists change between replays: lists lie in buffers that are filled anew, of any length that fits."""

import pytest
import torch

from manyhot import SparseLabels, bce_loss, dice_loss, zlpr_loss
from manyhot.engines.triton import replay
from manyhot.engines.triton.plans import COUNTER_STRIDE

CAPACITY = 12


def write_lists(lists, indices, offsets):
    """Fill the buffers; what lies behind the last entry is left as it was."""
    offsets.copy_(lists.offsets)
    indices[: lists.indices.shape[0]].copy_(lists.indices)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_labels", [20, 700, 50_000])
def test_lists_may_change_between_replays(num_labels, dtype):
    rows, source = 33, torch.Generator().manual_seed(0)
    x = torch.randn(rows, num_labels, generator=source).to("cuda", dtype).requires_grad_()
    indices = torch.zeros(CAPACITY * rows, dtype=torch.int64, device="cuda")
    offsets = torch.zeros(rows + 1, dtype=torch.int64, device="cuda")
    static = SparseLabels(indices, offsets, num_labels, validate=False)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            torch.autograd.grad(zlpr_loss(x, static), x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = zlpr_loss(x, static)
        (gradient,) = torch.autograd.grad(value, x)
    for most in (3, 0, 12, 1):
        counts = torch.randint(most + 1, (rows,), generator=source).tolist()
        rows_listed = [sorted(torch.randperm(num_labels, generator=source)[:count].tolist()) for count in counts]
        lists = SparseLabels.from_lists(rows_listed, num_labels=num_labels).to("cuda")
        write_lists(lists, indices, offsets)
        with torch.no_grad():
            x.neg_()
        graph.replay()
        exact = x.detach().double().requires_grad_()
        wanted = zlpr_loss(exact, lists, engine="torch")
        torch.testing.assert_close(value.double(), wanted, rtol=1e-5, atol=1e-5)
        error = (gradient.double() - torch.autograd.grad(wanted, exact)[0]).abs().max().item()
        assert error <= {torch.float32: 1e-7, torch.bfloat16: 2e-4, torch.float16: 3e-5}[dtype]


@pytest.mark.gpu
@pytest.mark.parametrize("loss", [zlpr_loss, bce_loss, dice_loss])
@pytest.mark.parametrize("left", [0, 3])
def test_every_call_of_a_graph_counts_by_itself(loss, left, monkeypatch):
    """Calls in two graphs that are replayed by turns, with prepared memory for some of them or for none."""
    problems = [
        (torch.randn(4000, 40, device="cuda", requires_grad=True), torch.rand(4000, 40, device="cuda") < 0.1) for _ in range(6)
    ]
    wanted = [torch.autograd.grad(loss(x, labels), x)[0] for x, labels in problems]
    values = torch.stack([loss(x, labels) for x, labels in problems]).detach()
    (arena,) = replay._ARENAS.values()
    monkeypatch.setattr(arena, "used", len(arena.memory) - left * (COUNTER_STRIDE + 2048))
    # Parts are taken once. Another test has taken these before and divided them in another way.
    arena.memory[arena.used :].zero_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for x, labels in problems[:2]:
            torch.autograd.grad(loss(x, labels), x)
    torch.cuda.current_stream().wait_stream(stream)
    graphs, found = [], []
    for half in (problems[:3], problems[3:]):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            for x, labels in half:
                value = loss(x, labels)
                found.append((value, *torch.autograd.grad(value, x)))
    for _ in range(3):
        for value, grad in found:
            value.detach().fill_(-1)
            grad.fill_(-1)
        for graph in graphs:
            graph.replay()
        torch.testing.assert_close(torch.stack([value.detach() for value, _ in found]), values)
        for (_, grad), one in zip(found, wanted, strict=True):
            torch.testing.assert_close(grad, one)


@pytest.mark.gpu
@pytest.mark.parametrize("loss", [zlpr_loss, bce_loss, dice_loss])
@pytest.mark.parametrize("lists", [False, True])
def test_kernels_that_start_early_read_what_was_written_just_before(loss, lists):
    """Scores and factor are written by the kernels before, and the gradient is read and overwritten by those after."""
    sources = torch.randn(8, 60_000, 128, device="cuda").bfloat16()
    labels = torch.rand(60_000, 128, device="cuda") < 0.05
    given = SparseLabels.from_dense(labels) if lists else labels

    def step(source, wait):
        x = torch.empty_like(source).fill_(9).copy_(source).requires_grad_()
        wait()
        value = loss(x, given)
        wait()
        (grad,) = torch.autograd.grad(value, x, torch.full((), 3.0, device="cuda"))
        wait()
        return value.detach().clone(), grad.clone(), grad.zero_()

    wanted = [step(source, torch.cuda.synchronize) for source in sources]
    for _ in range(3):
        found = [step(source, lambda: None) for source in sources]
        for one, two in zip(found, wanted, strict=True):
            assert all(map(torch.equal, one, two))
