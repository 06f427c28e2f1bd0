"""The threshold that follows training."""

import math

import pytest
import torch

from manyhot.labels.sparse import SparseLabels
from manyhot.losses.zlpr import zlpr_loss
from manyhot.training.rows.rules.fitting import Tuning, bounded_cut
from manyhot.training.rows.rules.tracking_threshold import TrackingThreshold, density_cut
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import feature_examples, text_examples


def test_the_cut_comes_to_lie_at_half_the_f1_of_calibrated_scores():
    draw = torch.Generator().manual_seed(0)
    cut = TrackingThreshold()
    scores = torch.randn(4000, 10, generator=draw) * 1.5 - 1.5
    labels = (torch.rand(4000, 10, generator=draw) < scores.sigmoid()).float()
    for _ in range(600):
        rows = torch.randperm(4000, generator=draw)[:200]
        cut.update(scores[rows][None, :, None], labels[rows][None, :, None])
    found = float(cut.value)
    grid = torch.linspace(-3, 2, 501)
    f1 = torch.stack([2 * (labels * (scores > c)).sum() / ((scores > c).sum() + labels.sum()) for c in grid])
    best = f1.max()
    assert 2 * (labels * (scores > found)).sum() / ((scores > found).sum() + labels.sum()) > best - 0.005
    assert torch.sigmoid(torch.tensor(found)) == pytest.approx(float(best) / 2, abs=0.04)


def test_weights_w_and_one_over_w_are_a_shift_of_the_scores():
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 9, generator=draw, dtype=torch.float64)
    labels = torch.rand(6, 9, generator=draw) < 0.3
    shifted = zlpr_loss(logits - 1.3, labels, reduction="none")
    weighted = zlpr_loss(logits, labels, pos_weight=math.exp(1.3), neg_weight=math.exp(-1.3), reduction="none")
    torch.testing.assert_close(weighted, shifted)


def test_each_model_has_its_own_cut():
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 50, 3, 4, generator=draw)
    labels = (torch.rand(2, 50, 1, 4, generator=draw) < 0.3).float()
    cuts = TrackingThreshold(2, 3)
    for _ in range(20):
        cuts.update(logits, labels)
    alone = TrackingThreshold()
    for _ in range(20):
        alone.update(logits[1:, :, 2:], labels[1:])
    torch.testing.assert_close(cuts.value[1:, 2:], alone.value)


def test_what_is_unknown_does_not_move_the_cut():
    draw = torch.Generator().manual_seed(2)
    logits, where = torch.randn(1, 30, 1, 5, generator=draw), torch.rand(1, 30, 1, 5, generator=draw) < 0.6
    labels = (torch.rand(1, 30, 1, 5, generator=draw) < 0.4).float()
    cuts = [TrackingThreshold(), TrackingThreshold()]
    for cut, filler in zip(cuts, (0.0, 1.0), strict=True):
        cut.update(logits, torch.where(where, labels, filler), where)
    torch.testing.assert_close(cuts[0].value, cuts[1].value)


@pytest.mark.parametrize("density", [0.0, 0.01, 0.2, 0.999, 1.0])
def test_a_share_of_the_scores_lies_above_the_cut_of_a_density(density):
    draw = torch.Generator().manual_seed(3)
    logits, known = torch.randn(2, 40, 5, generator=draw), torch.rand(40, 5, generator=draw) < 0.7
    for counted in (None, known):
        cut = density_cut(logits, density, counted)
        above = (logits > cut[:, None, None]) & (torch.ones(40, 5, dtype=torch.bool) if counted is None else counted)
        size = 200 if counted is None else int(known.sum())
        assert above.sum(dim=(1, 2)).tolist() == [round(density * size)] * 2


def test_equal_scores_and_no_rows_have_a_cut_too():
    assert density_cut(torch.full((1, 3, 4), 2.0), 0.5).tolist() == [2.0]
    assert density_cut(torch.zeros(1, 0, 4), 0.5).tolist() == [math.inf]


def test_rows_not_trained_on_get_as_many_labels_as_training_rows_have():
    draw = torch.Generator().manual_seed(4)
    logits, where = torch.randn(50, 6, generator=draw) - 3, torch.rand(50, 6, generator=draw) < 0.8
    labels = SparseLabels.from_dense(torch.rand(90, 6, generator=draw) < 0.3)
    unknown = SparseLabels.from_dense((torch.rand(90, 6, generator=draw) < 0.2) & ~labels.dense(torch.bool))
    density = labels.indices.numel() / (540 - unknown.indices.numel())
    tuning = Tuning(logits, SparseLabels.from_dense(logits > 0), where)
    found = bounded_cut(torch.zeros(1, 1), tuning, labels, unknown, None)
    assert int(((logits > found) & where).sum()) == round(density * int(where.sum()))
    assert float(bounded_cut(torch.full((1, 1), -9.0), tuning, labels, unknown, None)) == -9
    half = (torch.arange(90) < 45).float()
    picked = bounded_cut(torch.zeros(1, 1), tuning, labels[:45], unknown[:45], None)
    assert torch.equal(bounded_cut(torch.zeros(1, 1), tuning, labels, unknown, half), picked)


@pytest.mark.parametrize("make", [feature_examples, text_examples])
def test_training_with_the_automatic_weight_gives_a_rule_and_leaves_the_scores_alone(make):
    examples = make()
    plain = {"epochs": 5, "tune": "none", "threads": 1, "model": "auto"}
    plain |= {"hidden": 8, "patience": 0} if examples.texts is None else {}
    auto = train(examples, TrainSettings(pos_weight="auto", **plain))
    zero = train(examples, TrainSettings(pos_weight=1.0, **plain))
    assert auto.rule.threshold != 0
    assert zero.rule.threshold == 0
    torch.testing.assert_close(auto.logits(examples), zero.logits(examples))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pos_weight": "automatic"}, "must be a number > 0 or 'auto'"),
        ({"pos_weight": "auto", "loss": "bce"}, "must go with the loss zlpr"),
        ({"pos_weight": "auto", "learn_threshold": True}, "no learned threshold"),
        ({"pos_weight": 0.0}, "> 0"),
    ],
)
def test_weights_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        TrainSettings(**settings)


def test_a_weight_may_be_written_as_text():
    assert TrainSettings.from_dict({"pos_weight": "2.5"}).pos_weight == 2.5
    assert TrainSettings.from_dict({"pos_weight": "auto"}).pos_weight == "auto"
