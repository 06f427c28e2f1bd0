"""Metrics of order against scikit-learn, by every way the ranks are counted."""

import numpy as np
import pytest
import sklearn.metrics as reference
import torch
import torchmetrics.functional.classification as other
from hypothesis import given

from manyhot import LinearScores, SparseLabels
from manyhot.metrics import ranking
from manyhot.scores.top import TopScores
from metrics.problems import masked_problems, problems, random_problem

# scikit-learn gets float64: beside SciPy 1.18 it adds up AvgPrec in the type of the scores.
PAIRS = [
    (ranking.ranking_average_precision_score, reference.label_ranking_average_precision_score),
    (ranking.ranking_error, reference.label_ranking_loss),
    (ranking.coverage_error, reference.coverage_error),
]


def pick_way(monkeypatch, way):
    monkeypatch.setattr(ranking, "SORT_FROM", {"comparison": 1e9, "sorting": -1}[way])


@pytest.mark.parametrize("way", ["comparison", "sorting"])
@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda function: getattr(function, "__name__", ""))
def test_equal_to_scikit_learn_with_ties_empty_and_full_rows(ours, theirs, way, monkeypatch):
    pick_way(monkeypatch, way)

    @given(problems())
    def check(problem):
        scores, labels = problem
        assert ours(scores, labels).item() == pytest.approx(theirs(labels.numpy(), scores.double().numpy()), rel=1e-6, abs=1e-9)

    check()


def test_equal_to_torchmetrics_without_ties():
    scores, labels = random_problem(30, 8)
    probs, truth = scores.sigmoid(), labels.long()
    assert ranking.ranking_average_precision_score(scores, labels).item() == pytest.approx(
        other.multilabel_ranking_average_precision(probs, truth, 8).item(), rel=1e-5
    )
    assert ranking.ranking_error(scores, labels).item() == pytest.approx(
        other.multilabel_ranking_loss(probs, truth, 8).item(), rel=1e-5
    )
    assert ranking.coverage_error(scores, labels).item() == pytest.approx(
        other.multilabel_coverage_error(probs, truth, 8).item(), rel=1e-5
    )


@given(problems())
def test_both_ways_of_counting_give_the_same_ranks(problem):
    scores, labels = problem
    block = next(ranking.checked_blocks("test", ranking.arrange("test", scores, labels)))
    compared = ranking._ranks_by_comparison(block, scores, True)
    ordered = ranking._ranks_by_sorting(block, scores)
    for name in ("rows", "above", "rank", "found"):
        assert torch.equal(getattr(compared, name), getattr(ordered, name)), name


@pytest.mark.parametrize("way", ["comparison", "sorting"])
def test_an_entry_left_out_is_as_if_it_were_not_there(way, monkeypatch):
    pick_way(monkeypatch, way)

    @given(masked_problems())
    def check(problem):
        scores, labels, where = problem
        spoiled = scores.masked_fill(~where, float("nan"))
        for ours in (*(ours for ours, _ in PAIRS), ranking.one_error):
            whole = ours(spoiled, labels, where=where, reduction="none")
            for row in range(len(scores)):
                kept = where[row]
                alone = ours(scores[row : row + 1, kept], labels[row : row + 1, kept])
                assert whole[row].item() == pytest.approx(alone.item()), ours.__name__

    check()


@pytest.mark.parametrize("way", ["comparison", "sorting"])
def test_infinite_scores_are_scores(way, monkeypatch):
    pick_way(monkeypatch, way)
    inf = float("inf")
    scores = torch.tensor([[inf, -inf, 0.0, -inf]])
    labels = torch.tensor([[1, 1, 0, 0]])
    # Ranks at the worst: 1 and 4.
    assert ranking.ranking_average_precision_score(scores, labels).item() == pytest.approx((1 + 2 / 4) / 2)
    assert ranking.ranking_error(scores, labels).item() == pytest.approx(2 / 4)
    where = torch.tensor([[True, True, True, False]])
    assert ranking.coverage_error(scores, labels, where=where) == 3


def test_rows_without_and_rows_with_all_labels():
    scores = torch.tensor([[0.3, 0.1], [0.2, 0.2]])
    labels = torch.tensor([[0, 0], [1, 1]])
    assert ranking.ranking_average_precision_score(scores, labels, reduction="none").tolist() == [1, 1]
    assert ranking.ranking_error(scores, labels, reduction="none").tolist() == [0, 0]
    assert ranking.coverage_error(scores, labels, reduction="none").tolist() == [0, 2]
    assert ranking.one_error(scores, labels, reduction="none").tolist() == [1, 0]


def test_one_label_no_labels_and_no_rows():
    scores, labels = torch.tensor([[0.3], [-0.1]]), torch.tensor([[1], [0]])
    assert ranking.ranking_average_precision_score(scores, labels) == 1
    assert ranking.ranking_error(scores, labels) == 0
    assert ranking.ranking_average_precision_score(torch.zeros(2, 0), torch.zeros(2, 0)) == 1
    assert ranking.ranking_error(torch.zeros(0, 3), torch.zeros(0, 3)).isnan()


def test_ties_at_the_top_share_the_first_place():
    scores = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    assert ranking.one_error(scores, torch.tensor([[1, 0, 0, 0]])).item() == pytest.approx(2 / 3)
    assert ranking.one_error(scores, torch.tensor([[1, 1, 0, 0]])).item() == pytest.approx(1 / 3)


def test_nan_is_an_error_that_names_the_row(monkeypatch):
    scores, labels = random_problem(20, 5)
    scores[13, 2] = float("nan")
    scores[14, 0] = float("inf")
    scores[14, 1] = -float("inf")
    for size in (1 << 20, 15):
        monkeypatch.setattr("manyhot.metrics.blocks.block_elements", lambda _, size=size: size)
        with pytest.raises(ValueError, match=r"ranking_error: `scores` must not be NaN; got one in row 13\."):
            ranking.ranking_error(scores, labels)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_half_types_count_as_the_numbers_they_hold(dtype):
    scores, labels = random_problem(15, 40, dtype=dtype)
    for ours, _ in PAIRS:
        assert ours(scores, labels).item() == ours(scores.double(), labels).item()


def test_double_scores_are_not_rounded():
    scores = torch.tensor([[1.0, 1.0 + 1e-12]], dtype=torch.float64)
    assert ranking.ranking_error(scores, torch.tensor([[0, 1]])) == 0


@pytest.mark.parametrize("elements", [8, 64, 1 << 20])
@pytest.mark.parametrize("positives", [1, 20])
def test_blocks_strides_and_lists_make_no_difference(elements, positives, monkeypatch):
    scores, labels = random_problem(37, 24, positives)
    pick_way(monkeypatch, "comparison")
    expected = reference.label_ranking_average_precision_score(labels.numpy(), scores.double().numpy())
    for module in ("blocks", "ranking"):
        monkeypatch.setattr(f"manyhot.metrics.{module}.block_elements", lambda _: elements)
    for given_scores in (scores, scores.t().contiguous().t()):
        for truth in (labels, labels.t().contiguous().t(), SparseLabels.from_dense(labels)):
            ours = ranking.ranking_average_precision_score(given_scores, truth)
            assert ours.item() == pytest.approx(expected, rel=1e-12)


def test_lazy_scores_of_a_linear_head_are_ranked_by_blocks(monkeypatch):
    generator = torch.Generator().manual_seed(1)
    lazy = LinearScores(torch.randn(9, 4, generator=generator), torch.randn(30, 4, generator=generator))
    labels = torch.rand(9, 30, generator=generator) < 0.2
    expected = ranking.ranking_error(lazy.dense(), labels)
    monkeypatch.setattr("manyhot.metrics.blocks.block_elements", lambda _: 64)
    assert ranking.ranking_error(lazy, labels).item() == pytest.approx(expected.item())


def test_gradients_are_neither_needed_nor_kept():
    scores, labels = random_problem(5, 4)
    value = ranking.ranking_error(scores.requires_grad_(), labels)
    assert not value.requires_grad


def test_the_head_of_a_ranking_is_not_enough_for_average_precision():
    top = TopScores.from_dense(torch.randn(2, 5), k=3)
    with pytest.raises(TypeError, match="must be given for all labels"):
        ranking.ranking_average_precision_score(top, torch.zeros(2, 5))


def test_swapped_arguments_are_noticed():
    scores, labels = random_problem(5, 4)
    with pytest.raises(TypeError, match="are the arguments swapped"):
        ranking.ranking_error(labels, scores)
    with pytest.raises(ValueError, match="are the arguments swapped"):
        ranking.ranking_error(labels.float(), scores)


def test_many_labels_are_counted_exactly():
    # More than 2^24 labels would not fit a float32 sum of ones.
    labels = SparseLabels.from_lists([[0]], num_labels=(1 << 24) + 3)
    scores = torch.zeros(1, (1 << 24) + 3)
    assert ranking.coverage_error(scores, labels) == (1 << 24) + 3
    assert np.isclose(ranking.one_error(scores, labels).item(), 1.0)
