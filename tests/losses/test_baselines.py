"""Decoupled softmax and squared hinge against their published forms."""

import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC

from manyhot import SparseLabels, decoupled_softmax_loss, squared_hinge_loss, two_sided_logsumexp, zlpr_loss


def problem(rows=20, num_labels=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, num_labels, generator=generator, dtype=torch.float64)
    return logits, torch.rand(rows, num_labels, generator=generator) < 0.4


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_decoupled_softmax_is_the_mean_over_positives_of_one_softmax_each(scale):
    logits, labels = problem()
    values = decoupled_softmax_loss(logits, labels, scale=scale, reduction="none")
    for row, truth, value in zip(logits * scale, labels, values, strict=True):
        each = [torch.logsumexp(torch.cat([row[j : j + 1], row[~truth]]), 0) - row[j] for j in truth.nonzero().flatten()]
        expected = torch.stack(each).mean() if each else torch.zeros((), dtype=torch.float64)
        torch.testing.assert_close(value, expected)


def test_decoupled_softmax_with_one_positive_is_cross_entropy():
    logits, _ = problem()
    classes = torch.arange(20) % 7
    got = decoupled_softmax_loss(logits, SparseLabels.from_lists(classes[:, None].tolist(), num_labels=7))
    torch.testing.assert_close(got, torch.nn.functional.cross_entropy(logits, classes))


def test_decoupled_softmax_shares_the_negative_side_of_the_family_and_does_not_see_a_shift():
    logits, labels = problem()
    labels[:, 0] = True
    _, neg = two_sided_logsumexp(logits, labels)
    lone = labels.clone()
    lone[:, 1:] = False
    where = ~labels | lone
    got = decoupled_softmax_loss(logits, lone, where=where, reduction="none")
    torch.testing.assert_close(got, torch.nn.functional.softplus(neg - logits[:, 0], threshold=40))
    torch.testing.assert_close(decoupled_softmax_loss(logits + 5, labels), decoupled_softmax_loss(logits, labels))
    assert zlpr_loss(logits + 5, labels) != zlpr_loss(logits, labels)


def test_squared_hinge_is_the_loss_that_liblinear_minimises():
    generator = np.random.default_rng(0)
    features = generator.normal(size=(200, 5))
    truth = features @ generator.normal(size=5) + generator.normal(size=200) > 0
    cost = 0.7
    svm = LinearSVC(loss="squared_hinge", C=cost, intercept_scaling=1.0, tol=1e-9, max_iter=100_000).fit(features, truth)
    weight = torch.tensor(np.append(svm.coef_[0], svm.intercept_[0]), requires_grad=True)
    wide = torch.tensor(np.hstack([features, np.ones((200, 1))]))
    loss = squared_hinge_loss((wide @ weight)[:, None], torch.tensor(truth)[:, None], reduction="sum")
    (weight.square().sum() / 2 + cost * loss).backward()
    torch.testing.assert_close(weight.grad, torch.zeros_like(weight), atol=1e-4, rtol=0)


def test_squared_hinge_costs_nothing_beyond_the_margin_and_is_least_at_twice_the_probability_minus_one():
    logits = torch.tensor([[1.0, -1.0, 3.0]], dtype=torch.float64, requires_grad=True)
    squared_hinge_loss(logits, torch.tensor([[1, 0, 1]])).backward()
    assert (logits.grad == 0).all()
    probs = torch.tensor([[0.1, 0.5, 0.85]], dtype=torch.float64)
    best = (2 * (2 * probs - 1)).requires_grad_()
    squared_hinge_loss(best, probs, margin=2.0).backward()
    torch.testing.assert_close(best.grad, torch.zeros_like(best), atol=1e-12, rtol=0)
