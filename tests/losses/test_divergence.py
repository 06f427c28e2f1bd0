import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from manyhot import RDropLoss, bce_loss, prediction_divergence, rdrop_loss, soft_labels_from, zlpr_loss

every_kind = pytest.mark.parametrize("kind", ["sigmoid", "sigmoid2", "excess"])


def pair(seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return tuple(3 * torch.randn(4, 6, generator=generator, dtype=dtype) for _ in range(2))


@every_kind
@given(seed=st.integers(0, 2**31))
def test_it_is_positive_and_zero_only_at_equality(kind, seed):
    a, b = pair(seed)
    assert (prediction_divergence(a, b, kind=kind, reduction="none") > 0).all()
    assert prediction_divergence(a, a, kind=kind).abs().item() < 1e-14


@pytest.mark.parametrize(("kind", "slope"), [("sigmoid", 1), ("sigmoid2", 2)])
def test_it_is_the_symmetric_divergence_of_independent_coins(kind, slope):
    a, b = pair()
    p, q = (torch.distributions.Bernoulli(logits=slope * x) for x in (a, b))
    kl = torch.distributions.kl_divergence
    expected = (kl(p, q) + kl(q, p)).sum(-1)
    torch.testing.assert_close(prediction_divergence(a, b, kind=kind, reduction="none"), expected)


def test_excess_is_what_soft_zlpr_loses_at_the_other_prediction():
    a, b = pair()
    labels = soft_labels_from(a)
    excess = zlpr_loss(b, labels, reduction="none") - zlpr_loss(a, labels, reduction="none")
    torch.testing.assert_close(prediction_divergence(a, b, kind="excess", reduction="none"), excess)


@every_kind
def test_excluded_entries_are_dropped_before_the_subtraction(kind):
    a, b = pair()
    where = torch.rand(4, 6, generator=torch.Generator().manual_seed(1)) < 0.5
    where[2] = False
    left, right = (torch.where(where, x, torch.inf).requires_grad_() for x in (a, b))
    value = prediction_divergence(left, right, kind=kind, where=where)
    value.backward()
    for x in (left, right):
        assert (x.grad[~where] == 0).all()
        assert x.grad.isfinite().all()
    row = prediction_divergence(a[0][where[0]], b[0][where[0]], kind=kind)
    got = prediction_divergence(left, right, kind=kind, where=where, reduction="none")
    torch.testing.assert_close(got[0], row)
    assert got[2].item() == 0


@every_kind
def test_gradients_agree_with_finite_differences(kind):
    a, b = (x[:2, :3].requires_grad_() for x in pair())
    function = functools.partial(prediction_divergence, kind=kind)
    assert gradcheck(function, (a, b))
    assert gradgradcheck(function, (a, b))


@every_kind
def test_large_scores_do_not_overflow(kind):
    a = torch.tensor([[200.0, -300.0, 0.0]], requires_grad=True)
    b = torch.tensor([[-200.0, -300.0, 0.0]])
    value = prediction_divergence(a, b, kind=kind)
    value.backward()
    assert value.isfinite()
    assert a.grad.isfinite().all()


@every_kind
def test_half_types_are_summed_in_float32(kind):
    a, b = (x.to(torch.bfloat16) for x in pair())
    value = prediction_divergence(a, b, kind=kind)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, prediction_divergence(a.double(), b.double(), kind=kind).float())


@every_kind
def test_rdrop_is_the_mean_loss_and_the_divergence(kind):
    a, b = pair()
    labels = torch.rand(4, 6) < 0.3
    expected = (zlpr_loss(a, labels) + zlpr_loss(b, labels)) / 2
    torch.testing.assert_close(rdrop_loss(a, b, labels, alpha=0.0, kind=kind), expected)
    torch.testing.assert_close(rdrop_loss(a, b, labels, alpha=2.0, kind=kind), rdrop_loss(b, a, labels, alpha=2.0, kind=kind))
    torch.testing.assert_close(rdrop_loss(a, a, labels, alpha=2.0, kind=kind), zlpr_loss(a, labels))
    torch.testing.assert_close(RDropLoss(alpha=2.0, kind=kind)(a, b, labels), rdrop_loss(a, b, labels, alpha=2.0, kind=kind))


def test_rdrop_takes_any_loss_with_its_settings():
    a, b = pair()
    labels = torch.rand(4, 6) < 0.3
    loss = functools.partial(bce_loss, label_reduction="sum")
    expected = (loss(a, labels) + loss(b, labels)) / 2 + prediction_divergence(a, b)
    torch.testing.assert_close(rdrop_loss(a, b, labels, alpha=1.0, loss=loss), expected)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"shape of `a`, \[2, 3\]; got \[2, 4\]"):
        prediction_divergence(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="Did you mean 'sigmoid'"):
        prediction_divergence(torch.zeros(2), torch.zeros(2), kind="sigmoids")
    with pytest.raises(ValueError, match="`alpha` must be a number >= 0; got -1"):
        rdrop_loss(torch.zeros(2), torch.zeros(2), torch.zeros(2), alpha=-1)
