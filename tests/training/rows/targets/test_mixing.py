"""Mixup in training: everything of a row is mixed with the same other row."""

import torch

from manyhot.training.rows.inputs.row_batches import SparseRows
from manyhot.training.rows.targets import mixing
from manyhot.training.rows.targets.mixing import mix_batch, mix_sparse


def dense_of(rows, width):
    full = torch.zeros(len(rows.offsets) - 1, width)
    place = torch.arange(len(full)).repeat_interleave(rows.offsets.diff())
    return full.index_put_((place, rows.columns), rows.values, accumulate=True)


def test_sparse_rows_mix_as_dense_ones_do():
    draw = torch.Generator().manual_seed(0)
    full = torch.rand(6, 5, generator=draw) * (torch.rand(6, 5, generator=draw) < 0.5)
    full[2] = 0
    rows, columns = full.nonzero(as_tuple=True)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(rows, minlength=6).cumsum(0)])
    sparse = SparseRows(columns, offsets, full[rows, columns])
    partner = torch.tensor([3, 2, 0, 5, 1, 4])
    mixed = mix_sparse(sparse, partner, 0.7)
    torch.testing.assert_close(dense_of(mixed, 5), 0.7 * full + 0.3 * full[partner])


def test_no_row_is_mixed_with_itself_and_all_parts_with_the_same_row(monkeypatch):
    drawn = []

    def watched(*args, inner=mixing.draw_mix, **settings):
        drawn.append(inner(*args, **settings))
        return drawn[-1]

    monkeypatch.setattr(mixing, "draw_mix", watched)
    inputs, labels = torch.randn(4, 3), (torch.rand(4, 2) < 0.5).float()
    where, weight = torch.tensor([[True, False], [True, True], [False, True], [True, True]]), torch.arange(1.0, 5.0)
    for _ in range(50):
        mixed = mix_batch(inputs, labels, where, weight, alpha=1.0)
        share, partner = drawn[-1]
        assert sorted(partner.tolist()) == [0, 1, 2, 3]
        assert not (partner == torch.arange(4)).any()
        torch.testing.assert_close(mixed.batch, share * inputs + (1 - share) * inputs[partner])
        torch.testing.assert_close(mixed.labels, share * labels + (1 - share) * labels[partner])
        torch.testing.assert_close(mixed.sample_weight, share * weight + (1 - share) * weight[partner])
        assert torch.equal(mixed.where, where & where[partner])


def test_one_row_stays_as_it_is():
    inputs, labels = torch.randn(1, 3), torch.ones(1, 2)
    mixed = mix_batch(inputs, labels, None, None, alpha=0.4)
    assert torch.equal(mixed.batch, inputs)
    assert torch.equal(mixed.labels, labels)
