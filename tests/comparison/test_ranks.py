"""Tests over data sets, against Demsar's published example and scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from manyhot.comparison.ranks import cliques, critical_difference, friedman, holm, rank_table, signed_ranks, welch

# Demsar (2006), table 6: AUC of C4.5 with and without its two options on 14 data sets.
DEMSAR = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ]
)


def test_average_ranks_are_those_demsar_prints():
    np.testing.assert_allclose(rank_table(DEMSAR).mean(axis=0), [3.143, 2.000, 2.893, 1.964], atol=5e-4)


def test_friedman_is_what_demsar_prints_but_for_ties_which_are_corrected():
    found = friedman(rank_table(DEMSAR))
    # The paper's 9.28 and 3.69 leave the correction for ties out; scipy's test has it too.
    np.testing.assert_allclose(found["chi2"], stats.friedmanchisquare(*DEMSAR.T).statistic)
    np.testing.assert_allclose(found["p"], stats.friedmanchisquare(*DEMSAR.T).pvalue)
    assert found["chi2"] > 9.28
    assert found["iman_davenport_p"] < 0.05


def test_without_ties_friedman_and_its_sharper_form_follow_the_textbook():
    draw = np.random.default_rng(0)
    values = draw.random((10, 5))
    ranks = rank_table(values)
    groups, methods = ranks.shape
    chi2 = 12 * groups / (methods * (methods + 1)) * ((ranks.mean(axis=0) ** 2).sum() - methods * (methods + 1) ** 2 / 4)
    found = friedman(ranks)
    np.testing.assert_allclose(found["chi2"], chi2)
    np.testing.assert_allclose(found["iman_davenport_f"], (groups - 1) * chi2 / (groups * (methods - 1) - chi2))


@pytest.mark.parametrize(("methods", "groups", "alpha", "wanted"), [(4, 14, 0.05, 1.25), (4, 14, 0.10, 1.12)])
def test_critical_difference_is_what_demsar_prints(methods, groups, alpha, wanted):
    assert critical_difference(methods, groups, alpha=alpha) == pytest.approx(wanted, abs=0.005)


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_quantiles_are_those_of_the_published_table(methods, q):
    groups = methods * (methods + 1) / 6
    assert critical_difference(methods, groups) == pytest.approx(q, abs=0.001)


def test_wilcoxon_tells_demsars_pair_apart():
    # C4.5 against C4.5+m: the paper's statistic is z = -2.46, two-sided p = 0.014 by the normal law.
    assert signed_ranks(DEMSAR[:, 1] - DEMSAR[:, 0]) < 0.05


def test_wilcoxon_of_nothing_but_ties_is_one():
    assert signed_ranks(np.zeros(5)) == 1.0


def test_smaller_is_better_turns_ranks_around():
    values = np.array([[0.1, 0.2, 0.3]])
    assert rank_table(values, error=True).tolist() == [[1, 2, 3]]
    assert rank_table(values).tolist() == [[3, 2, 1]]


def test_all_methods_alike_are_not_told_apart():
    assert friedman(rank_table(np.ones((6, 3))))["p"] == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(values):
    corrected = holm(values)
    assert all(0 <= before <= after <= 1 for before, after in zip(values, corrected, strict=True))
    order = np.argsort(values, kind="stable")
    assert (np.diff(np.asarray(corrected)[order]) >= 0).all()


def test_cliques_are_the_longest_runs_and_leave_singles_out():
    ranks = {"a": 1.0, "b": 1.5, "c": 2.2, "d": 5.0}
    assert cliques(ranks, 0.8) == [["a", "b"], ["b", "c"]]
    assert cliques(ranks, 0.1) == []
    assert cliques(ranks, 9.0) == [["a", "b", "c", "d"]]


def test_welch_is_scipys_and_has_an_answer_without_spread():
    first, second = np.array([0.1, 0.2, 0.4]), np.array([0.5, 0.7, 0.6])
    assert welch(first, second) == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue)
    assert welch(np.array([0.5, 0.5]), np.array([0.6, 0.6])) == 0.0
    assert welch(np.array([0.5]), np.array([0.6])) == 1.0
