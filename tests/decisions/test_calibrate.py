"""Calibration: optimal fits against scikit-learn, known probabilities found again, files that are whole and checked."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from manyhot import SparseLabels
from manyhot.decisions.calibrate import KINDS, Calibration, fit_calibration
from manyhot.decisions.calibration import affine
from manyhot.decisions.calibration.data import CalibrationData


def sampled(rows=4000, labels=6, seed=0, dtype=torch.float32):
    """Scores and labels drawn by ``sigma(2 s - 1)``."""
    generator = torch.Generator().manual_seed(seed)
    scores = 1.5 * torch.randn(rows, labels, generator=generator, dtype=dtype) - 0.5
    return scores, torch.rand(rows, labels, generator=generator) < torch.sigmoid(2 * scores - 1)


def test_platt_is_the_logistic_regression_on_the_scores():
    scores, labels = sampled()
    fitted = fit_calibration(scores, labels, kind="platt")
    oracle = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(scores.reshape(-1, 1).numpy(), labels.flatten().numpy())
    assert fitted.slope.item() == pytest.approx(oracle.coef_.item(), abs=2e-3)
    assert fitted.intercept.item() == pytest.approx(oracle.intercept_.item(), abs=2e-3)
    assert fitted.slope.item() == pytest.approx(2, abs=0.1)


def test_no_other_temperature_has_a_lower_log_loss():
    scores, labels = sampled(dtype=torch.float64)
    fitted = fit_calibration(scores, labels, kind="temperature")

    def loss(slope):
        return torch.nn.functional.binary_cross_entropy_with_logits(slope * scores, labels.double()).item()

    assert fitted.intercept.item() == 0
    best = loss(fitted.slope)
    assert all(best <= loss(fitted.slope * factor) + 1e-9 for factor in (0.5, 0.99, 1.01, 2.0))


def test_per_label_fits_are_each_labels_own_where_there_is_data():
    generator = torch.Generator().manual_seed(0)
    slope, intercept = torch.tensor([0.5, 1.0, 3.0]), torch.tensor([1.0, -2.0, 0.0])
    scores = torch.randn(20000, 3, generator=generator)
    labels = torch.rand(20000, 3, generator=generator) < torch.sigmoid(slope * scores + intercept)
    fitted = fit_calibration(scores, labels, kind="per-label")
    for label in range(3):
        oracle = LogisticRegression(C=np.inf, tol=1e-10).fit(scores[:, [label]].numpy(), labels[:, label].numpy())
        assert fitted.slope[label].item() == pytest.approx(oracle.coef_.item(), abs=0.01)
        assert fitted.intercept[label].item() == pytest.approx(oracle.intercept_.item(), abs=0.01)


def test_a_rare_label_stays_near_the_pooled_fit_and_more_so_with_more_shrinkage():
    scores, labels = sampled()
    labels = labels.clone()
    labels[:, 0] = False
    labels[0, 0] = True
    pooled = fit_calibration(scores, labels, kind="platt")
    near, far = (fit_calibration(scores, labels, kind="per-label", shrink=shrink) for shrink in (1e6, 5.0))
    assert (near.slope - pooled.slope).abs().max() < 0.05
    assert (near.intercept - pooled.intercept).abs().max() < 0.1
    assert abs(far.intercept[0] - pooled.intercept) > 1
    assert far.slope.isfinite().all()


@pytest.mark.parametrize("kind", ["temperature", "platt", "per-label"])
def test_separable_and_one_sided_labels_give_finite_fits(kind):
    scores = torch.tensor([[1.0, -1.0], [2.0, -3.0], [-1.0, 2.0]])
    for labels in (scores > 0, torch.zeros_like(scores), torch.ones_like(scores)):
        fitted = fit_calibration(scores, labels, kind=kind)
        assert fitted.slope.isfinite().all()
        assert fitted.intercept.isfinite().all()
    constant = fit_calibration(torch.zeros(4, 1), torch.tensor([[1.0], [0], [0], [0]]), kind=kind)
    assert constant.slope.isfinite().all()


@pytest.mark.parametrize("kind", ["temperature", "platt", "per-label"])
def test_soft_labels_are_fitted_as_probabilities(kind):
    scores = torch.linspace(-3, 3, 300, dtype=torch.float64).reshape(100, 3)
    fitted = fit_calibration(scores, torch.sigmoid(1.7 * scores), kind=kind)
    assert fitted.slope.tolist() == pytest.approx([1.7] * len(fitted.slope), abs=0.05)


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=1, max_size=40))
def test_isotonic_is_scikit_learns_with_ties_and_all(entries):
    scores = torch.tensor([[float(s)] for s, _ in entries])
    labels = torch.tensor([[y] for _, y in entries])
    fitted = fit_calibration(scores, labels, kind="isotonic")
    oracle = IsotonicRegression(out_of_bounds="clip").fit(scores.flatten().double().numpy(), labels.flatten().double().numpy())
    asked = torch.linspace(-6, 6, 49, dtype=torch.float64)
    assert fitted(asked).tolist() == pytest.approx(oracle.predict(asked.numpy()).tolist(), abs=1e-9)


def test_isotonic_is_scikit_learns_on_continuous_scores():
    scores, labels = sampled(rows=500)
    fitted = fit_calibration(scores, SparseLabels.from_dense(labels), kind="isotonic")
    oracle = IsotonicRegression(out_of_bounds="clip").fit(scores.flatten().numpy(), labels.flatten().double().numpy())
    assert fitted(scores).flatten().tolist() == pytest.approx(oracle.predict(scores.flatten().numpy()).tolist(), abs=1e-5)
    assert bool(fitted(torch.tensor([float("nan")])).isnan())
    assert fitted(torch.tensor([float("-inf"), float("inf")])).tolist() == fitted.levels[[0, -1]].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_excluded_entries_do_not_count_whatever_they_hold(kind):
    scores, labels = sampled(rows=300)
    where = torch.rand(300, 6, generator=torch.Generator().manual_seed(1)) < 0.7
    spoiled = scores.masked_fill(~where, float("nan"))
    flipped = torch.where(where, labels, ~labels)
    for given_labels in (flipped, SparseLabels.from_dense(flipped)):
        one = fit_calibration(scores, labels, kind=kind, where=where).to_json()
        two = fit_calibration(spoiled, given_labels, kind=kind, where=where).to_json()
        assert one == two


@pytest.mark.parametrize("kind", KINDS)
def test_calibration_lowers_the_error_against_known_probabilities(kind):
    scores, labels = sampled(rows=20000)
    truth = torch.sigmoid(2 * scores - 1)
    fitted = fit_calibration(scores[:10000], labels[:10000], kind=kind)
    before = (torch.sigmoid(scores) - truth)[10000:].abs().mean()
    after = (fitted(scores) - truth)[10000:].abs().mean()
    assert after < (0.8 if kind == "temperature" else 0.15) * before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_saved_calibration_comes_back_exactly(kind, suffix, tmp_path):
    scores, labels = sampled(rows=200)
    fitted = fit_calibration(scores, labels, kind=kind)
    path = tmp_path / f"calibration.{suffix}"
    fitted.save(path)
    fitted.save(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    again = Calibration.load(path)
    assert again.to_json() == fitted.to_json()
    assert torch.equal(again(scores), fitted(scores))


def test_files_that_are_not_calibrations_are_refused(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "x.json"
    good = Calibration("platt", torch.ones(1).double(), torch.zeros(1).double()).to_json()
    for change, words in (
        ({"format": "other"}, "must have the format"),
        ({"kind": "magic"}, "`kind` must be one of"),
        ({"slope": [1.0, 2.0]}, "of one size"),
        ({"slope": [1.0, 2.0], "intercept": [0.0, 0.0]}, "one slope and intercept; got 2"),
        ({"knots": [1.0]}, "must have slope and intercept; got intercept, knots, slope"),
    ):
        path.write_text(json.dumps(good | change))
        with pytest.raises(ValueError, match=words):
            Calibration.load(path)
    tensors = tmp_path / "x.safetensors"
    save_file(
        {"slope": torch.ones(1), "intercept": torch.ones(1)}, tensors, metadata={"format": good["format"], "kind": "platt"}
    )
    with pytest.raises(ValueError, match="`slope` must be finite float64"):
        Calibration.load(tensors)
    save_file({"slope": torch.ones(1)}, tensors)
    with pytest.raises(ValueError, match="must have the format"):
        Calibration.load(tensors)
    with pytest.raises(ValueError, match=r"must end in \.json or \.safetensors"):
        Calibration.load(tmp_path / "x.pkl")
    with pytest.raises(ValueError, match="`knots` must increase"):
        Calibration("isotonic", knots=torch.tensor([1.0, 0.0]).double(), levels=torch.tensor([0.0, 1.0]).double())


def test_calls_that_make_no_sense_are_refused():
    scores, labels = sampled(rows=10)
    with pytest.raises(ValueError, match="`kind` must be one of"):
        fit_calibration(scores, labels, kind="beta")
    bad = scores.clone()
    bad[3, 2] = float("nan")
    with pytest.raises(ValueError, match="got nan in row 3, label 2"):
        fit_calibration(bad, labels)
    with pytest.raises(ValueError, match="no entry to fit on"):
        fit_calibration(scores, labels, where=torch.zeros(10, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match="`labels` must be hard"):
        fit_calibration(scores, labels * 0.5, kind="isotonic")
    with pytest.raises(ValueError, match="`labels` must lie in"):
        fit_calibration(scores, labels * 2.0)
    with pytest.raises(ValueError, match="`labels` must fit `logits`"):
        fit_calibration(scores, SparseLabels.from_dense(labels[:4]))
    fitted = fit_calibration(scores, labels, kind="per-label")
    with pytest.raises(ValueError, match="the 6 labels it was fitted on; got 5"):
        fitted(scores[:, :5])


@pytest.mark.parametrize("kind", ["temperature", "platt", "per-label"])
@pytest.mark.parametrize("size", [40.0, 60.0, 190.0, 1e4, 1e200])
def test_large_scores_fit_as_small_ones_do(kind, size):
    """All probabilities of sigma(s) are 0 or 1 here, and a tenth of them is wrong."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.rand(500, 10, generator=generator) < 0.2
    right = torch.rand(500, 10, generator=generator) < 0.9
    sure = torch.where(right == labels, 1.0, -1.0) * (1 + torch.rand(500, 10, generator=generator) / 4)
    small, large = (fit_calibration(sure.double() * scale, labels, kind=kind) for scale in (1.0, size))
    torch.testing.assert_close(large.slope * size, small.slope, rtol=1e-6, atol=0)
    torch.testing.assert_close(large.intercept, small.intercept, rtol=1e-6, atol=0)
    assert (large.slope > 0).all()


def test_one_score_far_out_does_not_spoil_the_fit():
    scores, labels = sampled()
    scores[0, 0] = 1e6 if labels[0, 0] else -1e6
    fitted = fit_calibration(scores, labels, kind="platt")
    assert fitted.slope.item() == pytest.approx(2, abs=0.2)


@pytest.mark.parametrize("kind", ["temperature", "platt", "per-label"])
def test_a_fit_that_starts_from_a_sample_of_rows_ends_where_others_do(kind, monkeypatch):
    scores, labels = sampled()
    scores[::16] *= -3  # the sample is misleading
    plain = fit_calibration(scores, labels, kind=kind)
    evaluated = []
    blocks = CalibrationData.row_blocks
    monkeypatch.setattr(
        CalibrationData, "row_blocks", lambda self, *, every=1: evaluated.append(every) or blocks(self, every=every)
    )
    monkeypatch.setattr(affine, "MANY_ENTRIES", 1000)
    monkeypatch.setattr(affine, "PIECE", 64)
    begun = fit_calibration(scores, labels, kind=kind)
    assert 16 in evaluated
    torch.testing.assert_close(begun.slope, plain.slope, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(begun.intercept, plain.intercept, rtol=1e-6, atol=1e-6)


def test_many_blocks_give_what_one_block_gives(monkeypatch):
    scores, labels = sampled(rows=300)
    whole = {kind: fit_calibration(scores, labels, kind=kind).to_json() for kind in KINDS}
    monkeypatch.setattr("manyhot.decisions.calibration.data.BLOCK_ELEMENTS", 700)
    for kind in KINDS:
        parts = fit_calibration(scores, labels, kind=kind).to_json()
        for name in set(parts) - {"format", "kind"}:
            assert parts[name] == pytest.approx(whole[kind][name], abs=1e-9)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_fits_and_applies_as_the_cpu_does(kind):
    scores, labels = sampled(rows=500)
    wanted = fit_calibration(scores, labels, kind=kind)
    fitted = fit_calibration(scores.cuda(), SparseLabels.from_dense(labels).to("cuda"), kind=kind)
    assert torch.allclose(fitted(scores.cuda()).cpu(), wanted(scores), atol=1e-5)
