"""The wide body: word vectors and a head that move inside backward, as plain steps would move them."""

import pytest
import torch

from manyhot.labels.sparse import SparseLabels
from manyhot.losses.zlpr import zlpr_loss
from manyhot.training.rows.bodies.wide import TABLE_RATE, WideBody, WordTable, finished
from manyhot.training.rows.inputs.row_batches import SparseRows


def batch(rows=5, width=9, seed=0, kind=torch.int32):
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 5, (rows,), generator=draw)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    size = int(offsets[-1])
    columns = torch.randint(0, width, (size,), generator=draw)
    return SparseRows(columns.to(kind), offsets.to(kind), torch.rand(size, generator=draw) + 0.1)


def dense(rows, width):
    found = torch.zeros(len(rows.offsets) - 1, width, dtype=torch.float64)
    for row in range(len(found)):
        for place in range(rows.offsets[row], rows.offsets[row + 1]):
            found[row, rows.columns[place]] += rows.values[place].double()
    return found


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_word_vectors_move_by_row_wise_adagrad(kind):
    torch.manual_seed(0)
    table = WordTable(9, 4, moves=True)
    weight, squares = table.weight.detach().double().clone(), torch.zeros(9, dtype=torch.float64)
    table.rate.fill_(0.3)
    for seed in range(6):
        rows = batch(seed=seed, kind=kind)
        pull = torch.randn(5, 4)
        hidden = table(rows)
        torch.testing.assert_close(hidden.detach().double(), dense(rows, 9) @ weight, rtol=1e-5, atol=1e-6)
        (hidden * pull).sum().backward()
        change = dense(rows, 9).T @ pull.double()
        squares += change.square().mean(dim=1)
        moved = change.abs().sum(dim=1) > 0
        weight[moved] -= 0.3 * change[moved] / squares[moved].sqrt()[:, None]
        torch.testing.assert_close(table.weight.detach().double(), weight, rtol=1e-5, atol=1e-6)
    assert table.weight.grad is None


def test_a_batch_without_a_word_moves_nothing():
    table = WordTable(3, 2, moves=True)
    before = table.weight.detach().clone()
    table.rate.fill_(1.0)
    table(SparseRows(torch.zeros(0, dtype=torch.int32), torch.zeros(3, dtype=torch.int32), torch.zeros(0))).sum().backward()
    assert torch.equal(table.weight.detach(), before)


def test_without_gradients_nothing_moves():
    body = WideBody(9, 20, hidden=4, head="float32", dropout=0.0, moves=True)
    body.set_rate(0.5)
    with torch.no_grad():
        scores = body(batch()).dense()
    assert scores.shape == (5, 20)
    assert body.first.rate == pytest.approx(0.5 * TABLE_RATE)


def test_training_lowers_the_loss():
    torch.manual_seed(0)
    body = WideBody(9, 20, hidden=8, head="float32", dropout=0.0, moves=True)
    rows, labels = batch(seed=3), SparseLabels.from_lists([[0], [1, 2], [3], [], [19]], num_labels=20)
    losses = []
    for _ in range(60):
        body.set_rate(0.1)
        loss = zlpr_loss(body(rows), labels)
        loss.backward()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.4 * losses[0]


def test_the_finished_body_has_the_mean_scores_and_no_state_of_training():
    torch.manual_seed(0)
    bodies = [WideBody(9, 20, hidden=4, head="bfloat16", dropout=0.5, moves=True) for _ in range(2)]
    joined, rows = finished(bodies), batch()
    with torch.no_grad():
        parts = [each.first(rows) @ each.head.weight.float().T + each.head.bias for each in bodies]
        torch.testing.assert_close(joined(rows).dense(), sum(parts) / 2, rtol=1e-5, atol=1e-5)
    assert joined.head.weight.dtype == torch.float32
    assert not [name for name in joined.state_dict() if "squares" in name]
    assert joined.factors().bias.shape == (20,)
