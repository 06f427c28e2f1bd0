"""Offsets of labels that are fitted to rank: their loss against the sum written out, its minimum, and what they correct."""

import math

import pytest
import torch

from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.linear import offsets
from manyhot.training.rows.linear.offsets import ranking_loss, ranking_offsets


def scored(rows=3000, labels=6, *, shift=None, seed=0):
    """Scores that tell the labels of rows alike, plus ``shift`` per label."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.rand(rows, labels, generator=draw) < torch.linspace(0.5, 0.1, labels)
    scores = torch.randn(rows, labels, generator=draw) / 2 + truth
    return scores if shift is None else scores + shift, SparseLabels.from_dense(truth)


def test_the_loss_is_the_sum_over_labels_of_rows_against_the_labels_they_lack():
    scores, labels = scored(7)
    given = torch.tensor([math.log(2.0), 0.3, -0.1, 0.0, 0.2, 0.5, -0.4], dtype=torch.float64)
    places = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(row)) for row in range(7)])
    truth = labels.dense().gather(1, places)
    listed = scores.double().gather(1, places)
    total = 50.0 * float(given[1:].square().sum())
    for row in range(7):
        moved = [2.0 * (float(listed[row, at]) - float(given[1 + places[row, at]])) for at in range(6)]
        others = sum(math.exp(value) for value, own in zip(moved, truth[row], strict=True) if not own)
        total += sum(math.log1p(others / math.exp(value)) for value, own in zip(moved, truth[row], strict=True) if own)
    assert float(ranking_loss(listed, places, truth, given)) == pytest.approx(total, rel=1e-12)


def test_the_offsets_are_a_minimum_and_undo_a_shift_of_the_labels(monkeypatch):
    monkeypatch.setattr(offsets, "STEPS", 500)
    monkeypatch.setattr(offsets, "SHRINK", 1e-3)
    shift = torch.tensor([0.0, 1.0, -1.0, 0.5, 0.0, -0.5])
    plain, moved = (ranking_offsets(*scored(shift=each)) for each in (None, shift))
    # Subtracting one number from all offsets changes no order.
    torch.testing.assert_close(moved - moved.mean(), plain - plain.mean() + shift - shift.mean(), rtol=0, atol=2e-2)


def test_few_steps_lower_the_loss_nearly_to_its_minimum(monkeypatch):
    scores, labels = scored(shift=torch.linspace(0, -1, 6))
    listed, places, positive = offsets._listed(scores, labels)

    def value(found):
        scale = torch.linspace(0, 3, 301, dtype=torch.float64)[:, None]
        return min(float(ranking_loss(listed, places, positive, torch.cat([own, found]))) for own in scale)

    before, few = value(torch.zeros(6).double()), value(ranking_offsets(scores, labels))
    monkeypatch.setattr(offsets, "STEPS", 1000)
    least = value(ranking_offsets(scores, labels))
    assert least <= few <= least + 0.01 * (before - least)


def test_labels_of_few_rows_move_less():
    shift = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
    few, many = (ranking_offsets(*scored(rows, shift=shift))[-1] for rows in (60, 6000))
    assert many < few < 0


def test_at_most_so_many_rows_are_read_and_rows_without_labels_are_left_out(monkeypatch):
    scores, labels = scored(1000)
    monkeypatch.setattr(offsets, "MOST_ROWS", 100)
    monkeypatch.setattr(offsets, "LISTED", 3)
    listed, places, positive = offsets._listed(scores, labels)
    some = torch.nonzero(labels.counts() > 0)[:, 0]
    step = -(-len(some) // 100)
    assert listed.shape == places.shape == positive.shape == (-(-len(some) // step), 3)
    assert torch.equal(listed, scores[some[::step]].sort(dim=1, descending=True).values[:, :3].double())


def test_without_labels_the_offsets_are_0():
    assert not ranking_offsets(torch.randn(5, 3), SparseLabels.none(5, 3)).any()
