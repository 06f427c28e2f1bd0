"""The best scores and the best candidate of each label: in the interpreter everywhere, on the device where there is one."""

import itertools

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot.engines.triton import columns

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.rows.test_columns import check_columns
from manyhot.engines.triton import columns
columns.TILE, columns.LISTED_ROWS, columns.LISTED_LABELS, columns.LABELS, columns.BLOCK = 64, 4, 8, 4, 4
columns.FEW_FROM, columns.FEW_LABELS = 9, 8
check_columns("cpu", [(5, 7), (9, 20), (1, 1)])
print("checked")
"""


def check_columns(device, shapes):
    """The best of each label are those of a sort, and one candidate of each label is chosen as one after the other would be."""
    draw = torch.Generator().manual_seed(0)
    for few, (rows, num_labels) in itertools.product((0.0, 0.8, 1.0), shapes):
        scores = torch.randint(-6, 7, (rows, num_labels), generator=draw) / 4
        scores[0, ::3], scores[-1, ::4] = torch.inf, -torch.inf
        wanted = torch.randint(1, rows + 1, (num_labels,), generator=draw)
        wanted = torch.where(torch.rand(num_labels, generator=draw) < few, wanted.clamp(max=columns.FEW), wanted)
        found = columns.ColumnBest(*(part.cpu() for part in columns.column_best(scores.to(device), wanted.to(device))))
        assert torch.equal(found.offsets.diff(), wanted + 1)
        size = len(found.scores)
        value, clear, cut = (torch.randint(0, 5, (size,), generator=draw).double() / 4 for _ in range(3))
        moved = [part.to(device) for part in (value, clear, cut, found.offsets)]
        chosen = columns.segment_choice(*moved, 0.3).tolist()
        for label, (start, stop) in enumerate(zip(found.offsets.tolist()[:-1], found.offsets.tolist()[1:], strict=True)):
            own, places = found.scores[start + 1 : stop], found.rows[start + 1 : stop]
            assert (float(found.scores[start]), int(found.rows[start])) == (torch.inf, -1)
            assert bool((found.label[start:stop] == label).all())
            assert torch.equal(own, scores[:, label].sort(descending=True).values[: len(own)])
            assert torch.equal(scores[places, label], own)
            assert len(places.unique()) == len(places)
            near = [place for place in range(start, stop) if value[place] >= 0.7 * value[start:stop].max()]
            assert chosen[label] == min(near, key=lambda place: (-clear[place], -value[place], -cut[place], place))


@pytest.mark.slow
def test_the_best_of_each_label_are_those_of_a_sort_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.gpu
@pytest.mark.parametrize("few_from", [0, 100_000])
def test_the_best_of_each_label_are_those_of_a_sort_on_the_device(few_from, monkeypatch):
    monkeypatch.setattr(columns, "FEW_FROM", few_from)
    check_columns("cuda", [(5, 7), (1, 1), (300, 40), (1024, 33), (1500, 20)])


def test_scores_that_no_kernel_sorts_are_declined():
    assert columns.column_best(torch.zeros(2, 3), torch.ones(3).long()) is None
