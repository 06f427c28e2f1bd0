"""Statistics over the cells of a comparison: means, ranks, tests, wins, and correlations with properties of the data."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from manyhot.comparison.measure import AT_K
from manyhot.comparison.ranks import cliques, critical_difference, friedman, holm, rank_table, signed_ranks, welch
from manyhot.metrics.names import parse_metric

RULES = ("natural", "tuned")
PAPER_METRICS = ("SubACC", "MLC-F1", "micro-F1", "macro-F1", "AvgPrec", "RankLoss")
MEASURED = (*PAPER_METRICS, *AT_K, "ECE")
FACTS = ("num_labels", "imbalance", "cardinality")
COSTS = ("seconds", "epoch_seconds", "parameters", "outputs", "peak_bytes", "state_bytes", "predict_seconds")
ALPHA = 0.05

Cell = Mapping[str, Any]
Samples = dict[str, dict[str, "np.ndarray[Any, Any]"]]


def summarise(cells: Iterable[Cell], *, reference: str = "zlpr", order: Sequence[str] = ()) -> dict[str, Any]:
    """All statistics of a comparison, as JSON; docs/compare.md explains each part.

    Args:
        cells: finished cells, in any order; those with an ``"error"`` count as missing.
        reference: the method that the others are compared with; the first method if it was not run.
        order: the order of methods in tables; others follow.

    Example:
        >>> cell = {"data": "a", "model": "linear", "seed": 0, "family": "x", "title": "Z", "facts": {"num_labels": 2}}
        >>> cell |= {"metrics": {"natural": {"SubACC": 0.5}, "tuned": {"SubACC": 0.6}}, "cost": {"seconds": 1.0}}
        >>> found = summarise([{**cell, "method": "zlpr"}, {**cell, "method": "bce"}])
        >>> found["ranks"]["natural"]["SubACC"]
        {'a/linear': {'zlpr': 1.5, 'bce': 1.5}}
    """
    done = [cell for cell in cells if "metrics" in cell]
    names = dict.fromkeys(cell["method"] for cell in done)
    methods = [*(name for name in dict.fromkeys(order) if name in names), *(name for name in names if name not in order)]
    groups = sorted({group_of(cell) for cell in done})
    reference = reference if reference in methods or not methods else methods[0]
    found: dict[str, Any] = {
        "version": 1,
        "groups": groups,
        "methods": methods,
        "reference": reference,
        "titles": {cell["method"]: cell["title"] for cell in done},
        "families": {cell["method"]: cell["family"] for cell in done},
        "seeds": sorted({cell["seed"] for cell in done}),
        "metrics": {name: {"error": parse_metric(name).info.direction == "down"} for name in MEASURED},
        "facts": {group: _means([cell["facts"] for cell in done if group_of(cell) == group]) for group in groups},
        "values": {},
        "ranks": {},
        "tests": {},
        "effects": {},
        "costs": _costs(done),
    }
    for rule in RULES:
        for part in ("values", "ranks", "tests", "effects"):
            found[part][rule] = {}
        for metric in MEASURED:
            samples = _samples(done, rule, metric)
            error = parse_metric(metric).info.direction == "down"
            found["values"][rule][metric] = {
                group: {name: _spread(values) for name, values in row.items()} for group, row in samples.items()
            }
            found["ranks"][rule][metric] = _ranks(samples, error)
            found["tests"][rule][metric] = _tests(samples, methods, reference, error) if samples else None
            found["effects"][rule][metric] = _effects(samples, found["facts"], methods, reference, error)
    return found


def group_of(cell: Cell) -> str:
    """``data/model``, the unit of ranks and tests."""
    return f"{cell['data']}/{cell['model']}"


def _samples(cells: Sequence[Cell], rule: str, metric: str) -> Samples:
    """The values over seeds by group and method."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell in sorted(cells, key=lambda each: (group_of(each), each["seed"])):
        value = cell["metrics"][rule].get(metric)
        if value is not None:
            found[group_of(cell)][cell["method"]].append(float(value))
    return {group: {name: np.asarray(values) for name, values in row.items()} for group, row in found.items()}


def _spread(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": deviation, "n": len(values)}


def _ranks(samples: Samples, error: bool) -> dict[str, dict[str, float]]:
    found = {}
    for group, row in samples.items():
        ranked = rank_table(np.asarray([[values.mean() for values in row.values()]]), error=error)[0]
        found[group] = dict(zip(row, ranked.tolist(), strict=True))
    return found


def _tests(samples: Samples, methods: Sequence[str], reference: str, error: bool) -> dict[str, Any]:
    """All tests of one metric, over the methods that have a value in every group."""
    complete = [name for name in methods if all(name in row for row in samples.values())]
    means = np.asarray([[row[name].mean() for name in complete] for row in samples.values()]).reshape(len(samples), -1)
    ranks = rank_table(means, error=error) if complete else means
    average = dict(zip(complete, ranks.mean(axis=0).tolist(), strict=True))
    found: dict[str, Any] = {
        "groups": len(samples),
        "methods": complete,
        "average_ranks": average,
        "friedman": None,
        "nemenyi": None,
        "reference": reference,
        "wilcoxon": {},
        "best_in": _best_in(samples, complete, error),
        "significant_best": {group: _not_worse(row, error) for group, row in samples.items()},
    }
    if len(samples) > 1 and len(complete) > 2:
        difference = critical_difference(len(complete), len(samples), alpha=ALPHA)
        found["friedman"] = friedman(ranks)
        found["nemenyi"] = {"alpha": ALPHA, "critical_difference": difference, "cliques": cliques(average, difference)}
    others = [name for name in complete if name != reference] if reference in complete else []
    sign = -1.0 if error else 1.0
    if len(samples) > 1:
        own = means[:, complete.index(reference)] if others else None
        gaps = {name: sign * (own - means[:, complete.index(name)]) for name in others}
        p_values = [signed_ranks(gap) for gap in gaps.values()]
        for (name, gap), p, corrected in zip(gaps.items(), p_values, holm(p_values), strict=True):
            found["wilcoxon"][name] = {"p": p, "p_holm": corrected, "median_difference": float(np.median(gap))}
    found["win_tie_loss"] = {name: _wins(samples, reference, name, sign, proven=True) for name in others}
    found["plain_wins"] = {name: _wins(samples, reference, name, sign, proven=False) for name in others}
    return found


def _wins(samples: Samples, reference: str, other: str, sign: float, *, proven: bool) -> list[int]:
    """Groups won, tied and lost by the reference; with ``proven`` a difference counts only if it is significant at 0.05."""
    counts = [0, 0, 0]
    for row in samples.values():
        gap = sign * (row[reference].mean() - row[other].mean())
        apart = welch(row[reference], row[other]) < ALPHA if proven else abs(gap) > 1e-12
        counts[1 if not apart else 0 if gap > 0 else 2] += 1
    return counts


def _best_in(samples: Samples, methods: Sequence[str], error: bool) -> dict[str, int]:
    counts = dict.fromkeys(methods, 0)
    for row in samples.values():
        ranked = {name: (1 if error else -1) * row[name].mean() for name in methods}
        best, worst = min(ranked.values(), default=0.0), max(ranked.values(), default=0.0)
        for name, value in ranked.items():
            # If all methods are equal, for example because none predicts a row correctly, none is best.
            counts[name] += int(value <= best + 1e-12 < worst)
    return counts


def _not_worse(row: Mapping[str, Any], error: bool) -> list[str]:
    """The methods of a group that are not significantly worse than its best one over seeds (Welch, Holm), best first."""
    order = sorted(row, key=lambda name: (1 if error else -1) * row[name].mean())
    corrected = holm([welch(row[order[0]], row[name]) for name in order[1:]])
    return [order[0], *(name for name, p in zip(order[1:], corrected, strict=True) if p >= ALPHA)]


def _effects(
    samples: Samples, facts: Mapping[str, Mapping[str, float]], methods: Sequence[str], reference: str, error: bool
) -> dict[str, dict[str, dict[str, float]]]:
    """Spearman's correlation, over groups, of the reference's lead over each other method with properties of the data."""
    from scipy.stats import spearmanr

    found: dict[str, dict[str, dict[str, float]]] = {}
    for other in methods:
        both = [group for group, row in samples.items() if other != reference and {other, reference} <= set(row)]
        if len(both) < 4:
            continue
        lead = [(-1 if error else 1) * (samples[g][reference].mean() - samples[g][other].mean()) for g in both]
        for fact in FACTS:
            size = [facts[group].get(fact, math.nan) for group in both]
            if len(set(lead)) < 2 or len(set(size)) < 2 or not np.all(np.isfinite(size)):
                continue
            result = spearmanr(lead, size)
            found.setdefault(other, {})[fact] = {"rho": float(result.statistic), "p": float(result.pvalue)}
    return found


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: float(np.mean([row[name] for row in rows if name in row])) for name in names}


def _costs(cells: Sequence[Cell]) -> dict[str, dict[str, dict[str, float]]]:
    kept: dict[str, dict[str, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        cost = cell.get("cost", {})
        kept[group_of(cell)][cell["method"]].append({name: cost[name] for name in COSTS if cost.get(name) is not None})
    return {group: {name: _means(rows) for name, rows in row.items()} for group, row in sorted(kept.items())}
