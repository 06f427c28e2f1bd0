"""Biases of frequent labels that are lowered by held-out rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.at_k import precision_at_k
from manyhot.scores.top import TopScores
from manyhot.training.rows.bodies.wide import WideBody
from manyhot.training.rows.train import train
from manyhot.training.rows.wide.frequency import best_share, log_counts, lower_biases, may_lower
from training.rows.wide.test_fit import WIDE, titles

RANKED = replace(WIDE, loss="decoupled")


def lists(rows=400, labels=30, too_high=0.4, seed=0):
    """Top lists whose scores are too high for frequent labels by a share of the logarithm of their counts."""
    draw = np.random.default_rng(seed)
    counts = np.exp(np.linspace(0, 7, labels))
    logs = torch.from_numpy(np.log1p(counts)).float()
    truth = [[int(draw.integers(labels))] for _ in range(rows)]
    scores = torch.from_numpy(draw.normal(size=(rows, labels))).float()
    scores[torch.arange(rows), torch.tensor(truth)[:, 0]] += 2
    return TopScores.from_dense(scores + too_high * logs, k=20), SparseLabels.from_lists(truth, num_labels=labels), logs


@pytest.mark.parametrize("metric", ["", "P@1", "P@3", "micro-F1"])
def test_the_share_that_was_added_is_found(metric):
    top, labels, logs = lists()
    share = best_share(top, labels, logs, metric)
    assert 0.2 <= share <= 0.6
    assert best_share(*lists(too_high=0.0), metric) <= 0.1


def test_a_list_without_more_labels_than_count_cannot_be_ranked_better():
    assert best_share(*lists(), "P@50") == 0


def test_a_gain_within_the_standard_error_changes_nothing():
    top, labels, logs = lists(rows=4, too_high=0.0)
    assert best_share(top, labels, logs) == 0
    assert best_share(top[:0], labels[:0], logs) == 0


def test_empty_places_of_a_list_stay_empty():
    top = TopScores(torch.tensor([[1.0, 0.5, -torch.inf]] * 9), torch.tensor([[0, 1, -1]] * 9), 3)
    labels = SparseLabels.from_lists([[1]] * 9, num_labels=3)
    assert best_share(top, labels, torch.tensor([6.0, 0.0, -90.0]), "P@1") == pytest.approx(0.1)


def test_counts_are_those_of_the_labels():
    labels = SparseLabels.from_lists([[0], [0, 2]], num_labels=3)
    assert log_counts(labels).exp().tolist() == pytest.approx([3, 1, 2])


def test_biases_are_lowered_in_every_body():
    bodies = [WideBody(4, 3, hidden=2, head="float32", dropout=0.0, moves=True) for _ in range(2)]
    before = [body.head.bias.detach().clone() for body in bodies]
    lower_biases(bodies, torch.tensor([1.0, 2.0, 0.0]))
    for body, bias in zip(bodies, before, strict=True):
        torch.testing.assert_close(body.head.bias, bias - torch.tensor([1.0, 2.0, 0.0]))


@pytest.mark.parametrize(
    ("change", "wanted"), [({}, True), ({"tune": "none"}, False), ({"loss": "zlpr"}, False), ({"loss": "pairwise"}, True)]
)
def test_only_losses_that_rank_and_tuned_rules_are_lowered(change, wanted):
    assert may_lower(replace(RANKED, **change)) is wanted


@pytest.mark.parametrize("given", [False, True])
def test_training_lowers_biases_by_the_rows_that_were_held_out(given, monkeypatch):
    validation, told = titles(seed=2) if given else None, []
    monkeypatch.setattr("manyhot.training.rows.wide.phase.best_share", lambda *_: 0.0)
    plain = train(titles(), RANKED, validation=validation)
    monkeypatch.setattr("manyhot.training.rows.wide.phase.best_share", lambda *_: 0.5)
    kept = {}
    lowered = train(
        titles(),
        RANKED,
        validation=validation,
        progress=lambda event: told.append(event.message),
        held_out=lambda _, tuning: kept.update(tuning=tuning),
    )
    logs, test = log_counts(titles().labels), titles(seed=1)
    torch.testing.assert_close(lowered.logits(test), plain.logits(test) - 0.5 * logs, rtol=1e-4, atol=1e-4)
    assert any("lowered by 0.5 of the logarithm" in (message or "") for message in told)
    # The rule is tuned on lists of the lowered scores.
    if given:
        top = kept["tuning"].logits
        torch.testing.assert_close(top.values, lowered.top_k(validation, top.k).values, rtol=1e-4, atol=1e-4)
        assert precision_at_k(top, validation.labels, k=1) > 0.5
