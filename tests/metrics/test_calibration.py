"""Calibration and Brier error, pooled and by label."""

import pytest
import sklearn.metrics as reference
import torch
import torchmetrics.functional.classification as other
from hypothesis import given

from manyhot import SparseLabels
from manyhot.metrics.calibration import brier_error, calibration_error
from metrics.problems import masked_problems, problems, random_problem


def as_probs(problem):
    return problem[0].sigmoid(), *problem[1:]


@given(problems())
def test_brier_error_equals_scikit_learn(problem):
    probs, labels = as_probs(problem)
    each = [reference.brier_score_loss(t, p, pos_label=1) for t, p in zip(labels.T.numpy(), probs.T.numpy(), strict=True)]
    assert brier_error(probs, labels, average="none").tolist() == pytest.approx(each, rel=1e-6, abs=1e-12)
    assert brier_error(probs, labels, average="macro").item() == pytest.approx(sum(each) / len(each), rel=1e-6, abs=1e-12)
    assert brier_error(probs, labels).item() == pytest.approx(sum(each) / len(each), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_calibration_error_equals_torchmetrics_label_by_label(bins):
    scores, labels = random_problem(200, 6, 2)
    probs = scores.sigmoid()
    each = [
        other.binary_calibration_error(p, t.long(), n_bins=bins).item()
        for p, t in zip(probs.T.contiguous(), labels.T, strict=True)
    ]
    assert calibration_error(probs, labels, bins=bins, average="none").tolist() == pytest.approx(each, abs=1e-6)
    assert calibration_error(probs, labels, bins=bins, average="macro").item() == pytest.approx(sum(each) / 6, abs=1e-6)
    pooled = other.binary_calibration_error(probs.flatten(), labels.long().flatten(), n_bins=bins).item()
    assert calibration_error(probs, labels, bins=bins).item() == pytest.approx(pooled, abs=1e-6)


@given(masked_problems())
def test_an_entry_left_out_is_as_if_it_were_not_there(problem):
    probs, labels, where = as_probs(problem)
    spoiled = probs.masked_fill(~where, float("nan"))
    for error in (brier_error, calibration_error):
        whole = error(spoiled, labels, where=where, average="none")
        for label in range(probs.shape[1]):
            kept = where[:, label]
            alone = error(probs[kept, label : label + 1], labels[kept, label : label + 1])
            assert whole[label].item() == pytest.approx(alone.item(), nan_ok=True, abs=1e-12)


def test_probabilities_that_are_right_on_average_have_no_calibration_error():
    probs = torch.full((100, 2), 0.25)
    labels = (torch.arange(200) % 4 == 0).reshape(100, 2)
    assert calibration_error(probs, labels).item() == pytest.approx(0.0)
    assert calibration_error(probs, labels, average="none").tolist() == pytest.approx([0.25, 0.25])
    assert brier_error(probs, labels).item() == pytest.approx(0.25 * 0.75)


def test_zero_and_one_lie_in_the_outer_bins():
    probs, labels = torch.tensor([[0.0, 1.0]]), torch.tensor([[1, 0]])
    assert calibration_error(probs, labels, bins=2) == 1
    assert calibration_error(probs, labels, bins=1) == 0


def test_lists_blocks_and_half_types_make_no_difference(monkeypatch):
    scores, labels = random_problem(40, 6, dtype=torch.float16)
    probs = scores.sigmoid()
    whole = calibration_error(probs.float(), labels).item(), brier_error(probs.float(), labels).item()
    monkeypatch.setattr("manyhot.metrics.blocks.block_elements", lambda _: 30)
    truth = SparseLabels.from_dense(labels)
    assert (calibration_error(probs, truth).item(), brier_error(probs, truth).item()) == pytest.approx(whole)


def test_numbers_outside_the_unit_interval_name_their_row():
    with pytest.raises(ValueError, match=r"brier_error: `probs` must be probabilities, in \[0, 1\]; got another .* row 1"):
        brier_error(torch.tensor([[0.1], [1.5]]), torch.tensor([[1], [0]]))
    with pytest.raises(ValueError, match="must not be NaN; got one in row 0"):
        calibration_error(torch.tensor([[float("nan")], [0.5]]), torch.tensor([[1], [0]]))


def test_no_rows_give_nan():
    empty = torch.zeros(0, 3)
    assert calibration_error(empty, empty).isnan()
    assert brier_error(empty, empty, average="macro").isnan()
