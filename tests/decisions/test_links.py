"""Links: which one is right for hard-trained and for soft-trained scores, on data whose probabilities are known."""

import itertools

import pytest
import torch

from manyhot import LinearScores, zlpr_loss
from manyhot.decisions.calibrate import fit_calibration
from manyhot.decisions.links import probabilities


def minimise(loss, start):
    scores = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [scores], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        value = loss(scores)
        value.backward()
        return value

    optimiser.step(closure)
    return scores.detach()


def expected_hard_loss(probs):
    """ZLPR in expectation over all label sets of independent labels."""
    sets = torch.tensor(list(itertools.product([0, 1], repeat=len(probs))), dtype=torch.float64)
    chance = torch.where(sets > 0, probs, 1 - probs).prod(dim=1)
    return lambda scores: (chance * zlpr_loss(scores.expand_as(sets), sets, reduction="none")).sum()


def test_the_links_are_their_formulas():
    logits = torch.tensor([[0.3, -2.0, 40.0], [-90.0, 0.0, 1.0]], dtype=torch.float64)
    assert torch.equal(probabilities(logits), torch.sigmoid(logits))
    assert torch.equal(probabilities(logits, "soft"), torch.sigmoid(2 * logits))
    assert torch.equal(probabilities(logits, "softmax"), torch.softmax(logits, dim=-1))


def test_half_precision_scores_give_float32_probabilities():
    assert probabilities(torch.zeros(2, 3, dtype=torch.bfloat16), "soft").dtype == torch.float32


def test_lazy_scores_are_taken():
    lazy = LinearScores(torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    assert torch.equal(probabilities(lazy), torch.sigmoid(lazy.dense()))


def test_with_one_hard_label_the_hard_link_is_exact():
    for p in (0.05, 0.5, 0.93):
        scores = minimise(expected_hard_loss(torch.tensor([p], dtype=torch.float64)), torch.zeros(1, dtype=torch.float64))
        assert probabilities(scores).item() == pytest.approx(p, abs=1e-6)


def test_with_two_hard_labels_the_hard_link_is_near_and_the_soft_link_too_sure():
    truth = torch.tensor([0.8, 0.3], dtype=torch.float64)
    scores = minimise(expected_hard_loss(truth), torch.zeros(2, dtype=torch.float64))
    assert probabilities(scores, "hard").tolist() == pytest.approx([0.777, 0.318], abs=5e-4)
    assert probabilities(scores, "soft").tolist() == pytest.approx([0.924, 0.178], abs=5e-4)


def test_with_soft_labels_the_soft_link_gives_them_back():
    truth = torch.tensor([0.8, 0.3, 0.02, 0.97], dtype=torch.float64)
    scores = minimise(lambda s: zlpr_loss(s, truth), torch.zeros(4, dtype=torch.float64))
    assert probabilities(scores, "soft").tolist() == pytest.approx(truth.tolist(), abs=1e-5)
    assert (probabilities(scores, "hard") - truth).abs().max() > 0.08


def test_the_decision_at_zero_is_one_half_under_every_link():
    truth = torch.tensor([0.5, 0.5], dtype=torch.float64)
    scores = minimise(expected_hard_loss(truth), torch.ones(2, dtype=torch.float64))
    assert scores.abs().max() < 1e-6


def test_a_calibration_is_a_link():
    logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    fitted = fit_calibration(logits, logits > 0.5, kind="platt")
    assert torch.equal(probabilities(logits, fitted), fitted(logits))


def test_unknown_links_are_refused():
    with pytest.raises(ValueError, match="`link` must be one of 'hard', 'soft', 'softmax'"):
        probabilities(torch.zeros(1, 2), "sigmoid")
    with pytest.raises(ValueError, match="this loss only ranks"):
        probabilities(torch.zeros(1, 2), None)
    with pytest.raises(TypeError, match="floating-point"):
        probabilities(torch.zeros(1, 2, dtype=torch.int64))
