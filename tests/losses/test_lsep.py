"""LSEP over sampled pairs."""

import pytest
import torch

from manyhot import SparseLabels, lsep_loss, pairwise_loss


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize(("num_labels", "drawn"), [(63, False), (64, True)])
def test_pairs_are_drawn_only_where_a_row_can_have_too_many(num_labels, drawn, lists):
    logits = torch.randn(4, num_labels)
    labels = torch.arange(num_labels).expand(4, -1) % 2 == 0
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


@pytest.mark.parametrize("lists", [False, True])
def test_pairs_are_drawn_for_rows_that_have_too_many_alone(lists):
    logits, labels = torch.randn(2, 3, 100), torch.zeros(2, 3, 100, dtype=torch.bool)
    labels[..., :5] = True
    logits, few = logits.requires_grad_(), labels.clone()
    labels[1, 1, :40] = True  # 40 * 60 pairs
    given = SparseLabels.from_dense(labels.flatten(0, 1)) if lists else labels.flatten(0, 1)
    flat = logits.flatten(0, 1)
    generator = torch.Generator().manual_seed(0)
    values = lsep_loss(flat, given, generator=generator, reduction="none")
    alone = lsep_loss(flat[4:5], given[4:5], generator=generator.manual_seed(0), reduction="none")
    expected = pairwise_loss(flat, labels.flatten(0, 1), reduction="none")
    assert torch.equal(values[4], alone[0])
    assert not torch.isclose(values[4], expected[4])
    others = [0, 1, 2, 3, 5]
    torch.testing.assert_close(values[others], expected[others])
    got, want = (torch.autograd.grad(v[others].sum(), logits, retain_graph=True)[0] for v in (values, expected))
    torch.testing.assert_close(got, want)
    state = generator.get_state()
    torch.testing.assert_close(lsep_loss(logits, few, generator=generator), pairwise_loss(logits, few))
    assert torch.equal(generator.get_state(), state)
