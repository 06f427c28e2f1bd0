"""The reduced loss of few rows, which the last program of the kernel adds up, and calls that are like one before."""

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import SparseLabels, zlpr_loss
from manyhot.engines.terms import DenseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton import replay as triton_replay
from manyhot.losses.zlpr import tlpr_loss

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from manyhot import SparseLabels, zlpr_loss
from manyhot.engines.triton import engine as triton_engine


def check(x, labels, **settings):
    ours, plain = (x.clone().requires_grad_() for _ in range(2))
    got = zlpr_loss(ours, labels, engine="triton", **settings)
    wanted = zlpr_loss(plain, labels, engine="torch", **settings)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    got.backward(), wanted.backward()
    torch.testing.assert_close(ours.grad, plain.grad, rtol=1e-4 if x.dtype == torch.float32 else 1e-2, atol=1e-10)


for rows, labels in ((1, 1), (1, 300), (7, 33), (70, 20), (1100, 3)):
    x = 3 * torch.randn(rows, labels)
    t = torch.rand(rows, labels) < 0.3
    for given in (t, t.float(), SparseLabels.from_dense(t)):
        for reduction in ("mean", "sum"):
            for weight in (None, (2 * torch.rand(rows)).round()):
                check(x, given, reduction=reduction, sample_weight=weight)
# With a mask a row of so many labels is one segment; without, one tile.
x, t = 3 * torch.randn(2, 8200), torch.rand(2, 8200) < 0.01
check(x, t, where=torch.rand(2, 8200) < 0.5)
check(x, t)
# Hard labels of half types are kept in another form.
check(x[:, :1100].bfloat16(), t[:, :1100])
print("checked")
"""


@pytest.mark.slow
def test_totals_agree_with_the_plain_form_in_the_interpreter():
    check_interpreted(INTERPRETED)


def problem(rows, labels, kind="dense", dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = (3 * torch.randn(rows, labels, generator=generator)).to("cuda", dtype).requires_grad_()
    t = (torch.rand(rows, labels, generator=generator) < 0.1).cuda()
    return x, {"dense": t, "soft": t.to(dtype), "lists": SparseLabels.from_dense(t)}[kind]


def both(x, labels, loss=zlpr_loss, **settings):
    value = loss(x, labels, **settings)
    return value.detach(), *torch.autograd.grad(value, x)


def check(x, labels, loss=zlpr_loss, **settings):
    got, wanted = both(x, labels, loss, **settings), both(x, labels, loss, engine="torch", **settings)
    torch.testing.assert_close(got[0], wanted[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got[1], wanted[1], rtol=1e-2 if x.dtype == torch.bfloat16 else 1e-4, atol=1e-10)
    return got


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["dense", "soft", "lists"])
@pytest.mark.parametrize("shape", [(1, 20), (7, 80), (300, 1000), (70_000, 20), (65_536, 128), (2, 40_000), (600, 36_000)])
def test_totals_agree_with_the_plain_form(shape, kind, dtype):
    x, labels = problem(*shape, kind, dtype)
    for reduction in ("mean", "sum"):
        first = check(x, labels, reduction=reduction)
        for _ in range(3):
            assert all(torch.equal(one, two) for one, two in zip(first, both(x, labels, reduction=reduction), strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(256, 80), (5000, 33), (9000, 300), (5, 9000), (5, 40_000)])
def test_totals_with_weights_and_masks_agree_with_the_plain_form(shape, dtype):
    """By whole rows, by one segment a row and by several; by few programs and by many."""
    x, labels = problem(*shape, dtype=dtype)
    check(x, labels, sample_weight=(2 * torch.rand(shape[0], device="cuda")).round())
    check(x, labels, where=torch.rand(shape, device="cuda") < 0.5)
    check(x, labels, pos_weight=torch.rand(shape[1], device="cuda"), reduction="sum")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(7, 40_001), (64, 131_072), (600, 40_000)])
def test_long_rows_like_ones_before_take_what_they_are_given(shape, dtype):
    """Rows in chunks, with the sum by the kernel itself and by another one."""
    triton_replay.REPLAYS.clear()
    for seed in range(4):
        check(*problem(*shape, dtype=dtype, seed=seed))
    (known,) = triton_replay.REPLAYS.values()
    assert known.chunks > 1


@pytest.mark.gpu
def test_calls_like_one_before_take_what_they_are_given():
    triton_replay.REPLAYS.clear()
    for seed in range(3):
        check(*problem(64, 80, seed=seed))
    assert len(triton_replay.REPLAYS) == 1
    x, labels = problem(64, 80, seed=4)
    check(x, labels, reduction="sum")
    check(x, labels, pos_weight=3.0)
    check(x, labels, smoothing=0.1)
    check(x, labels, where=~labels)
    check(x, labels, threshold=0.5, loss=tlpr_loss)
    check(x, labels.long())
    for other, its in (problem(64, 81), problem(63, 80)):
        check(other, its)
    wide, its = problem(64, 160)
    check(wide.detach()[:, :80].requires_grad_(), its[:, :80])
    check(wide.detach()[:, 1:81].requires_grad_(), its[:, 1:81])
    check(wide.detach()[:, ::2].requires_grad_(), its[:, ::2])
    check(wide.detach().t()[:64, :64].requires_grad_(), its.t()[:64, :64])
    check(x, labels)


@pytest.mark.gpu
def test_negative_scales():
    x, labels = problem(64, 80)
    x, terms = x.detach(), DenseTerms(labels)
    total, grad, _ = triton_engine.fused(x, terms, row_scale=0.5, whole=True)
    for _ in range(3):
        turned, its, _ = triton_engine.fused(x, terms, row_scale=-0.5, whole=True)
        assert torch.equal(turned, -total)
        torch.testing.assert_close(its, -grad, rtol=1e-6, atol=0)


@pytest.mark.gpu
def test_streams_do_not_share_what_they_count_with():
    streams = [torch.cuda.Stream() for _ in range(3)]
    problems = [problem(2048, 200, seed=seed) for seed in range(3)]
    wanted = [both(*each, engine="torch")[0] for each in problems]
    torch.cuda.synchronize()
    found = [[], [], []]
    for _ in range(50):
        for stream, each, own in zip(streams, problems, found, strict=True):
            with torch.cuda.stream(stream):
                own.append(both(*each)[0])
    torch.cuda.synchronize()
    for right, own in zip(wanted, found, strict=True):
        assert all(torch.equal(one, own[0]) for one in own)
        torch.testing.assert_close(own[0], right, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
def test_graphs_and_calls_beside_them_do_not_share_what_they_count_with():
    x, labels = problem(2048, 200)
    other, its = problem(2048, 200, seed=1)
    wanted, right = both(x, labels)[0], both(other, its)[0]
    graphs, outs = [], []
    for each in ((x, labels), (other, its)):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outs.append(both(*each)[0])
        graphs.append(graph)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for _ in range(20):
        for out in outs:
            out.zero_()
        torch.cuda.synchronize()
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        beside = both(x, labels)[0]
        torch.cuda.synchronize()
        assert torch.equal(outs[0], wanted)
        assert torch.equal(outs[1], right)
        assert torch.equal(beside, wanted)
