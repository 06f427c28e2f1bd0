"""Label-wise losses on index lists, and their costs over all scores and powers: in the interpreter everywhere, on the device
where there is one."""

import pytest
import torch

from engines.oracle import KINDS, close, moved
from engines.triton.interpreted import check_interpreted
from manyhot import SparseLabels, asymmetric_loss, bce_loss, focal_loss
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton import plans
from manyhot.losses.bce import bce_term
from manyhot.losses.core.labelwise import sum_over_labels
from manyhot.losses.core.layout import Rows
from manyhot.losses.focal import focal_term

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.rows.test_labelwise import check_lists, check_powers
from manyhot.engines.triton import plans
plans.TILE, plans.BITMASK_FROM = int(sys.argv[2]), 0
plans.FLAT_TILES = {("", size): (plans.TILE // 2, 4, 8, None) for size in (2, 4)}
if plans.TILE > 64:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        check_powers("cpu", dtype)
check_lists("cpu", torch.float32, (3, 21), shares=(0.1, 1.0))
print("checked")
"""
# Powers of either side and margins: multiplied out or not, one of them 0, with and without a margin.
POWERS = ((1, 4, 0.05), (0, 4, 0.05), (1, 0, 0.05), (0, 0, 0.1), (0.5, 4, 0.05), (2, 2, 0), (3, 3, 0), (1, 2, 0), (0.5, 0.5, 0))


# Relative and absolute errors of the sum and of derivatives. Half types round the derivative; their costs have five digits. The
# interpreter cuts what the device rounds.
NEAR = {torch.float32: (1e-6, 1e-5, 1e-9), torch.bfloat16: (1e-5, 8e-3, 1e-9), torch.float16: (1e-5, 1e-3, 1.2e-7)}


def check_powers(device, dtype):
    """Cost and derivative of single labels, also far beyond doubt, against float64."""
    x = torch.cat([torch.linspace(-120, 120, 1024), torch.linspace(-12, 12, 1022), torch.tensor([1e4, -1e4])]).to(dtype)
    of_sum, of_each, least = NEAR[dtype]
    for gamma_pos, gamma_neg, margin in POWERS:
        settings = {"gamma_pos": float(gamma_pos), "gamma_neg": float(gamma_neg), "margin": float(margin)}
        for label in (0, 1):
            exact = x.double()[:, None].requires_grad_()
            labels = torch.full((len(x), 1), label, dtype=torch.uint8)
            values = sum_over_labels(Rows(exact, DenseTerms(labels), exact.shape[:1]), focal_term(**settings))
            (wanted,) = torch.autograd.grad(values.sum(), exact)
            terms = DenseTerms(labels.reshape(1, -1).to(device))
            got, grad = triton_engine.labelwise(x[None].to(device), terms, "focal", whole=True, **settings)
            torch.testing.assert_close(got.double().cpu(), values.sum().detach(), rtol=of_sum, atol=0)
            torch.testing.assert_close(grad.double().cpu()[0], wanted[:, 0], rtol=of_each, atol=least)
            low = x < -12  # alone, tiny costs keep their digits
            terms = DenseTerms(labels[low].reshape(1, -1).repeat(1, 8).to(device))
            got, _ = triton_engine.labelwise(x[low][None].repeat(1, 8).to(device), terms, "focal", whole=True, **settings)
            torch.testing.assert_close(got.double().cpu(), 8 * values[low].sum().detach(), rtol=10 * of_sum, atol=0)


def check_lists(device, dtype, shape, shares=(0.0, 0.01, 0.3, 1.0)):
    """No label listed, some, many and all, with and without weights of the sides, as lists and as bytes, against float64."""
    generator = torch.Generator().manual_seed(0)
    for share in shares:
        dense = torch.rand(shape, generator=generator) < share
        lists = SparseLabels.from_dense(dense)
        for number, weights in enumerate(((None, None), (2.0, 0.5), (0.0, 1.0), (1.0, 0.0), (None, None))):
            terms = SparseTerms(lists.indices, lists.offsets, None, None, *weights)
            if number > 2:
                terms = DenseTerms(dense * torch.randint(1, 256, shape, generator=generator, dtype=torch.uint8), None, *weights)
            x = (4 * torch.randn(*shape, generator=generator)).to(dtype)
            for kind, settings in KINDS:
                exact = x.double().requires_grad_()
                term = focal_term(**settings) if settings else bce_term()
                values = sum_over_labels(Rows(exact, terms, exact.shape[:1]), term)
                (wanted,) = torch.autograd.grad(0.3 * values.sum(), exact)
                there = x.to(device), moved(terms, device), kind
                got, grad = triton_engine.labelwise(*there, row_scale=0.3, **settings)
                close(got, values.detach(), torch.float32)
                close(grad, wanted, dtype)
                got, grad = triton_engine.labelwise(*there, row_scale=0.3, whole=True, **settings)
                close(got, 0.3 * values.detach().sum(), torch.float32)
                close(grad, wanted, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("tile", [2048, 32])
def test_listed_labels_are_judged_apart_in_the_interpreter(tile):
    check_interpreted(INTERPRETED, tile)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(300, 20), (70, 128), (9, 513), (7, 1030), (5, 4096), (3, 20_001)])
def test_listed_labels_are_judged_apart_on_the_device(dtype, shape):
    check_lists("cuda", dtype, shape)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(70, 128), (9, 513), (3, 4096)])
def test_scores_as_one_line_agree_with_float64_on_the_device(dtype, shape, monkeypatch):
    monkeypatch.setattr(plans, "BITMASK_FROM", 0)  # lists become bits
    check_lists("cuda", dtype, shape, shares=(0.01, 0.5))


@pytest.mark.gpu
def test_lists_that_are_searched_agree_with_dense_labels_on_the_device():
    x = torch.randn(3, 70_001, device="cuda", requires_grad=True)
    labels = torch.rand(3, 70_001, device="cuda") < torch.tensor([[0.5], [0.0], [0.01]], device="cuda")
    for loss in (bce_loss, asymmetric_loss):
        found = [torch.autograd.grad(loss(x, given), x)[0] for given in (labels, SparseLabels.from_dense(labels))]
        torch.testing.assert_close(*found)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", list(NEAR))
def test_costs_of_all_powers_agree_with_float64_on_the_device(dtype):
    check_powers("cuda", dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("loss", [bce_loss, focal_loss, asymmetric_loss])
@pytest.mark.parametrize("num_labels", [1100, 5000])
def test_infinite_scores_of_listed_labels_and_their_neighbours(loss, num_labels):
    x = torch.randn(4, num_labels, device="cuda")
    labels = torch.zeros(4, num_labels, dtype=torch.bool, device="cuda")
    labels[:, [8, 9, 1000]] = True
    x[0, 8], x[1, 10], x[2, 9], x[3, 11] = float("inf"), -float("inf"), -float("inf"), float("inf")
    found = []
    for given in (labels, SparseLabels.from_dense(labels)):
        scores = x.clone().requires_grad_()
        value = loss(scores, given, reduction="sum")
        found.append((value.detach(), *torch.autograd.grad(value, scores)))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-7, equal_nan=True)
