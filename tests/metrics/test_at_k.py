"""Metrics at k: against scikit-learn, against every way of breaking ties, and from lists of the best."""

import itertools
import math

import pytest
import sklearn.metrics as reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhot import SparseLabels
from manyhot.metrics import at_k
from manyhot.scores.top import TopScores
from metrics.problems import masked_problems, problems, random_problem


@given(problems(), st.integers(1, 9))
def test_ndcg_equals_scikit_learn_with_ties(problem, k):
    scores, labels = problem
    expected = reference.ndcg_score(labels.numpy(), scores.numpy(), k=k)
    assert at_k.ndcg_at_k(scores, labels, k=k).item() == pytest.approx(expected, rel=1e-6, abs=1e-9)


@settings(max_examples=30)
@given(problems(max_labels=5), st.integers(1, 5))
def test_ties_count_as_the_mean_over_all_ways_to_break_them(problem, k):
    scores, labels = problem
    for row in range(len(scores)):
        s, t = scores[row].tolist(), labels[row].tolist()
        orders = [o for o in itertools.permutations(range(len(s))) if all(s[a] >= s[b] for a, b in itertools.pairwise(o))]
        hits = sum(sum(t[i] for i in order[:k]) for order in orders) / len(orders)
        part = slice(row, row + 1)
        assert at_k.precision_at_k(scores[part], labels[part], k=k).item() == pytest.approx(hits / k)
        recall = hits / sum(t) if sum(t) else 0.0
        assert at_k.recall_at_k(scores[part], labels[part], k=k).item() == pytest.approx(recall)


def psp_by_hand(scores, labels, propensities, k):
    hits = best = 0.0
    for s, t in zip(scores.tolist(), labels.tolist(), strict=True):
        order = sorted(range(len(s)), key=lambda i: -s[i])[:k]
        hits += sum(t[i] / propensities[i] for i in order)
        best += sum(sorted((t[i] / propensities[i] for i in range(len(s))), reverse=True)[:k])
    return hits / best


@pytest.mark.parametrize("k", [1, 3, 5])
def test_propensity_scored_precision_is_the_ratio_of_hits_to_the_best_possible(k):
    scores, labels = random_problem(25, 12, 4)
    propensities = at_k.label_propensities(torch.arange(1, 13) * 3, 400)
    expected = psp_by_hand(scores, labels, propensities.tolist(), k)
    assert at_k.propensity_precision_at_k(scores, labels, propensities, k=k).item() == pytest.approx(expected)
    even = torch.ones(12)
    plain = at_k.propensity_precision_at_k(scores, labels, even, k=k, normalize=False)
    assert plain.item() == pytest.approx(at_k.precision_at_k(scores, labels, k=k).item())


def test_propensities_follow_the_published_formula():
    counts, rows, a, b = torch.tensor([0, 7, 300]), 1000, 0.6, 2.6
    c = (math.log(rows) - 1) * (b + 1) ** a
    expected = [1 / (1 + c * math.exp(-a * math.log(n + b))) for n in counts.tolist()]
    assert at_k.label_propensities(counts, rows, a=a, b=b).tolist() == pytest.approx(expected)


FUNCTIONS = [at_k.precision_at_k, at_k.recall_at_k, at_k.ndcg_at_k]


@given(problems(), st.integers(1, 4))
def test_a_whole_list_of_best_scores_gives_what_dense_scores_give(problem, k):
    scores, labels = problem
    top = TopScores.from_dense(scores, k=scores.shape[1])
    truth = SparseLabels.from_dense(labels)
    for function in FUNCTIONS:
        dense = function(scores, labels, k=k, reduction="none")
        assert function(top, truth, k=k, reduction="none").tolist() == pytest.approx(dense.tolist())
    propensities = torch.linspace(0.1, 1.0, scores.shape[1])
    dense = at_k.propensity_precision_at_k(scores, labels, propensities, k=k).item()
    assert at_k.propensity_precision_at_k(top, truth, propensities, k=k).item() == pytest.approx(dense)


def test_a_short_list_is_enough_without_ties():
    scores, labels = random_problem(30, 50, 4)
    top = TopScores.from_dense(scores, k=5)
    for function in FUNCTIONS:
        assert function(top, labels, k=5).item() == pytest.approx(function(scores, labels, k=5).item())


@given(masked_problems(), st.integers(1, 4))
def test_an_entry_left_out_is_as_if_it_were_not_there(problem, k):
    scores, labels, where = problem
    spoiled = scores.masked_fill(~where, float("nan"))
    top = TopScores.from_dense(scores, k=scores.shape[1])
    for function in FUNCTIONS:
        whole = function(spoiled, labels, k=k, where=where, reduction="none")
        lists = function(top, labels, k=k, where=where, reduction="none")
        for row in range(len(scores)):
            kept = where[row]
            alone = function(scores[row : row + 1, kept], labels[row : row + 1, kept], k=k).item()
            assert whole[row].item() == pytest.approx(alone), function.__name__
            assert lists[row].item() == pytest.approx(alone), function.__name__


def test_empty_places_of_a_list_are_no_hits():
    top = TopScores(torch.tensor([[1.0, 0.5], [2.0, 0.0]]), torch.tensor([[3, -1], [-1, -1]]), 4)
    labels = SparseLabels.from_lists([[3], [0, 3]], num_labels=4)
    assert at_k.precision_at_k(top, labels, k=2, reduction="none").tolist() == [0.5, 0.0]


def test_rows_without_labels_count_zero_and_k_may_exceed_the_labels():
    scores, labels = torch.tensor([[0.1, 0.2], [0.3, 0.1]]), torch.tensor([[0, 0], [1, 1]])
    for function in FUNCTIONS:
        assert function(scores, labels, k=1, reduction="none")[0] == 0
    assert at_k.precision_at_k(scores, labels, k=4, reduction="none").tolist() == [0, 0.5]
    assert at_k.recall_at_k(scores, labels, k=4, reduction="none").tolist() == [0, 1]


def test_a_list_shorter_than_k_is_refused():
    top = TopScores.from_dense(torch.randn(2, 9), k=3)
    with pytest.raises(ValueError, match="must list at least k = 5 labels per row"):
        at_k.precision_at_k(top, torch.zeros(2, 9), k=5)


@pytest.mark.parametrize("k", [0, -1, 2.5, True])
def test_k_is_a_whole_number(k):
    with pytest.raises((ValueError, TypeError), match="`k` must be"):
        at_k.precision_at_k(torch.zeros(1, 3), torch.zeros(1, 3), k=k)


def test_a_million_labels_from_lists_make_nothing_dense():
    labels = 1_000_000
    generator = torch.Generator().manual_seed(0)
    indices = torch.randint(labels, (64, 5), generator=generator).sort(dim=1).values + torch.arange(5)
    truth = SparseLabels(indices.flatten().clamp(max=labels - 1), torch.arange(0, 321, 5), labels, validate=False)
    top = TopScores(torch.randn(64, 5, generator=generator).sort(dim=1, descending=True).values, indices.flip(1), labels)
    assert at_k.precision_at_k(top, truth, k=5) == 1
    assert at_k.ndcg_at_k(top, truth, k=5).item() == pytest.approx(1)


def test_nan_in_a_list_names_the_row():
    top = TopScores(torch.tensor([[1.0, 0.5], [float("nan"), 0.0]]), torch.tensor([[3, 1], [0, 1]]), 4)
    with pytest.raises(ValueError, match="got one in row 1"):
        at_k.precision_at_k(top, torch.zeros(2, 4), k=1)
