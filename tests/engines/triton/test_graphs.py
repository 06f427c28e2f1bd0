"""CUDA graphs whose label lists change between replays: lists lie in buffers that are filled anew, of any length that fits."""

import pytest
import torch

from manyhot import SparseLabels, zlpr_loss

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
