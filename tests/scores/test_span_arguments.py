"""What span scores refuse, and how they say it."""

import pytest
import torch

from manyhot import zlpr_loss
from manyhot.labels.spans import SpanLabels
from manyhot.scores.spans import SpanScores

LENGTHS = [9, 1, 0]


def make_scores():
    q, k = torch.randn(2, 3, 4, 9, 6, generator=torch.Generator().manual_seed(0))
    return SpanScores(q, k, lengths=LENGTHS)


def make_labels():
    lists = [[(0, 0, 0), (0, 0, 3), (3, 4, 8)], [(2, 0, 0)], []]
    return SpanLabels.from_lists(lists, num_types=4, lengths=LENGTHS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"labels": SpanLabels.from_lists([[]], num_types=4, num_tokens=9)}, "3 rows, 4 types, 9 tokens; got 1 rows"),
        ({"labels": SpanLabels.from_lists([[]] * 3, num_types=4, num_tokens=10)}, "got 3 rows, 4 types, 10 tokens"),
        ({"dim": -2}, r"must be \(-2, -1\) for the positions"),
        ({"dim": (1, 2)}, "Call .dense"),
        ({"dim": (2, 2)}, r"got \[2, 2\]"),
        ({"engine": "native"}, "`engine` must be one of 'auto', 'torch', 'triton'; got 'native'"),
        ({"smoothing": 2.0}, "`smoothing` must be a number in"),
        ({"pos_weight": torch.ones(9)}, r"`pos_weight` must be one value per label, broadcastable to \[4\]; got \[9\]"),
        ({"neg_weight": -1.0}, "`neg_weight` must be >= 0"),
    ],
)
def test_wrong_arguments_are_named(settings, message):
    scores = make_scores()
    with pytest.raises(ValueError, match=message):
        zlpr_loss(scores, **({"labels": make_labels()} | settings))


def test_a_label_on_a_cell_that_does_not_count_is_found_on_request_and_left_out_otherwise():
    scores = make_scores()
    beyond = SpanLabels.from_lists([[(0, 1, 3)], [(2, 0, 5)], []], num_types=4, num_tokens=9)
    with pytest.raises(ValueError, match=r"got \(2, 0, 5\) in row 1, which is beyond"):
        zlpr_loss(scores, beyond, validate=True)
    assert torch.equal(
        zlpr_loss(scores, beyond), zlpr_loss(scores, SpanLabels.from_lists([[(0, 1, 3)], [], []], num_types=4, num_tokens=9))
    )
    assert zlpr_loss(scores, make_labels(), validate=True).isfinite()


@pytest.mark.parametrize(
    ("parts", "settings", "message"),
    [
        ([torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)], {}, "`u` and `v` go with a shared `q`"),
        ([torch.zeros(2, 1, 3, 4)] * 2 + [torch.zeros(2, 1, 3)] * 2, {}, "and only with it"),
        ([torch.zeros(2, 3, 4), torch.zeros(2, 3, 5)], {}, r"got \[2, 3, 4\] and \[2, 3, 5\]"),
        ([torch.zeros(2, 3, 4)] * 2 + [torch.zeros(2, 1, 3), torch.zeros(2, 1, 2)], {}, "`v` must be"),
        ([torch.zeros(2, 1, 3, 4)] * 2, {"method": "factorised"}, "one of 'auto', 'tiles', 'dense'; got 'factorised'"),
        ([torch.zeros(2, 1, 3, 4)] * 2, {"method": "tile"}, "Did you mean 'tiles'"),
        ([torch.zeros(2, 1, 3, 4)] * 2, {"lengths": [1]}, "integers .B., the number of real tokens of each of 2 rows"),
        ([torch.zeros(2, 1, 3, 4)] * 2, {"lengths": torch.ones(2)}, "mask.sum"),
    ],
)
def test_parts_that_do_not_fit_are_named(parts, settings, message):
    with pytest.raises(ValueError, match=message):
        SpanScores(*parts, **settings)
