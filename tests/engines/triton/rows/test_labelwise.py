"""Label-wise losses on the index lists of long rows: in the interpreter everywhere, on the device where there is one."""

import pytest
import torch

from engines.oracle import KINDS, close, moved
from engines.triton.interpreted import check_interpreted
from manyhot import SparseLabels, asymmetric_loss, bce_loss, focal_loss
from manyhot.engines.terms import SparseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.losses.bce import bce_term
from manyhot.losses.core.labelwise import sum_over_labels
from manyhot.losses.core.layout import Rows
from manyhot.losses.focal import focal_term

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.rows.test_labelwise import check_lists
from manyhot.engines.triton import plans
plans.TILE = int(sys.argv[2])
check_lists("cpu", torch.float32, (1, 45))
print("checked")
"""


def check_lists(device, dtype, shape):
    """No label listed, some, many and all, with and without weights of the sides, against float64."""
    generator = torch.Generator().manual_seed(0)
    for share in (0.0, 0.01, 0.3, 1.0):
        lists = SparseLabels.from_dense(torch.rand(shape, generator=generator) < share)
        for weights in ((None, None), (2.0, 0.5), (0.0, 1.0), (1.0, 0.0)):
            terms = SparseTerms(lists.indices, lists.offsets, None, None, *weights)
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


@pytest.mark.slow
@pytest.mark.parametrize("tile", [2048, 16])
def test_listed_labels_are_judged_apart_in_the_interpreter(tile):
    check_interpreted(INTERPRETED, tile)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(7, 1030), (5, 4096), (3, 20_001)])
def test_listed_labels_are_judged_apart_on_the_device(dtype, shape):
    check_lists("cuda", dtype, shape)


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
