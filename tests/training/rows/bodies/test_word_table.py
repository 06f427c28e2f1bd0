"""Tables of word vectors: how they start, and how a finished model holds them."""

import pytest
import torch

from manyhot.training.rows.bodies.word_table import LARGEST_BYTE, ROWS_AT_ONCE, WordTable
from training.rows.bodies.test_wide import batch, dense


def held(dtype, parts):
    with torch.device("meta"):
        found = WordTable(len(parts[0]), sum(part.shape[1] for part in parts), moves=False, dtype=dtype)
    found.hold(parts)
    return found


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 1e-6), (torch.float16, 2e-3), (torch.int8, 5e-2)])
def test_a_finished_table_sums_the_vectors_of_its_parts_side_by_side(dtype, off, kind):
    torch.manual_seed(0)
    parts = [torch.randn(9, 4), torch.randn(9, 3)]
    rows = batch(kind=kind)
    found = held(dtype, parts)
    assert found.weight.dtype == dtype
    wanted = dense(rows, 9) @ torch.cat(parts, dim=1).double()
    torch.testing.assert_close(found(rows).double(), wanted, rtol=0, atol=off * float(wanted.abs().max()))


def test_a_row_in_8_bits_is_off_by_at_most_half_a_step_of_its_own():
    torch.manual_seed(0)
    weight = torch.randn(50, 16) * torch.logspace(-6, 6, 50).unsqueeze(1)
    weight[7] = 0
    found = held(torch.int8, [weight])
    again = found.weight.float() * found.scales.unsqueeze(1)
    step = weight.abs().amax(dim=1, keepdim=True) / LARGEST_BYTE
    assert ((again - weight).abs() <= 0.501 * step).all()
    assert not again[7].any()
    assert set(found.state_dict()) == {"weight", "scales"}


def test_a_table_is_rounded_a_block_at_a_time_as_it_would_be_whole(monkeypatch):
    torch.manual_seed(0)
    parts = [torch.randn(11, 4), torch.randn(11, 2)]
    whole = held(torch.int8, parts)
    monkeypatch.setattr("manyhot.training.rows.bodies.word_table.ROWS_AT_ONCE", 3)
    again = held(torch.int8, parts)
    assert ROWS_AT_ONCE > 11
    assert torch.equal(again.weight, whole.weight)
    assert torch.equal(again.scales, whole.scales)


def test_features_that_start_at_zero_leave_the_others_as_they_were():
    torch.manual_seed(0)
    usual = WordTable(9, 4, moves=True).weight.detach()
    torch.manual_seed(0)
    table = WordTable(9, 4, moves=True, zeros=(3, 7))
    assert not table.weight[3:7].any()
    assert torch.equal(table.weight[[0, 1, 2, 7, 8]], usual[[0, 1, 2, 7, 8]])
    table.rate.fill_(0.3)
    (table(batch(rows=40)) * torch.randn(40, 4)).sum().backward()
    assert table.weight[3:7].abs().amax(dim=1).min() > 0
