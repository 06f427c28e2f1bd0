"""Rows to label next: uncertain, different, each once."""

import pytest
import torch

from manyhot.curation.sampling import choose_rows
from manyhot.decisions.rule import DecisionRule


def test_certain_rows_are_left_out():
    logits = torch.full((100, 3), 8.0)
    logits[10:20, 1] = torch.linspace(0.1, 0.2, 10)
    found = choose_rows(logits, rows=2)
    assert all(10 <= each.row < 20 for each in found)
    assert found[0].labels[0] == 1


def test_uncertainty_is_measured_from_the_rule():
    logits = torch.tensor([[0.0], [2.0], [-3.0]])
    assert choose_rows(logits, rows=1)[0].row == 0
    assert choose_rows(logits, DecisionRule(threshold=2.1), rows=1)[0].row == 1
    assert choose_rows(logits, DecisionRule(threshold=(-3.0,)), rows=1)[0].row == 2
    assert choose_rows(logits, DecisionRule(threshold=(float("inf"),)), rows=3)[0].uncertainty == 0


def test_rows_that_ask_different_questions_are_chosen():
    logits = torch.full((200, 4), -8.0)
    logits[torch.arange(200), torch.arange(200) % 4] = 0.0
    asked = [each.labels[0] for each in choose_rows(logits, rows=4, seed=1)]
    assert len(set(asked)) >= 3


@pytest.mark.parametrize("rows", [1, 7, 30, 100])
def test_each_row_comes_once_and_the_same_seed_gives_the_same(rows):
    logits = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    found = choose_rows(logits, rows=rows)
    assert len({each.row for each in found}) == len(found) == min(rows, 30)
    assert found == choose_rows(logits, rows=rows)


def test_rows_that_repeat_others_come_last():
    logits = torch.zeros(30, 2)
    logits[25:, 0] = torch.arange(1, 6) / 10
    assert {each.row for each in choose_rows(logits, rows=6)} == {0, 25, 26, 27, 28, 29}


def test_rows_that_are_all_alike_are_no_trouble():
    assert [each.row for each in choose_rows(torch.zeros(5, 2), rows=3)] == [0, 1, 2]
    assert choose_rows(torch.zeros(0, 2), rows=3) == []
