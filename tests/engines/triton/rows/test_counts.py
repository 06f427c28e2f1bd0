"""Counts by label and by row: in the interpreter everywhere, on the device where there is one."""

import itertools

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import SparseLabels
from manyhot.engines.triton import counts

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.rows.test_counts import check_counts
from manyhot.engines.triton import counts
counts.TILES, counts.DENSE, counts.PROGRAMS = dict.fromkeys(counts.TILES, (16, 4, 4)), 16, 4
check_counts("cpu", [(5, 7), (13, 40), (1, 1)], [torch.float32])
print("checked")
"""


def problem(rows, num_labels, dtype):
    """Scores with ties with the cut, infinities and NaN, labels, and what counts."""
    draw = torch.Generator().manual_seed(num_labels)
    scores = (torch.randint(-6, 7, (rows, num_labels), generator=draw) / 4).to(dtype)
    scores[0, ::3], scores[-1, ::4], scores[rows // 2, num_labels // 2] = torch.inf, -torch.inf, torch.nan
    truth = torch.rand(rows, num_labels, generator=draw) < min(0.3, 40 / num_labels)
    return scores, truth, torch.rand(rows, num_labels, generator=draw) < 0.7


def first(flags):
    """The number of rows minus the first row with a True entry; 0 if there is none."""
    rows = flags.any(dim=1).nonzero()
    return len(flags) - int(rows[0]) if len(rows) else 0


def check_counts(device, shapes, dtypes):
    """Counts are those of torch's comparisons, with one cut and one per label, all kinds of labels, ``where``."""
    for (rows, num_labels), dtype in itertools.product(shapes, dtypes):
        scores, truth, mask = problem(rows, num_labels, dtype)
        lists = SparseLabels.from_dense(truth).to(device)
        cuts = torch.linspace(-1, 1, num_labels)
        labels = [{"truth": truth.to(device)}, {"truth": truth.long().to(device)}, {"lists": (lists.rows, lists.indices)}]
        for cut, where, given in itertools.product((0.25, cuts), (None, mask), labels):
            counted = torch.ones_like(truth) if where is None else where
            above, positive = (scores.float() > cut) & counted, truth & counted
            moved = {"where": None if where is None else where.to(device)}
            found = counts.count_above(scores.to(device), cut if cut is not cuts else cuts.to(device), **given, **moved)
            for axis, got in ((0, found.by_label), (1, found.by_row)):
                wanted = torch.stack([(above & positive).sum(axis), above.sum(axis), positive.sum(axis)])
                assert torch.equal(got.cpu().long(), wanted), (rows, num_labels, axis)
            assert found.late.tolist() == [first(scores.isnan() & counted), 0, 0]
        soft = truth.float()
        soft[-1, -1] = 0.5
        assert counts.count_above(scores.to(device), 0.0, truth=soft.to(device)).late.tolist()[1:] == [1, 0]
        equal = counts.count_above(scores.to(device), 0.25, by_row=False, equal=True)
        assert torch.equal(equal.by_label[1].cpu().long(), (scores.float() >= 0.25).sum(0))
        flags = counts.count_above(truth.to(device), 0.0)
        assert torch.equal(flags.by_label[1].cpu().long(), truth.sum(0))
        assert torch.equal(flags.by_row[1].cpu().long(), truth.sum(1))


@pytest.mark.slow
def test_counts_are_those_of_all_comparisons_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_counts_are_those_of_all_comparisons_on_the_device(dtype):
    check_counts("cuda", [(5, 7), (1, 1), (1300, 2048), (3, 100_003), (600, 3001)], [dtype])


def test_scores_that_no_kernel_counts_are_declined():
    assert counts.count_above(torch.zeros(2, 3), 0.0) is None
