"""Dice loss by the Triton engine: in the interpreter everywhere, on the device where there is one."""

import pytest
import torch

from engines.oracle import all_terms, close, moved
from engines.triton.interpreted import check_interpreted
from manyhot import SparseLabels, dice_loss
from manyhot.engines.terms import DenseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton import plans
from manyhot.losses.core.overlap import overlap_of_rows

on_device = pytest.mark.gpu
INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.rows.test_overlap import check_overlaps
from manyhot.engines.triton import plans
plans.BLOCK, plans.CHUNK = map(int, sys.argv[2:4])
check_overlaps("cpu", torch.float32, [tuple(map(int, sys.argv[4:]))])
plans.BITMASK_FROM = 0  # lists as bits too
check_overlaps("cpu", torch.float32, [tuple(map(int, sys.argv[4:]))], [5])
print("checked")
"""


def check_overlaps(device, dtype, shapes, kinds=range(8), turn=None):
    """Sums, gradient and dice loss for kinds of labels against the definition in float64, squared and not by turns."""
    generator = torch.Generator().manual_seed(0)
    for shape in shapes:
        every = all_terms(generator, *shape)
        for kind in kinds:
            x = (4 * torch.randn(*shape, generator=generator)).to(dtype)
            x[0, ::3] *= 100  # beyond doubt
            terms = every[kind]._replace(pos_weight=None, neg_weight=None)
            check_overlap(x, terms, device, kind % 2 == 1, generator, turn=None if turn is None else turn + kind // 2)


def check_overlap(x, terms, device, squared, generator, epsilon=0.7, turn=None):
    """Sums, gradient and dice loss.

    Dice loss has four kernels: scaled by a number or by rows, reduced or not. With ``turn`` two of them are tried, which have
    each choice once.
    """
    here, there, exact = x.to(device), moved(terms, device), x.double().requires_grad_()
    apart, size = overlap_of_rows(exact, terms, squared=squared)
    values = 1 - (size - apart + epsilon) / (size + epsilon)
    for got, wanted in zip(triton_engine.overlap(here, there, squared=squared), (apart, size), strict=True):
        close(got, wanted.detach(), torch.float32)
    pulls = torch.rand(2, x.shape[0], generator=generator)
    (wanted,) = torch.autograd.grad((apart, size), exact, tuple(pulls.double()), retain_graph=True)
    close(triton_engine.overlap_gradient(here, there, *pulls.to(device), squared=squared), wanted, x.dtype)
    for place, scale in enumerate((torch.rand(x.shape[0], generator=generator), 0.3)):
        by_rows = scale if isinstance(scale, torch.Tensor) else torch.full((x.shape[0],), scale)
        (wanted,) = torch.autograd.grad(values, exact, by_rows.double(), retain_graph=True)
        given = scale.to(device) if isinstance(scale, torch.Tensor) else scale
        for whole in (False, True) if turn is None else ((place + turn) % 2 == 1,):
            got, grad = triton_engine.dice(here, there, squared=squared, epsilon=epsilon, row_scale=given, whole=whole)
            close(got, (values * by_rows).sum().detach() if whole else values.detach(), torch.float32)
            close(grad, wanted, x.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(4096, 8192, 7, 33), (16, 8192, 4, 301), (16, 16, 2, 40)], ids=["tiles", "steps", "chunks"])
def test_dice_loss_agrees_with_float64_in_the_interpreter(sizes):
    check_interpreted(INTERPRETED, *sizes)


@pytest.mark.slow
@on_device
@pytest.mark.parametrize(("turn", "dtype"), list(enumerate([torch.float32, torch.bfloat16, torch.float16])))
def test_dice_loss_of_every_kind_of_labels_agrees_with_float64_on_the_device(dtype, turn):
    check_overlaps("cuda", dtype, [(300, 33)], turn=turn)


@on_device
@pytest.mark.parametrize(("turn", "dtype"), list(enumerate([torch.float32, torch.bfloat16])))
@pytest.mark.parametrize("shape", [(300, 33), (70, 128), (5, 4096), (8, 4271), (8, 20_001), (3, 32_768)])
def test_dice_loss_of_every_length_agrees_with_float64_on_the_device(dtype, turn, shape, monkeypatch):
    check_overlaps("cuda", dtype, [shape], (0, 5), turn)
    monkeypatch.setattr(plans, "BITMASK_FROM", 0)  # lists as bits too
    check_overlaps("cuda", dtype, [shape], (5,), turn)


@on_device
def test_rows_with_more_chunks_than_can_wait_take_two_launches():
    generator = torch.Generator().manual_seed(0)
    x = 4 * torch.randn(2, 1_200_000, generator=generator)
    terms = DenseTerms(torch.rand(2, 1_200_000, generator=generator) < 0.1)
    check_overlap(x, terms, "cuda", False, generator)


@on_device
@pytest.mark.parametrize(("num_labels", "squared"), [(7, True), (600, False), (9000, False)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_hostile_scores_give_what_the_plain_form_gives(num_labels, squared, dtype):
    x = torch.randn(6, num_labels).to(dtype)
    x[0], x[1], x[2, ::2] = float("inf"), -float("inf"), 60000.0
    x[3] = 0
    where = torch.rand(6, num_labels) < 0.8
    where[4] = False
    x[5, 0], where[5, 0] = float("nan"), False
    labels = torch.rand(6, num_labels) < 0.3
    for reduction in ("none", "mean"):
        found = []
        for device in ("cuda", "cpu"):
            scores = x.to(device, dtype if device == "cuda" else torch.float64).detach().requires_grad_()
            loss = dice_loss(scores, labels.to(device), where=where.to(device), squared=squared, reduction=reduction)
            found += [(loss.detach(), *torch.autograd.grad(loss.sum(), scores))]
        (value, grad), (wanted, wanted_grad) = found
        close(value, wanted, torch.float32)
        close(grad, wanted_grad, dtype)


@on_device
def test_a_missing_number_spoils_its_row_alone():
    x = torch.randn(3, 9000, device="cuda")
    x[1, 5000] = float("nan")
    x.requires_grad_()
    values = dice_loss(x, x.detach() > 1, reduction="none")
    assert values.isnan().tolist() == [False, True, False]
    (grad,) = torch.autograd.grad(values[::2].sum(), x)
    assert grad[::2].isfinite().all()


@on_device
@pytest.mark.parametrize("num_labels", [80, 50_000])
def test_dice_loss_in_cuda_graphs_and_with_retained_graphs(num_labels):
    x = torch.randn(16, num_labels, device="cuda", requires_grad=True)
    labels = SparseLabels.from_dense(torch.rand(16, num_labels, device="cuda") < 0.01)
    value = dice_loss(x, labels)
    (first,) = torch.autograd.grad(value, x, retain_graph=True)
    (second,) = torch.autograd.grad(value * 3, x)
    torch.testing.assert_close(second, first * 3)
    del value  # its graph is of the default stream, which a capture may not wait for
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            (other,) = torch.autograd.grad(dice_loss(x, labels), x)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(other, first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (captured,) = torch.autograd.grad(dice_loss(x, labels), x)
    with torch.no_grad():
        x.neg_()
    graph.replay()
    exact = x.detach().double().requires_grad_()
    (wanted,) = torch.autograd.grad(dice_loss(exact, labels), exact)
    torch.testing.assert_close(captured.double(), wanted, rtol=1e-4, atol=1e-9)


@on_device
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_second_derivatives_are_those_of_the_plain_form(reduction):
    found = []
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        x = torch.randn(5, 40, device="cuda", dtype=torch.float32).to(dtype).requires_grad_()
        (grad,) = torch.autograd.grad(dice_loss(x, x.detach() > 1, reduction=reduction).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(grad.square().sum(), x)[0].double())
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-7)
