"""Two-way loss: what its means run over."""

import pytest
import torch

from manyhot import two_way_loss


def test_a_row_with_nothing_but_positives_costs_nothing_and_counts_in_the_mean():
    logits = torch.tensor([[2.0, -1.0], [0.5, 0.25], [-3.0, 4.0]], dtype=torch.float64)
    labels = torch.tensor([[1, 0], [1, 1], [0, 0]])
    values = two_way_loss(logits, labels, batch_weight=0, reduction="none")
    assert values[1] == values[2] == 0
    mean = two_way_loss(logits, labels, batch_weight=0)
    torch.testing.assert_close(mean, values[0] / 2)


def test_a_label_that_every_row_has_counts_in_the_mean_along_the_batch():
    logits = torch.tensor([[2.0, -1.0], [0.5, 0.25]], dtype=torch.float64)
    labels = torch.tensor([[1, 0], [1, 1]])
    columns = two_way_loss(logits.mT, labels.mT, batch_weight=0, reduction="none")
    assert columns[0] == 0
    along_batch = two_way_loss(logits, labels) - two_way_loss(logits, labels, batch_weight=0)
    torch.testing.assert_close(along_batch, columns.sum() / 2)


@pytest.mark.parametrize("score", [torch.inf, 1e30])
def test_a_positive_beyond_doubt_is_a_positive(score):
    logits = torch.tensor([[score, 0.0], [1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([[1, 0], [1, 0]])
    values = two_way_loss(logits, labels, batch_weight=0, reduction="none")
    torch.testing.assert_close(two_way_loss(logits, labels, batch_weight=0), values.mean())
