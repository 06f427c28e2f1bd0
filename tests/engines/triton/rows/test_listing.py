"""Scores between two levels: in the interpreter everywhere, on the device where there is one."""

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot.engines.triton import listing

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.rows.test_listing import check_listing
from manyhot.engines.triton import listing
listing.TILE = 16
check_listing("cpu", [(5, 7), (3, 40), (1, 1)], room=6)
print("checked")
"""


def check_listing(device, shapes, room):
    """Every score between the levels is listed once with its place, also if there is too little room at first."""
    kept, listing.ROOM = listing.ROOM, room
    draw = torch.Generator().manual_seed(0)
    for shape in shapes:
        scores = torch.randint(-8, 9, shape, generator=draw) / 4
        scores[0, ::5], scores[-1, ::7] = torch.inf, -torch.inf
        for level, top in ((-9.0, torch.inf), (-0.25, 1.0), (0.0, 0.0), (1.5, torch.inf), (1.5, 1.0), (9.0, torch.inf)):
            for levels in ((level, top), torch.tensor([level, top], device=device)):
                found = listing.list_between(scores.to(device), levels)
                places, order = found.places.cpu().sort()
                inside = (scores.flatten() >= level) & (scores.flatten() <= top)
                assert torch.equal(places, inside.nonzero().flatten())
                assert torch.equal(found.values.cpu()[order], scores.flatten()[places])
                lower = scores[scores < level]
                assert found.below == (float(lower.max()) if len(lower) else -torch.inf)
    listing.ROOM = kept


@pytest.mark.slow
def test_listed_scores_are_those_of_a_comparison_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.gpu
def test_listed_scores_are_those_of_a_comparison_on_the_device():
    check_listing("cuda", [(5, 7), (1, 1), (300, 8192), (3, 100_003)], room=1000)


def test_scores_that_no_kernel_lists_are_declined():
    assert listing.list_between(torch.zeros(2, 3), (0.0, 1.0)) is None
