"""Rows of few labels, many to a program: in the interpreter everywhere, on the device where there is one."""

import itertools

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from engines.triton.packed.test_kernel import expected, problem
from manyhot import SparseLabels
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton.calls import Call

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from manyhot.engines.triton import plans
plans.FEW_SHORTEST, plans.FEW_TILES = (128, 4, 8, 1, None), dict.fromkeys(plans.FEW_TILES, (256, 4, 8, 2, None))
from engines.triton.rows.test_few import check, check_extremes
sizes = {1: torch.float32, 3: torch.bfloat16, 20: torch.float32, 40: torch.float32, 100: torch.float16}
for num_labels, dtype in sizes.items():
    for kind in ("hard", "soft", "weighted", "lists"):
        check("cpu", dtype, 11, num_labels, kind, 3.0)
        check("cpu", dtype, 11, num_labels, kind, 60.0)
for kind in ("hard", "lists"):
    check_extremes("cpu", kind)
print("checked")
"""


def check(device, dtype, rows, num_labels, kind, spread, turn=None):
    """Values, their mean, their sums and the gradient, beside float64.

    Mean, sum and weighted sum are a kernel each. With ``turn`` only one of them is tried, whose turn it is.
    """
    x, terms, t, weights = problem(device, dtype, rows, num_labels, kind, spread)
    assert Call(x, terms, "fused", wordwise=True, plainly=True).layout.plan.kernel == "few"
    wanted, slope = expected(x, t, weights)
    half = 8e-3 if triton_engine.interpreted() else 4e-3  # the interpreter cuts what the device rounds
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": half, "atol": 1e-5}
    values, grad, _ = triton_engine.fused(x, terms)
    torch.testing.assert_close(values.double(), wanted, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(grad.double(), slope, **close)
    by_row = torch.linspace(-1, 2, rows, device=device)
    by_row[rows // 2] = 0
    exact = by_row.double()
    # A negative number is given to each row by the engine.
    weighted = [(-0.5, -0.5 * wanted.sum(), -0.5, 1e-7), (by_row, (exact * wanted).sum(), exact[:, None], 1e-5)]
    ways = [(1.0 / rows, wanted.mean(), 1.0 / rows, 1e-7)], [(1.0, wanted.sum(), 1.0, 1e-7)], weighted
    for scale, of_rows, factor, near in itertools.chain(*(ways if turn is None else [ways[turn % 3]])):
        value, scaled, _ = triton_engine.fused(x, terms, row_scale=scale, whole=True)
        torch.testing.assert_close(value.double(), of_rows, rtol=1e-5, atol=near)
        torch.testing.assert_close(scaled.double(), factor * slope, **close)


def terms_of(t, kind):
    lists = SparseLabels.from_dense(t)
    return DenseTerms(t) if kind == "hard" else SparseTerms(lists.indices, lists.offsets)


def check_extremes(device, kind):
    """Infinite scores, empty sides and tiny losses; every label listed, more than one round of a list."""
    inf = torch.inf
    x = torch.zeros(6, 20, device=device)
    t = torch.zeros(6, 20, dtype=torch.uint8, device=device)
    x[0], t[1], x[1] = -30.0, 1, 30.0
    x[2, :2], t[2, 0] = torch.tensor([inf, -inf]), 1
    x[3, 3] = inf
    x[4, 3], t[4, 3] = -inf, 1
    t[5, ::2] = 1
    values, grad, _ = triton_engine.fused(x, terms_of(t, kind))
    tiny = torch.log1p(20 * torch.exp(torch.tensor(-30.0, dtype=torch.float64))).item()
    wanted = [tiny, tiny, torch.log1p(torch.tensor(18.0)).item(), inf, inf, 2 * torch.log1p(torch.tensor(10.0)).item()]
    torch.testing.assert_close(values.double().cpu(), torch.tensor(wanted, dtype=torch.float64), rtol=1e-5, atol=0)
    assert grad.isfinite().all()
    assert grad[2, :2].tolist() == [0, 0]
    assert grad[3, 3] == 1
    assert grad[4, 3] == -1


@pytest.mark.slow
def test_rows_of_few_labels_agree_with_float64_in_the_interpreter():
    check_interpreted(INTERPRETED)


DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LENGTHS = (1, 2, 5, 17, 20, 64, 100, 127, 128)
# By turns, so that every way to reduce meets every type, every kind of labels and every length.
TURNS = {
    each: sum(places)
    for each, places in zip(
        itertools.product(DTYPES, ("hard", "soft", "weighted", "lists"), LENGTHS),
        itertools.product(range(3), range(4), range(9)),
        strict=True,
    )
}


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "kind", "num_labels"), TURNS)
def test_rows_of_few_labels_agree_with_float64_on_the_device(dtype, kind, num_labels):
    for rows, spread in ((1, 3.0), (1001, 3.0), (1001, 60.0), (70_001, 3.0)):
        check("cuda", dtype, rows, num_labels, kind, spread, TURNS[dtype, kind, num_labels])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["hard", "lists"])
def test_extreme_scores_of_few_labels_are_exact_on_the_device(kind):
    check_extremes("cuda", kind)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["hard", "lists"])
def test_rows_that_lie_apart_are_taken_as_they_are(kind):
    wide = torch.randn(301, 64, device="cuda")
    t = torch.rand(301, 20, device="cuda").lt(0.3).to(torch.uint8)
    for x in (wide[:, :20], wide[:, 3:23]):
        found = triton_engine.fused(x, terms_of(t, kind))[:2]
        wanted = triton_engine.fused(x.contiguous(), terms_of(t, kind))[:2]
        for one, two in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
def test_the_mean_of_few_labels_has_the_same_bits_every_time():
    x = torch.randn(70_001, 20, device="cuda")
    t = torch.rand(70_001, 20, device="cuda").lt(0.3).to(torch.uint8)
    first = triton_engine.fused(x, DenseTerms(t), row_scale=1 / len(x), whole=True)[0].clone()
    for _ in range(20):
        assert torch.equal(triton_engine.fused(x, DenseTerms(t), row_scale=1 / len(x), whole=True)[0], first)
