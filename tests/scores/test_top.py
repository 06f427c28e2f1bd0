"""The best scores of each row: form, rows, errors."""

import pytest
import torch

from manyhot.scores.top import TopScores


def test_the_best_of_dense_scores_come_first():
    scores = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0))
    top = TopScores.from_dense(scores, k=4)
    assert top.shape == (6, 7)
    assert top.k == 4
    assert torch.equal(top.values, scores.reshape(6, 7).gather(1, top.indices))
    assert torch.equal(top.values, top.values.sort(dim=1, descending=True).values)
    assert TopScores.from_dense(scores, k=100).k == 7


def test_rows_can_be_picked_and_moved():
    top = TopScores.from_dense(torch.arange(12.0).reshape(3, 4), k=2)
    assert top[1:].indices.tolist() == [[3, 2], [3, 2]]
    assert top[torch.tensor([True, False, False])].values.tolist() == [[3.0, 2.0]]
    assert len(top.to("cpu")) == 3
    assert top.device == torch.device("cpu")


def test_a_wrong_form_is_refused():
    with pytest.raises(TypeError, match="`values` must be a floating-point tensor"):
        TopScores(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.int64), 5)
    with pytest.raises(ValueError, match=r"`values` must be \[R, K\]"):
        TopScores(torch.zeros(2), torch.zeros(2, dtype=torch.int64), 5)
    with pytest.raises(ValueError, match=r"`indices` must be int64 \[1, 2\]"):
        TopScores(torch.zeros(1, 2), torch.zeros(1, 3, dtype=torch.int64), 5)
