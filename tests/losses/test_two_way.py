"""Two-way loss: what its means run over."""

import pytest
import torch

from manyhot import LinearScores, SparseLabels, two_way_loss


def test_it_is_its_formula_along_the_labels_and_along_the_batch():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    labels = torch.rand(6, 5, generator=generator) < 0.4
    labels[2], labels[:, 3] = False, False  # a row and a label without a positive do not count in the means
    hot, cold = 3.0, 0.5

    def one_way(scores, truth):
        pairs = zip(scores, truth, strict=True)
        sums = [((-s[t] / hot).exp().sum(), (s[~t] / cold).exp().sum()) for s, t in pairs if t.any()]
        return torch.stack([torch.log1p(pos**hot * neg**cold) for pos, neg in sums]).mean()

    value = two_way_loss(logits, labels, pos_temperature=hot, neg_temperature=cold, batch_weight=0.7)
    torch.testing.assert_close(value, one_way(logits, labels) + 0.7 * one_way(logits.mT, labels.mT))


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


def test_lazy_scores_that_are_no_numbers_are_not_hidden():
    scores = LinearScores(torch.full((1, 2), torch.nan), torch.ones(3, 2))
    assert two_way_loss(scores, SparseLabels.from_lists([[0]], num_labels=3), batch_weight=0.0).isnan()
