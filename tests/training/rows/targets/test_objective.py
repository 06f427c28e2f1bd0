"""What a step minimises: options of the loss, flipping, mixup, R-Drop, and the rule that follows the loss."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from manyhot.data.examples import Examples
from manyhot.evaluation import evaluate
from manyhot.labels.sparse import SparseLabels
from manyhot.losses import divergence
from manyhot.losses.catalog import LOSSES, get_loss
from manyhot.losses.zlpr import zlpr_loss
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.targets.objective import Objective, check_loss, inverse_propensities, link_of
from manyhot.training.rows.train import train
from training.problems import feature_examples, same_weights, text_examples

QUICK = TrainSettings(epochs=4, batch_size=32, hidden=16, learning_rate=0.02, threads=1)


class Given(torch.nn.Module):
    """A body that says what it is told, and notes what it was asked."""

    def __init__(self, logits):
        super().__init__()
        self.logits, self.asked = torch.nn.Parameter(logits), []

    def forward(self, batch):
        self.asked.append(batch)
        return self.logits[: len(batch)]


def test_propensity_weights_are_one_over_the_propensity_with_mean_one_over_the_positives():
    labels = SparseLabels.from_lists([[0, 1], [0], [0, 2], [0]] * 10, num_labels=4)
    weights = inverse_propensities(labels).double()
    counts, scale = torch.tensor([40.0, 10.0, 10.0, 0.0]).double(), (math.log(40) - 1) * 2.5**0.55
    worth = 1 + scale * (counts + 1.5) ** -0.55
    torch.testing.assert_close(weights, worth * 60 / (worth * counts).sum(), rtol=1e-6, atol=0)
    logits = torch.randn(40, 4)
    for pos_weight in (None, 3.0):
        settings = TrainSettings(propensity_weights=True, pos_weight=pos_weight)
        value = Objective(settings, weights.float()).eval()(Given(logits), logits, labels, None, None)
        wanted = zlpr_loss(logits, labels, pos_weight=weights.float() * (pos_weight or 1))
        torch.testing.assert_close(value.detach(), wanted)


def test_propensity_weights_are_refused_by_a_loss_without_a_weight_for_positives():
    for loss in ("zlpr", "bce", "tlpr"):
        check_loss(TrainSettings(loss=loss, propensity_weights=True))
    with pytest.raises(ValueError, match="`propensity_weights` must be left out"):
        check_loss(TrainSettings(loss="dice1", propensity_weights=True))


def test_propensity_weights_move_rare_labels_up():
    examples = text_examples()
    plain, weighed = (train(examples, TrainSettings(threads=1, propensity_weights=on)) for on in (False, True))
    rare = plain.label_counts.argmin()
    gap = (weighed.logits(examples) - plain.logits(examples)).mean(dim=0)
    assert gap[rare] > gap[plain.label_counts.argmax()]


def test_options_of_a_loss_reach_its_function():
    logits, labels = torch.randn(6, 3), (torch.rand(6, 3) < 0.5).long()
    sparse = SparseLabels.from_dense(labels)
    for loss, option in (("focal", {"gamma": 1.0, "alpha": 0.3}), ("pairwise", {"scale": 2.0, "margin": 0.1})):
        settings = TrainSettings(loss=loss, loss_option=option)
        value = Objective(settings).eval()(Given(logits), logits, sparse, None, None)
        summed = {"label_reduction": "sum"} if loss == "focal" else {}
        torch.testing.assert_close(value, get_loss(loss)(logits, labels, **option, **summed))


@pytest.mark.parametrize("loss", [name for name, info in LOSSES.items() if info.options])
def test_every_option_of_every_loss_is_checked(loss):
    known = [option.name for option in LOSSES[loss].options]
    with pytest.raises(ValueError, match=f"unknown loss option 'gama': {loss} has the options {known[0]}"):
        TrainSettings(loss=loss, loss_option=["gama=2"])
    with pytest.raises(ValueError, match=f"`{known[0]}` must be"):
        TrainSettings(loss=loss, loss_option=[f"{known[0]}=many"])


def test_an_option_out_of_range_is_refused_before_training():
    with pytest.raises(ValueError, match="`loss_option` must suit the loss focal: focal_loss: `gamma`"):
        check_loss(TrainSettings(loss="focal", loss_option=["gamma=-1"]))
    with pytest.raises(ValueError, match="zlpr has no options"):
        TrainSettings(loss_option=["gamma=1"])


def test_flipped_labels_are_drawn_anew_and_average_to_the_smoothed_loss_of_softmax():
    torch.manual_seed(0)
    logits = torch.tensor([[2.0, -1.0, 0.5]]).expand(4000, 3)
    labels = SparseLabels.from_lists([[0]] * 4000, num_labels=3)
    values = {}
    for setting in ("flip", "smoothing"):
        objective = Objective(TrainSettings(loss="softmax", **{setting: 0.3}))
        values[setting] = float(objective(Given(logits), logits, labels, None, None).detach())
    assert values["flip"] == pytest.approx(values["smoothing"], rel=0.03)


def test_flipping_zlpr_is_not_smoothing_it():
    logits = torch.tensor([[3.0, -3.0, -3.0, -3.0]]).expand(4000, 4)
    labels = SparseLabels.from_lists([[0]] * 4000, num_labels=4)
    flipped, smoothed = (
        float(Objective(TrainSettings(**{setting: 0.2}))(Given(logits), logits, labels, None, None).detach())
        for setting in ("flip", "smoothing")
    )
    assert flipped < 0.9 * smoothed


def test_unknown_labels_of_a_partner_stay_unknown_in_mixup():
    """Label 1 is unknown in most rows; mixing must not teach that they lack it."""
    draw = np.random.default_rng(0)
    features = draw.normal(size=(400, 2)).astype(np.float32)
    labels = torch.from_numpy(features > 0)
    unknown = torch.zeros(400, 2, dtype=torch.bool)
    unknown[80:, 1] = True
    known = Examples(
        SparseLabels.from_dense(labels & ~unknown), ("a", "b"), features=features, unknown=SparseLabels.from_dense(unknown)
    )
    settings = TrainSettings(
        epochs=30, batch_size=32, hidden=16, learning_rate=0.02, threads=1, mixup=1.0, tune="none", pos_weight=1.0
    )
    model = train(known, settings)
    test = Examples(SparseLabels.from_dense(labels), ("a", "b"), features=features)
    assert evaluate(model, test)["macro-F1"] > 0.9


@pytest.mark.parametrize("make", [text_examples, lambda: feature_examples(as_sparse=True), feature_examples])
def test_mixup_is_honoured_on_every_kind_of_rows(make):
    settings = TrainSettings(epochs=3, batch_size=16, threads=1)
    plain, mixed = train(make(), settings), train(make(), replace(settings, mixup=0.4))
    assert not same_weights(plain, mixed)
    assert mixed.link == "soft"


@pytest.mark.parametrize("change", [{}, {"smoothing": 0.1}, {"pos_weight": 3.0}], ids=str)
def test_r_drop_in_training_reaches_the_fused_form(change, monkeypatch):
    fused, inner = [], divergence.pair_loss

    def watched(*args, **settings):
        value = inner(*args, **settings)
        fused.append(settings["losses"] and value is not None)
        return value

    monkeypatch.setattr(divergence, "pair_loss", watched)
    train(feature_examples(), replace(QUICK, epochs=1, rdrop=1.0, **change))
    assert fused
    assert all(fused)


def single_label_examples(rows=600, seed=0):
    """One label per row, all scores of a row shifted by a feature that says nothing about it."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(rows, 6)).astype(np.float32)
    classes = features[:, :4].argmax(axis=1)
    return Examples(SparseLabels.from_lists(classes[:, None], num_labels=4), tuple("abcd"), features=features)


def test_the_rule_of_softmax_is_the_best_label():
    model = train(single_label_examples(), replace(QUICK, epochs=15, loss="softmax"))
    assert (model.rule.top_k, model.settings.tune) == (1, "none")
    test = single_label_examples(seed=1)
    assert [row for (row,) in model.predict(test).lists()] == model.logits(test).argmax(dim=1).tolist()
    for refused in ({"tune": "micro-F1"}, {"tune": "balanced"}, {"min_labels": 2}):
        with pytest.raises(ValueError, match=f"`{next(iter(refused))}` must be left out: the loss softmax predicts"):
            train(single_label_examples(), replace(QUICK, loss="softmax", **refused))


def test_the_link_follows_the_labels_that_were_trained_on():
    assert link_of(TrainSettings(), soft=False) == "hard"
    assert link_of(TrainSettings(flip=0.1), soft=False) == "hard"
    for softened in (TrainSettings(smoothing=0.1), TrainSettings(mixup=0.1), TrainSettings(teacher="somewhere")):
        assert link_of(softened, soft=False) == "soft"
    assert link_of(TrainSettings(), soft=True) == "soft"


def test_folding_the_learned_threshold_changes_no_loss_and_no_decision():
    torch.manual_seed(0)
    objective, head = Objective(TrainSettings(loss="zlpr", learn_threshold=True)), torch.nn.Linear(5, 3)
    rows, labels = torch.randn(40, 5), SparseLabels.from_dense(torch.rand(40, 3) < 0.4)
    with torch.no_grad():
        objective.learned.fill_(0.7)
        loss, decided = objective(head, rows, labels, None, None), head(rows) > 0.7
        assert objective.fold_threshold(head) == pytest.approx(0.7)
        torch.testing.assert_close(objective(head, rows, labels, None, None), loss)
        assert torch.equal(head(rows) > 0, decided)
