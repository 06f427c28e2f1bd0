"""Tests over several data sets (Demsar, 2006): average ranks, Friedman, Nemenyi, Wilcoxon with Holm's correction."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from manyhot._checks import check_unit

Array = np.ndarray[Any, Any]


def rank_table(values: Array, *, error: bool = False) -> Array:
    """Ranks ``[G, M]`` of ``values [G, M]`` in each row, 1 for the best; ties share the mean of their ranks.

    Args:
        values: one row per group, one column per method.
        error: whether smaller is better.

    Example:
        >>> rank_table(np.array([[0.5, 0.9, 0.5]])).tolist()
        [[2.5, 1.0, 2.5]]
    """
    from scipy.stats import rankdata

    ranked: Array = rankdata(values if error else -values, axis=1)
    return ranked


def friedman(ranks: Array) -> dict[str, float]:
    """Friedman's test that all methods are equal, from ranks ``[G, M]``, and Iman and Davenport's more powerful form.

    ``chi2 = 12 G / (M (M + 1)) (sum R^2 - M (M + 1)^2 / 4)`` over the average ranks R, divided by the correction for ties;
    ``F = (G - 1) chi2 / (G (M - 1) - chi2)``.

    Example:
        >>> round(friedman(np.array([[1.0, 2, 3], [1, 2, 3], [1, 3, 2]]))["chi2"], 4)
        4.6667
    """
    from scipy.stats import chi2 as chi2_law
    from scipy.stats import f as f_law

    groups, methods = ranks.shape
    mean = ranks.mean(axis=0)
    # Ties get the mean rank, which reduces the variance; the correction restores it.
    spread = float((ranks**2).sum() / groups - methods * (methods + 1) ** 2 / 4)
    between = float((mean**2).sum() - methods * (methods + 1) ** 2 / 4)
    chi2 = groups * (methods - 1) * between / spread if spread > 0 else 0.0
    below = groups * (methods - 1) - chi2
    sharper = (groups - 1) * chi2 / below if below > 1e-12 else math.inf
    return {
        "chi2": chi2,
        "p": float(chi2_law.sf(chi2, methods - 1)),
        "iman_davenport_f": min(sharper, 1e300),
        "iman_davenport_p": float(f_law.sf(sharper, methods - 1, (methods - 1) * (groups - 1))),
    }


def critical_difference(num_methods: int, num_groups: int, *, alpha: float = 0.05) -> float:
    """The critical difference of two average ranks (Nemenyi): ``q sqrt(M (M + 1) / (6 G))``.

    ``q`` is the upper quantile of the studentized range for M methods, divided by the root of 2.

    Example:
        >>> round(critical_difference(4, 14), 2)
        1.25
    """
    check_unit("critical_difference", "alpha", alpha)
    return _range_quantile(num_methods, alpha) / math.sqrt(2) * math.sqrt(num_methods * (num_methods + 1) / (6 * num_groups))


@functools.cache
def _range_quantile(num_methods: int, alpha: float) -> float:
    """Quantile of the studentized range. Cached, because its root search takes longer than all other statistics."""
    from scipy.stats import studentized_range

    return float(studentized_range.isf(alpha, num_methods, np.inf))


def cliques(average_ranks: Mapping[str, float], difference: float) -> list[list[str]]:
    """The maximal groups of methods whose average ranks differ by at most ``difference``, best first.

    Example:
        >>> cliques({"a": 1.0, "b": 1.8, "c": 2.5}, 1.0)
        [['a', 'b'], ['b', 'c']]
    """
    order = sorted(average_ranks, key=lambda name: average_ranks[name])
    found: list[list[str]] = []
    last_end = 0
    for start, first in enumerate(order):
        end = start + 1
        while end < len(order) and average_ranks[order[end]] - average_ranks[first] <= difference:
            end += 1
        if end - start > 1 and end > last_end:
            found.append(order[start:end])
        last_end = max(last_end, end)
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: adjusted p values that can all be compared with one significance level.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    corrected, highest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - place) * float(p_values[index])))
        corrected[int(index)] = highest
    return corrected


def signed_ranks(differences: Array) -> float:
    """The p value of Wilcoxon's signed-rank test that differences ``[G]`` are symmetric around zero; 1 if all are zero.

    Zeros are split evenly between both signs, as Demsar recommends.

    Example:
        >>> signed_ranks(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
        0.03125
    """
    from scipy.stats import wilcoxon

    if not np.any(differences):
        return 1.0
    return float(wilcoxon(differences, zero_method="zsplit").pvalue)


def welch(first: Array, second: Array) -> float:
    """The p value of Welch's test that two samples have the same mean. Without variance: 1 if the means are equal, otherwise 0.

    Example:
        >>> welch(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
        1.0
    """
    from scipy.stats import ttest_ind_from_stats

    if min(len(first), len(second)) < 2:
        return 1.0
    deviations = [float(np.std(each, ddof=1)) for each in (first, second)]
    means = [float(np.mean(each)) for each in (first, second)]
    if max(deviations) < 1e-12:
        return 1.0 if abs(means[0] - means[1]) < 1e-12 else 0.0
    found = ttest_ind_from_stats(means[0], deviations[0], len(first), means[1], deviations[1], len(second), equal_var=False)
    return float(found.pvalue)
