"""Rows read as words: in the interpreter everywhere, as instructions on the device where there is one."""

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import SparseLabels
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton.calls import Call

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.packed.test_kernel import check, check_negative_scale
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for num_labels in (131, 132, 200):
        for kind in ("hard", "soft", "weighted"):
            check("cpu", dtype, 5, num_labels, kind)
    for num_labels in (257, 264, 700):
        check("cpu", dtype, 2, num_labels, "lists")
    for num_labels in (301, 640, 1032):
        check("cpu", dtype, 2, num_labels, "hard")
        check("cpu", dtype, 2, num_labels, "soft", 60.0)
for kind in ("hard", "lists"):
    check_negative_scale("cpu", kind)
print("checked")
"""


def problem(device, dtype, rows, num_labels, kind, spread=3.0):
    """Scores, terms of a kind, and labels and weights of the two sides in float64."""
    generator = torch.Generator().manual_seed(num_labels)
    x = (spread * torch.randn(rows, num_labels, generator=generator)).to(dtype).to(device)
    t = torch.rand(rows, num_labels, generator=generator).lt(0.2).to(device)
    t[0] = False
    weights = (1.0, 1.0)
    if kind == "soft":
        soft = torch.rand(rows, num_labels, generator=generator).to(dtype).to(device)
        return x, DenseTerms(soft, smoothing=0.1), soft.double() * 0.9 + 0.05, weights
    if kind == "lists":
        lists = SparseLabels.from_dense(t)
        return x, SparseTerms(lists.indices, lists.offsets), t.double(), weights
    if kind == "weighted":
        return x, DenseTerms(t, pos_weight=10.0, neg_weight=0.5), t.double(), (10.0, 0.5)
    return x, DenseTerms(t.to(torch.uint8) * 7), t.double(), weights


def expected(x, t, weights):
    """Values and gradient in float64, whatever the range of the scores."""
    s = x.double().requires_grad_()
    zero = torch.zeros(len(x), 1, dtype=torch.float64, device=x.device)
    up, down = (t * weights[0]).log(), ((1 - t) * weights[1]).log()
    values = sum(torch.logsumexp(torch.cat([zero, side], 1), 1) for side in (up - s, down + s))
    (grad,) = torch.autograd.grad(values.sum(), s)
    return values.detach(), grad


def check(device, dtype, rows, num_labels, kind, spread=3.0):
    x, terms, t, weights = problem(device, dtype, rows, num_labels, kind, spread)
    layout = Call(x, terms, "fused", wordwise=True).layout
    assert layout.plan.kernel == "packed"
    values, grad, _ = triton_engine.fused(x, terms)
    wanted, slope = expected(x, t, weights)
    torch.testing.assert_close(values.double(), wanted, rtol=1e-5, atol=1e-5)
    half = 8e-3 if triton_engine.interpreted() else 4e-3  # the interpreter cuts what the device rounds
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": half, "atol": 1e-5}
    torch.testing.assert_close(grad.double(), slope, **close)


def check_negative_scale(device, kind):
    for dtype in (torch.float32, torch.bfloat16):
        x, terms, *_ = problem(device, dtype, 3, 700, kind)
        _, grad, _ = triton_engine.fused(x, terms)
        for scale in (-0.5, torch.tensor([-0.5, 0.0, 2.0], device=device)):
            _, scaled, _ = triton_engine.fused(x, terms, row_scale=scale)
            factor = scale if isinstance(scale, float) else scale.to(dtype)[:, None]
            torch.testing.assert_close(scaled, factor * grad, rtol=8e-3 if dtype == torch.bfloat16 else 1e-6, atol=1e-7)


@pytest.mark.slow
def test_words_agree_with_float64_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["hard", "soft", "weighted", "lists"])
@pytest.mark.parametrize("num_labels", [1000, 3993, 4271, 4272, 16_384, 18_003, 40_003])
def test_words_agree_with_float64_on_the_device(dtype, kind, num_labels):
    for spread in (3.0, 60.0):
        check("cuda", dtype, 300, num_labels, kind, spread)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_short_rows_and_few_rows_agree_with_float64_on_the_device(dtype):
    for rows, num_labels in ((1, 131), (1001, 132), (333, 200), (65, 256), (3, 32_768), (2, 300_001)):
        for kind in ("hard", "soft", "weighted"):
            check("cuda", dtype, rows, num_labels, kind)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["hard", "lists"])
def test_rows_may_count_negatively(kind):
    check_negative_scale("cuda", kind)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lists_of_few_rows_agree_with_float64_on_the_device(dtype):
    for rows, num_labels in ((1, 300), (3, 32_768), (2, 300_001), (2, 1_048_576)):
        check("cuda", dtype, rows, num_labels, "lists")


@pytest.mark.gpu
def test_scores_that_start_off_a_word_or_lie_apart_are_served_all_the_same():
    whole = torch.randn(64 * 1000 + 1, device="cuda")
    labels = torch.rand(64, 1000, device="cuda").lt(0.01)
    apart = [torch.randn(64, width, device="cuda")[:, :1000] for width in (1003, 1008)]
    for x in (whole[1:].view(64, 1000), *apart):
        values, grad, _ = triton_engine.fused(x, DenseTerms(labels))
        wanted, slope = expected(x, labels.double(), (1.0, 1.0))
        torch.testing.assert_close(values.double(), wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(grad.double(), slope, rtol=1e-5, atol=1e-6)
