"""Losses under autograd: derivatives of every order and direction, graphs that are kept, tensors that change or go away."""

import gc
import weakref

import pytest
import torch

from manyhot import SparseLabels, bce_loss, focal_loss, prediction_divergence, rdrop_loss, tlpr_loss, zlpr_loss


def draw(device="cpu", rows=4, num_labels=6):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(rows, num_labels, generator=generator)
    return logits.to(device), (torch.rand(rows, num_labels, generator=generator) < 0.4).to(device)


def losses(labels):
    threshold = torch.linspace(-1, 1, labels.shape[0], device=labels.device)
    return {
        "zlpr": lambda x: zlpr_loss(x, labels),
        "sums": lambda x: zlpr_loss(x, labels, reduction="none"),
        "tlpr": lambda x: tlpr_loss(x, labels, threshold),
        "lists": lambda x: zlpr_loss(x, SparseLabels.from_dense(labels), smoothing=0.1, reduction="none"),
        "bce": lambda x: bce_loss(x, labels),
        "focal": lambda x: focal_loss(x, labels, reduction="none"),
        "rdrop": lambda x: rdrop_loss(x, 2 * x.detach(), labels),
        "divergence": lambda x: prediction_divergence(x, 1 - x.detach()),
    }


on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
# Torch warns about its own parts when it loads forward derivatives.
of_torch = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
every_loss = pytest.mark.parametrize("name", losses(draw()[1]))


def jacobian_row_by_row(loss, x):
    """One ordinary backward for each value."""
    x = x.detach().requires_grad_()
    values = loss(x)
    rows = [torch.autograd.grad(value, x, retain_graph=True)[0] for value in values.reshape(-1)]
    return torch.stack(rows).reshape(*values.shape, *x.shape)


@of_torch
@on_each_device
@every_loss
def test_jacobians_agree_by_every_way(name, device):
    logits, labels = draw(device)
    loss = losses(labels)[name]
    wanted = jacobian_row_by_row(loss, logits)
    for got in (
        torch.autograd.functional.jacobian(loss, logits, vectorize=True),
        torch.func.jacrev(loss)(logits),
        torch.func.jacfwd(loss)(logits),
    ):
        torch.testing.assert_close(got.to(wanted.dtype), wanted, rtol=1e-4, atol=1e-6)


@of_torch
@on_each_device
@every_loss
def test_hessians_agree_by_every_way(name, device):
    logits, labels = draw(device)
    loss = losses(labels)[name]

    def total(x):
        return loss(x).sum()

    exact = torch.autograd.functional.hessian(total, logits.double())
    for got in (
        torch.func.hessian(total)(logits),
        torch.func.jacrev(torch.func.jacrev(total))(logits),
        torch.autograd.functional.hessian(total, logits, vectorize=True),
    ):
        torch.testing.assert_close(got.double(), exact, rtol=1e-3, atol=1e-5)


@on_each_device
def test_a_threshold_alone_can_be_differentiated_twice(device):
    logits, labels = draw(device)
    threshold = torch.zeros(4, device=device, requires_grad=True)
    (first,) = torch.autograd.grad(tlpr_loss(logits, labels, threshold), threshold, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), threshold)
    assert second.gt(0).all()


def changed_calls(place):
    """Calls of every kind, with the tensors that may not change before backward."""
    logits, labels = (place.put(part) for part in draw())
    engine = {"engine": place.engine}
    where, weight, threshold = labels | (logits > -1), torch.rand(6).to(logits), torch.rand(4).to(logits)
    rows = torch.rand(4).to(logits) + 0.5
    lists = SparseLabels.from_dense(labels)
    return {
        "labels": (lambda x: zlpr_loss(x, labels, **engine), labels),
        "where": (lambda x: zlpr_loss(x, labels, where=where, **engine), where),
        "pos_weight": (lambda x: zlpr_loss(x, labels, pos_weight=weight, **engine), weight),
        "threshold": (lambda x: tlpr_loss(x, labels, threshold, **engine), threshold),
        "sample_weight": (lambda x: zlpr_loss(x, labels, sample_weight=rows, reduction="sum", **engine), rows),
        "indices": (lambda x: zlpr_loss(x, lists, **engine), lists.indices),
        "labels of sums": (lambda x: zlpr_loss(x, labels, reduction="none", **engine).sum(), labels),
        "labels of focal": (lambda x: focal_loss(x, labels, **engine), labels),
        "labels of rdrop": (lambda x: rdrop_loss(x, x.detach() * 2, labels, **engine), labels),
    }


CHANGED = ("labels", "where", "pos_weight", "threshold", "sample_weight", "indices", "labels of sums", "labels of focal")


@pytest.mark.parametrize("name", [*CHANGED, "labels of rdrop"])
def test_what_changed_in_place_is_not_used_for_a_second_backward(name, place):
    if place.engine == "torch" and name in ("sample_weight", "labels of focal", "threshold"):
        pytest.skip("torch's own operators keep what they need, and that was not changed")
    loss, part = changed_calls(place)[name]
    x = place.put(draw()[0]).requires_grad_()
    value = loss(x)
    torch.autograd.grad(value, x, retain_graph=True)
    part.copy_(part.flip(0))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(value, x)


@pytest.mark.parametrize("name", [*CHANGED, "labels of rdrop"])
def test_scores_that_changed_in_place_raise_as_in_torch(name, place):
    if place.engine == "torch" and "focal" in name:
        pytest.skip("torch's own operators keep their results, not the scores")
    loss, _ = changed_calls(place)[name]
    leaf = place.put(draw()[0]).requires_grad_()
    scores = leaf * 1
    value = loss(scores)
    scores.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_nothing_stays_alive_after_backward_but_the_loss(place, reduction):
    logits, labels = (place.put(part) for part in draw())
    threshold, where = torch.zeros(4).to(logits), labels | (logits > -1)
    x = logits.requires_grad_()
    loss = tlpr_loss(x, labels, threshold, where=where, reduction=reduction, engine=place.engine)
    gone = [weakref.ref(part) for part in (labels, threshold, where)]
    loss.sum().backward()
    del labels, threshold, where
    gc.collect()
    assert [part() for part in gone] == [None] * 3


@pytest.mark.parametrize("name", [*CHANGED, "labels of rdrop"])
def test_a_graph_that_was_freed_says_so(name, place):
    loss, _ = changed_calls(place)[name]
    x = place.put(draw()[0]).requires_grad_()
    value = loss(x)
    value.backward()
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()
