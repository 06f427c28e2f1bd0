import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from manyhot import RDropLoss, SparseLabels, bce_loss, lsep_loss, prediction_divergence, rdrop_loss, soft_labels_from, zlpr_loss

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


def test_rdrop_weighs_four_times_less_than_in_the_paper_and_the_same_for_every_kind():
    """The paper: ``l(a) + l(b) + alpha / 2 (KL(a, b) + KL(b, a))``; here the losses are averaged and nothing is halved."""
    a, b = pair()
    labels = torch.rand(4, 6) < 0.3
    p, q = (torch.distributions.Bernoulli(logits=x) for x in (a, b))
    kl = torch.distributions.kl_divergence
    both_ways = (kl(p, q) + kl(q, p)).sum(-1).mean()
    paper = zlpr_loss(a, labels) + zlpr_loss(b, labels) + 4 * 0.7 / 2 * both_ways
    torch.testing.assert_close(rdrop_loss(a, b, labels, alpha=0.7), paper / 2)
    for kind in ("sigmoid", "sigmoid2", "excess"):
        apart = rdrop_loss(a, b, labels, alpha=1.0, kind=kind) - rdrop_loss(a, b, labels, alpha=0.0, kind=kind)
        one_way = (prediction_divergence(a, b, kind=kind), prediction_divergence(b, a, kind=kind))
        torch.testing.assert_close(apart, sum(one_way) if kind == "excess" else one_way[0])


def test_near_equality_every_kind_is_a_fixed_multiple_of_another():
    """Of one label near 0 all are ``(a - b)^2`` times the curvature there: 1/4, 1 and, both ways added, 4/9."""
    a, labels = torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 1)
    b = a + 1e-3
    parts = {}
    for kind in ("sigmoid", "sigmoid2", "excess"):
        parts[kind] = rdrop_loss(a, b, labels, alpha=1.0, kind=kind) - rdrop_loss(a, b, labels, alpha=0.0, kind=kind)
    scaled = {kind: part.item() / 1e-6 for kind, part in parts.items()}
    assert scaled == pytest.approx({"sigmoid": 1 / 4, "sigmoid2": 1.0, "excess": 4 / 9}, rel=1e-3)


def test_rdrop_takes_any_loss_with_its_settings():
    a, b = pair()
    labels = torch.rand(4, 6) < 0.3
    loss = functools.partial(bce_loss, label_reduction="sum")
    expected = (loss(a, labels) + loss(b, labels)) / 2 + prediction_divergence(a, b)
    torch.testing.assert_close(rdrop_loss(a, b, labels, alpha=1.0, loss=loss), expected)


def gradients(value, inputs):
    found = torch.autograd.grad(value, inputs, retain_graph=True)
    return [value.detach().cpu().double(), *(grad.cpu().double() for grad in found)]


every_link = pytest.mark.parametrize("kind", ["sigmoid", "sigmoid2"])


@every_link
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_engines_agree_with_the_parts_in_float64(place, kind, reduction, dtype):
    if place.engine == "triton" and place.device == "cpu" and dtype != torch.float32:
        pytest.skip("the interpreter has float32 alone")
    labels = torch.rand(4, 6, generator=torch.Generator().manual_seed(2)) < 0.4
    where = torch.rand(4, 6, generator=torch.Generator().manual_seed(3)) < 0.7
    weight = torch.tensor([0.5, 0.0, 2.0, 1.0])
    softer = functools.partial(zlpr_loss, pos_weight=2.0, smoothing=0.1)
    settings = [{}, {"where": where}, {"sample_weight": weight}, {"loss": softer}, {"labels": SparseLabels.from_dense(labels)}]
    a, b = (x.to(dtype) for x in pair())
    for setting in settings:
        how = {"labels": labels, "alpha": 1.5, "kind": kind, "reduction": reduction, **setting}
        here = {name: place.put(value) if hasattr(value, "to") else value for name, value in how.items()}
        x, y = (place.put(each).requires_grad_() for each in (a, b))
        got = gradients(rdrop_loss(x, y, engine=place.engine, **here), (x, y))
        exact = [each.double().requires_grad_() for each in (a, b)]
        wanted = gradients(rdrop_loss(*exact, engine="torch", **how), exact)
        slack = 1e-5 if dtype == torch.float32 else 1e-2
        torch.testing.assert_close(got, wanted, rtol=slack, atol=slack * 0.1)


@every_link
def test_the_divergence_of_excluded_and_large_scores_by_every_engine(place, kind):
    where = torch.rand(4, 6, generator=torch.Generator().manual_seed(1)) < 0.5
    where[2] = False
    strange = torch.tensor([torch.inf, -torch.inf, torch.nan, 1e4, -1e4, 0.0]).expand(4, 6)
    a, b = (torch.where(where, x.float(), strange) for x in pair())
    a = torch.where(where & (a > 3), 1e4, a)
    x, y = (place.put(each).requires_grad_() for each in (a, b))
    value = prediction_divergence(x, y, kind=kind, where=place.put(where), engine=place.engine)
    wanted = prediction_divergence(a.double(), b.double(), kind=kind, where=where)
    torch.testing.assert_close(value.detach().cpu().double(), wanted, rtol=1e-5, atol=1e-6)
    for grad in torch.autograd.grad(value, (x, y)):
        assert grad.isfinite().all()
        assert (grad.cpu()[~where] == 0).all()


def test_infinite_scores_give_what_the_plain_form_gives(place):
    a = place.put(torch.tensor([[torch.inf, 1.0], [-torch.inf, -torch.inf], [2.0, 1.0]])).requires_grad_()
    b = place.put(torch.tensor([[1.0, 1.0], [-torch.inf, 0.0], [1.0, 1.0]])).requires_grad_()
    labels = place.put(torch.tensor([[1, 0], [0, 0], [0, 1]]))
    weight = place.put(torch.tensor([1.0, 0.0, 0.0]))
    for each in (weight, 1 - weight, weight.flip(0)):
        got = rdrop_loss(a, b, labels, sample_weight=each, engine=place.engine)
        wanted = rdrop_loss(a, b, labels, sample_weight=each, engine="torch")
        torch.testing.assert_close(got, wanted, equal_nan=True)


def test_two_predictions_can_be_differentiated_twice_and_again(place):
    a, b = (place.put(x[:2, :3].float()).requires_grad_() for x in pair())
    labels = place.put(torch.tensor([[1, 0, 0], [0, 1, 1]]))
    value = rdrop_loss(a, b, labels, engine=place.engine)
    once = torch.autograd.grad(value, (a, b), retain_graph=True)
    again = torch.autograd.grad(2 * value, (a, b), retain_graph=True)
    torch.testing.assert_close(again, tuple(2 * grad for grad in once))
    (by_b,) = torch.autograd.grad(value, b, create_graph=True)
    (second,) = torch.autograd.grad(by_b.square().sum(), a)
    x, y = (each.detach().double().requires_grad_() for each in (a, b))
    (by_y,) = torch.autograd.grad(rdrop_loss(x, y, labels, engine="torch"), y, create_graph=True)
    (wanted,) = torch.autograd.grad(by_y.square().sum(), x)
    torch.testing.assert_close(second.double(), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0,), (5,), (2, 3, 5)])
def test_pairs_of_any_shape(place, shape):
    a, b = (place.put(torch.ones(shape) * value).requires_grad_() for value in (1.0, -2.0))
    labels = place.put(torch.ones(shape, dtype=torch.bool))
    for value in (rdrop_loss(a, b, labels, engine=place.engine), prediction_divergence(a, b, engine=place.engine)):
        by_a, by_b = torch.autograd.grad(value, (a, b))
        assert by_a.shape == by_b.shape == shape
        assert by_a.isfinite().all()
    exact = [x.detach().cpu().double() for x in (a, b)]
    wanted = rdrop_loss(*exact, labels.cpu(), engine="torch")
    torch.testing.assert_close(rdrop_loss(a, b, labels, engine=place.engine).detach().cpu().double(), wanted)


def test_rows_that_do_not_lie_side_by_side(place):
    a, b = (place.put(torch.cat([x, x], 1).float()[:, ::2]).requires_grad_() for x in pair())
    labels = place.put(torch.rand(6, 4, generator=torch.Generator().manual_seed(4)) < 0.4).T
    got = torch.autograd.grad(rdrop_loss(a, b, labels, engine=place.engine), (a, b))
    wanted = torch.autograd.grad(rdrop_loss(a, b, labels.contiguous(), engine="torch"), (a, b))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def test_an_engine_is_given_on_to_a_loss_that_takes_one():
    a, b = pair()
    with pytest.raises(ValueError, match="rdrop_loss: `engine` must be one of"):
        rdrop_loss(a, b, torch.zeros(4, 6), engine="tritn")
    with pytest.raises(TypeError, match="unexpected keyword argument 'engine'"):
        rdrop_loss(a, b, torch.zeros(4, 6), engine="torch", loss=lsep_loss)


def test_near_certain_predictions_keep_their_digits(place):
    a, b = (place.put(torch.tensor([value, -value], requires_grad=True)) for value in (12.0, 12.5))
    exact = [x.detach().double().requires_grad_() for x in (a, b)]
    got = gradients(prediction_divergence(a, b, engine=place.engine), (a, b))
    torch.testing.assert_close(got, gradients(prediction_divergence(*exact), exact), rtol=1e-5, atol=0)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"shape of `a`, \[2, 3\]; got \[2, 4\]"):
        prediction_divergence(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="Did you mean 'sigmoid'"):
        prediction_divergence(torch.zeros(2), torch.zeros(2), kind="sigmoids")
    with pytest.raises(ValueError, match="`alpha` must be a number >= 0; got -1"):
        rdrop_loss(torch.zeros(2), torch.zeros(2), torch.zeros(2), alpha=-1)


def test_predictions_of_different_shapes_are_named():
    a, b, labels = torch.zeros(2, 3), torch.zeros(2, 4), torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"rdrop_loss: `logits_b` must have the shape of `logits_a`, \[2, 3\]; got \[2, 4\]"):
        rdrop_loss(a, b, labels)
    with pytest.raises(ValueError, match="prediction_divergence: `b` must have the shape of `a`"):
        prediction_divergence(a, b)
