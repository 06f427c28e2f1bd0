"""Links: which one is right for hard-trained and for soft-trained scores, on data whose probabilities are known."""

import itertools

import pytest
import torch

from manyhot import LinearScores, TLPRLoss, decide, split_threshold, tlpr_loss, zlpr_loss
from manyhot.decisions.calibrate import fit_calibration
from manyhot.decisions.links import probabilities
from manyhot.metrics import calibration_error


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


@pytest.mark.parametrize("link", ["hard", "soft"])
@pytest.mark.parametrize("threshold", [1.5, torch.tensor(1.5), torch.tensor([1.5, -0.75, 0.0])])
def test_a_label_is_more_likely_than_not_exactly_where_its_threshold_predicts_it(link, threshold):
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(0))
    probs = probabilities(logits, link, threshold=threshold)
    assert torch.equal(probs > 0.5, decide(logits, threshold=threshold))
    by_row = threshold[:, None] if isinstance(threshold, torch.Tensor) and threshold.ndim else threshold
    torch.testing.assert_close(probs, probabilities(logits - by_row, link))


def test_a_calibration_is_applied_to_scores_above_their_threshold():
    logits, labels = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)), torch.rand(200, 4) < 0.3
    threshold = torch.linspace(-1, 1, 200)
    fitted = fit_calibration(logits - threshold[:, None], labels)
    torch.testing.assert_close(probabilities(logits, fitted, threshold=threshold), fitted(logits - threshold[:, None]))


def test_a_threshold_that_does_not_fit_is_named():
    logits = torch.zeros(3, 4)
    with pytest.raises(ValueError, match="`threshold` must be left out for the link 'softmax'"):
        probabilities(logits, "softmax", threshold=1.0)
    with pytest.raises(ValueError, match="`threshold` must be a number or one value per row"):
        probabilities(logits, threshold=torch.zeros(4))
    with pytest.raises(TypeError, match="`threshold` must be a number or a tensor; got '1'"):
        probabilities(logits, threshold="1")


def test_a_threshold_learned_as_a_class_score_gives_calibrated_probabilities_in_every_row():
    """Rows come in two kinds whose scores are shifted apart; only a threshold of its own serves each."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(4000, 3, generator=generator, dtype=torch.float64)
    labels = (torch.rand(4000, 3, generator=generator, dtype=torch.float64) < truth).double()
    kind = torch.arange(4000) % 2
    fixed = truth.logit() + torch.tensor([0.0, 4.0], dtype=torch.float64)[kind][:, None]
    loss = TLPRLoss(learn="row", engine="torch")
    level = minimise(lambda s0: loss(torch.cat([fixed, s0[kind][:, None]], dim=1), labels), torch.zeros(2).double())
    logits, threshold = split_threshold(torch.cat([fixed, level[kind][:, None]], dim=1))
    assert level[1] - level[0] == pytest.approx(4, abs=0.3)
    ignoring, using = (calibration_error(probabilities(logits, threshold=s0), labels) for s0 in (None, threshold))
    assert using < 0.05 < ignoring
    assert torch.equal(probabilities(logits, threshold=threshold) > 0.5, decide(logits, threshold=threshold))


def test_a_module_with_a_fixed_or_a_learned_threshold_is_the_function():
    logits, labels = torch.randn(5, 7), torch.rand(5, 7) < 0.4
    torch.testing.assert_close(TLPRLoss(learn="none", initial=0.5)(logits, labels), tlpr_loss(logits, labels, 0.5))
    assert not list(TLPRLoss(learn="none").parameters())
    assert len(list(TLPRLoss().parameters())) == 1
    row = TLPRLoss(learn="row")
    torch.testing.assert_close(row(logits, labels[:, :6]), tlpr_loss(logits[:, :6], labels[:, :6], logits[:, 6]))
    with pytest.raises(ValueError, match="`initial` must be left out with learn='row'"):
        TLPRLoss(learn="row", initial=1.0)
    with pytest.raises(ValueError, match="`learn` must be one of 'model', 'row', 'none'"):
        TLPRLoss(learn="rows")
