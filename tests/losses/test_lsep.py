"""LSEP over sampled pairs."""

import pytest
import torch

from manyhot import SparseLabels, lsep_loss, pairwise_loss


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize(("num_labels", "drawn"), [(63, False), (64, True)])
def test_pairs_are_drawn_only_where_a_row_can_have_too_many(num_labels, drawn, lists):
    logits = torch.randn(4, num_labels)
    labels = torch.rand(4, num_labels) < 0.5
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    value = lsep_loss(logits, SparseLabels.from_dense(labels) if lists else labels, generator=generator)
    assert torch.equal(generator.get_state(), before) != drawn
    if not drawn:
        torch.testing.assert_close(value, pairwise_loss(logits, labels))


def test_a_soft_label_is_of_both_sides():
    logits, labels = torch.randn(4, 40), torch.rand(4, 40)
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    lsep_loss(logits, labels, generator=generator)
    assert not torch.equal(generator.get_state(), before)
