"""Rows read as words under a threshold and in the joint form: interpreted everywhere, on the device where there is one."""

import pytest
import torch

from engines.oracle import close
from engines.triton.interpreted import check_interpreted
from engines.triton.packed.test_kernel import problem
from manyhot import SparseLabels, pairwise_loss, tlpr_loss
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton.calls import Call
from manyhot.losses.core.forms import FORMS

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.packed.test_forms import check_form, check_hostile
for form in ("split", "joint"):
    for dtype, num_labels in ((torch.float32, 131), (torch.bfloat16, 264), (torch.float16, 301)):
        for kind in ("hard", "soft", "weighted", "lists")[: 4 if num_labels > 256 else 3]:
            check_form("cpu", dtype, 3, num_labels, kind, form)
    for kind in ("hard", "soft", "lists"):
        check_hostile("cpu", torch.float32, 301 if form == "joint" else 264, kind, form)
print("checked")
"""


def expected(x, terms, form, offset):
    """Values, gradient and derivative by the offset in float64."""
    exact, c = x.double().requires_grad_(), torch.as_tensor(offset).double().requires_grad_()
    soft = terms._replace(labels=terms.labels.double()) if isinstance(terms, DenseTerms) and terms.smoothing else terms
    pos, neg = soft.sides(exact)
    values = FORMS[form](pos, neg, c)
    # The sides are cut off where a row is infinite; the engines' gradient is asked of the terms themselves.
    by_pos, by_neg, by_c = torch.autograd.grad(values.sum(), (pos.rest, neg.rest, c), allow_unused=True)
    grad = soft.gradient(x.double(), pos, neg, by_pos, by_neg)
    return values.detach(), grad.detach(), by_c


def by_turns(number, rows, device, turn=None):
    """No offset and a number. Each is a kernel of its own; with ``turn`` one of them is given to each row instead."""
    return [
        offset if turn is None or turn % 2 == place else torch.full((rows,), offset, device=device)
        for place, offset in enumerate((0.0, number))
    ]


def every_offset(rows, device, turn=None):
    """No offset, a number, one for each row, and ones that are too large to multiply by."""
    moderate = torch.linspace(-3, 3, rows, device=device)
    return (*by_turns(1.25, rows, device, turn), moderate, 20 * moderate)


def check_form(device, dtype, rows, num_labels, kind, form, spread=3.0, turn=None):
    x, terms, *_ = problem(device, dtype, rows, num_labels, kind, spread)
    assert Call(x, terms, "fused", wordwise=True).layout.plan.kernel == "packed"
    for offset in every_offset(rows, device, turn):
        compare(x, terms, form, offset)


def compare(x, terms, form, offset):
    values, grad, slope = triton_engine.fused(x, terms, form, offset)
    wanted, wanted_grad, wanted_slope = expected(x, terms, form, offset)
    close(values, wanted.cpu(), torch.float32)
    # The interpreter cuts what the device rounds.
    close(grad, wanted_grad.cpu(), torch.bfloat16 if triton_engine.interpreted() and x.dtype != torch.float32 else x.dtype)
    if isinstance(offset, torch.Tensor):
        close(slope, wanted_slope.cpu(), torch.float32)


def check_hostile(device, dtype, num_labels, kind, form, turn=None):
    """Rows whose sums vanish or overflow on one side or both, rows without positives and without negatives."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, num_labels, generator=generator)
    t = torch.rand(12, num_labels, generator=generator) < 0.1
    t[:, 0], t[:, 1] = True, False
    t[0], t[1], t[2] = False, True, False
    t[2, num_labels - 1] = True
    x[3] = torch.where(t[3], 100.0, x[3])  # positives far up, their sum is below every float
    x[4] = torch.where(t[4], x[4], -100.0)
    x[5] = torch.where(t[5], 100.0, -100.0)
    x[6] = torch.where(t[6], -100.0, 100.0)
    x[7], x[8] = 95.0, -95.0
    x[9, ::2] += 60
    x[10, 0] = float("inf")
    x[11, 1] = -float("inf")
    x, t = x.to(dtype).to(device), t.to(device)
    terms = DenseTerms(t.to(torch.uint8))
    if kind == "soft":
        terms = DenseTerms(t.to(dtype))
    elif kind == "lists":
        lists = SparseLabels.from_dense(t)
        terms = SparseTerms(lists.indices, lists.offsets)
    for offset in (*by_turns(-2.0, 12, device, turn), torch.linspace(-9, 9, 12, device=device)):
        compare(x, terms, form, offset)


@pytest.mark.slow
def test_forms_agree_with_float64_in_the_interpreter():
    check_interpreted(INTERPRETED)


DTYPES = (torch.float32, torch.bfloat16, torch.float16)
KINDS = ("hard", "soft", "lists", "weighted")


def turn_of(dtype, kind, length):
    """Whose turn it is: no offset and a number meet every type, every kind of labels and every length."""
    return DTYPES.index(dtype) + KINDS.index(kind) + length


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["split", "joint"])
@pytest.mark.parametrize(("length", "num_labels"), list(enumerate([1000, 4271, 16_384, 40_003])))
def test_forms_agree_with_float64_on_the_device(dtype, kind, form, length, num_labels):
    for spread in (3.0, 60.0):
        check_form("cuda", dtype, 60, num_labels, kind, form, spread, turn_of(dtype, kind, length))


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("form", ["split", "joint"])
def test_hostile_rows_agree_with_float64_on_the_device(dtype, kind, form):
    for length, num_labels in enumerate((131, 600, 4096, 4271, 50_000, 100_003)):
        check_hostile("cuda", dtype, num_labels, kind, form, turn_of(dtype, kind, length))


@pytest.mark.gpu
@pytest.mark.parametrize("loss", [pairwise_loss, tlpr_loss])
@pytest.mark.parametrize("num_labels", [4096, 100_003])
def test_public_losses_of_half_types_agree_with_float64(loss, num_labels):
    labels = torch.rand(32, num_labels, device="cuda") < 5 / num_labels
    for dtype in (torch.bfloat16, torch.float16):
        x = (3 * torch.randn(32, num_labels, device="cuda")).to(dtype)
        found = []
        for kind in (dtype, torch.float64):
            for given in (labels, SparseLabels.from_dense(labels)):
                scores = x.to(kind).detach().requires_grad_()
                more = (torch.zeros(32, device="cuda"),) if loss is tlpr_loss else ()
                value = loss(scores, given, *more)
                found.append((value.detach(), *torch.autograd.grad(value * 512, scores)))
        for (value, grad), (wanted, wanted_grad) in zip(found[:2], found[2:], strict=True):
            close(value, wanted.cpu(), torch.float32)
            close(grad, wanted_grad.cpu(), dtype)
