"""Told models against the cells of single methods: ranks with their tests, each group, and where told is behind.

Part of the page of ``benchmarks.told_page``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.metric_defaults import JUDGING
from benchmarks.told_listed import spread
from benchmarks.told_metric import TOLD
from manyhot.comparison.ranks import holm, welch
from manyhot.comparison.settings import CompareSettings
from manyhot.comparison.statistics import ALPHA, PAPER_METRICS, group_of, summarise
from manyhot.comparison.table import markdown_table
from manyhot.metrics.names import parse_metric

RULES = ("tuned", "natural")
EITHER = "either"
SHOWN = ((False, "tuned"), (False, "natural"), (False, EITHER), (True, EITHER))
Cells = list[dict[str, Any]]


class Test(NamedTuple):
    """A test of two methods by their values at the same seeds."""

    name: str
    p: Callable[[np.ndarray, np.ndarray], float]


def resampled(first: np.ndarray, second: np.ndarray, *, test_share: float = CompareSettings().test_size) -> float:
    """The p value of the corrected resampled t-test (Nadeau and Bengio, 2003), for seeds that draw their own test rows.

    Both methods have the same rows at each seed, so differences are tested. Their variance is enlarged by the ratio of test to
    training rows, because the splits overlap.
    """
    gaps = first - second
    spread = float(gaps.var(ddof=1)) * (1 / len(gaps) + test_share / (1 - test_share))
    if spread == 0:
        return 1.0 if gaps.mean() == 0 else 0.0
    return float(2 * stats.t.sf(abs(gaps.mean()) / np.sqrt(spread), len(gaps) - 1))


WELCH, RESAMPLED = Test("Welch", welch), Test("resampled t", resampled)


class Beside(NamedTuple):
    """Told in a group beside its best single method: values in percent, the gap (more is better), p values of a test."""

    group: str
    told: list[float]
    other: list[float]
    name: str
    gap: float
    p: float
    p_holm: float

    @property
    def behind(self) -> bool:
        """Whether told is significantly worse."""
        return self.gap < 0 and self.p_holm < ALPHA

    def p_texts(self) -> tuple[str, str]:
        """Both p values as text; one seed cannot be tested."""
        return ("one seed", "untested") if len(self.told) < 2 else (f"{self.p:.2g}", f"{self.p_holm:.2g}")


def either(cells: Cells) -> Cells:
    """Each rule of a single method as a method of its own."""
    found = []
    for cell in cells:
        for rule in RULES if cell["method"] != TOLD else ("",):
            metrics = cell["metrics"][rule or "tuned"]
            name, title = (f"{cell[key]}, {rule}" if rule else cell[key] for key in ("method", "title"))
            found.append({**cell, "method": name, "title": title, "metrics": dict.fromkeys(RULES, metrics)})
    return found


def beside(kept: Cells, metric: str, test: Test = WELCH) -> list[Beside]:
    """Each group, with the single method and rule that has the best mean."""
    error = parse_metric(metric).info.direction == "down"
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell in sorted(either(kept), key=lambda cell: cell["seed"]):
        name = TOLD if cell["method"] == TOLD else cell["title"]
        if metric in cell["metrics"]["tuned"]:
            samples[group_of(cell)][name].append(100 * cell["metrics"]["tuned"][metric])
    found = []
    for group, own in sorted(samples.items()):
        others = {name: values for name, values in own.items() if name != TOLD}
        if TOLD not in own or not others:
            continue
        best = (min if error else max)(others, key=lambda name: np.mean(others[name]))
        gap = (-1 if error else 1) * float(np.mean(own[TOLD]) - np.mean(others[best]))
        p_values = {name: tested(own[TOLD], values, test) for name, values in others.items()}
        corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
        found.append(Beside(group, own[TOLD], others[best], best, gap, p_values[best], corrected[best]))
    return found


def tested(first: list[float], second: list[float], test: Test) -> float:
    """The p value; 1 where a side has one seed."""
    return test.p(np.asarray(first), np.asarray(second)) if min(len(first), len(second)) > 1 else 1.0


def tests_of(cells: Cells, rule: str) -> dict[str, dict[str, Any]]:
    """The tests of each metric, over the groups in which told was run for it."""
    found = {}
    for metric in PAPER_METRICS:
        groups = {group_of(c) for c in cells if c["method"] == TOLD and metric in c["metrics"]["tuned"]}
        own = [cell for cell in cells if group_of(cell) in groups]
        found[metric] = summarise(own, reference=TOLD)["tests"][rule][metric]
    return found


def verdict(kept: Cells, test: Test = WELCH) -> list[str]:
    """For each metric: the rank, and every group in which told does not have the best mean."""
    lines = [
        "Groups in which a single method has a better mean than told, by how much, and p without and with Holm's correction:",
        "",
    ]
    ranks = tests_of(either(kept), "tuned")
    for metric in PAPER_METRICS:
        found = beside(kept, metric, test)
        lost = sorted((each for each in found if each.gap < -1e-9), key=lambda each: each.gap)
        texts = [
            f"{each.group} {each.gap:+.2f} against {each.name} ({', '.join(each.p_texts())})"
            + (" **behind**" if each.behind else "")
            for each in lost
        ]
        average = ranks[metric]["average_ranks"]
        best = min((name for name in average if name != TOLD), key=lambda name: average[name])
        place = 1 + sum(value < average[TOLD] for value in average.values())
        lines.append(
            f"- **{metric}**: average rank {average[TOLD]:.2f}, place {place} of {len(average)} (best other: {best},"
            f" {average[best]:.2f}); significantly worse in {sum(each.behind for each in found)} of {len(found)} groups, with a"
            f" lower mean in {len(lost)}: {'; '.join(texts) or 'none'}."
        )
    return [*lines, "", over_all_pairs(kept, test)]


def over_all_pairs(kept: Cells, test: Test = WELCH) -> str:
    """How often told is ahead and behind if all pairs of group and metric are one family of tests."""
    pairs = [each for metric in PAPER_METRICS for each in beside(kept, metric, test)]
    corrected = holm([each.p_holm for each in pairs])
    ahead, behind = (
        sum(p < ALPHA and side * each.gap > 0 for p, each in zip(corrected, pairs, strict=True)) for side in (1, -1)
    )
    return (
        f"All {len(pairs)} pairs of group and metric as one family of tests (Holm's correction over the pairs too, since of"
        f" {len(pairs)} tests at 5 % some fail by chance): told is significantly ahead of the best single method in {ahead},"
        f" behind in {behind}."
    )


def overview(kept: Cells) -> list[str]:
    """Average ranks with the tests, for all groups and for those that chose nothing."""
    lines = []
    for judging, rule in SHOWN:
        own = [cell for cell in kept if not judging or cell["data"] in JUDGING]
        if not own:
            continue
        found = summarise(own := either(own) if rule == EITHER else own, reference=TOLD)
        tests = tests_of(own, "tuned" if rule == EITHER else rule)
        title = "groups that chose nothing" if judging else "all groups"
        which = "either rule, each by itself" if rule == EITHER else f"their {rule} rule"
        lines += [f"**{title.capitalize()}, the others by {which}.** Average rank, 1 is best:", ""]
        rows = [
            [
                TOLD if name == TOLD else found["titles"][name],
                *(_number(tests[m]["average_ranks"].get(name)) for m in PAPER_METRICS),
            ]
            for name in found["methods"]
        ]
        lines += [markdown_table([f"{len(found['groups'])} groups", *PAPER_METRICS], rows), ""]
        lines += [_sentence(metric, tests[metric], found["titles"]) for metric in PAPER_METRICS] + [""]
    return lines


def _sentence(metric: str, test: dict[str, Any], titles: dict[str, str]) -> str:
    average, names = test["average_ranks"], {"behind": [], "ahead of": []}
    for name, each in test["wilcoxon"].items():
        if each["p_holm"] < ALPHA:
            names["ahead of" if each["median_difference"] > 0 else "behind"].append(titles[name])
    others = [titles[name] for name in average if name != TOLD]
    ahead, behind = (_listed(names[side], others) for side in ("ahead of", "behind"))
    tests = ""
    if test["friedman"]:
        difference = test["nemenyi"]["critical_difference"]
        level = [titles[name] for name in average if name != TOLD and abs(average[name] - average[TOLD]) <= difference]
        tests = f"; Friedman p {test['friedman']['p']:.2g}, critical difference {difference:.2f}: level with"
        tests += f" {_listed(level, others)} (Nemenyi)"
    return (
        f"- {metric}: best mean in {test['best_in'].get(TOLD, 0)} of {test['groups']}; ahead of {ahead},"
        f" behind {behind} (Wilcoxon, Holm){tests}."
    )


def _listed(names: list[str], others: list[str]) -> str:
    """Names of methods, or those that are not among them if these are fewer."""
    missing = [name for name in others if name not in names]
    if names and len(missing) < len(names):
        return "all but " + "; ".join(missing) if missing else "all"
    return "; ".join(names) or "none"


def by_group(kept: Cells, metric: str, test: Test = WELCH) -> list[str]:
    """Told, the best single method by either rule, and the test between them."""
    rows, found = [], beside(kept, metric, test)
    for each in found:
        chose = "" if each.group.split("/")[0] in JUDGING else " (chose)"
        mark = "**behind**" if each.behind else "ahead" if each.gap > 0 and each.p_holm < ALPHA else ""
        values = [_seeds(each.told), _seeds(each.other), each.name, f"{each.gap:+.2f}", *each.p_texts()]
        rows.append([each.group + chose, *values, mark])
    behind, ahead = sum(each.behind for each in found), sum(each.gap > 0 for each in found)
    untested = sum(each.gap <= 0 and len(each.told) < 2 for each in found)
    head = ["group", "told", "best single method", "which", "gap", f"p ({test.name})", "p (Holm)", ""]
    level = len(found) - ahead - behind - untested
    told = f"Best mean in {ahead}, not significantly worse in {level}, significantly worse in {behind} groups"
    told += f", lower with one seed in {untested}." if untested else "."
    return [told, "", markdown_table(head, rows)]


def _seeds(values: list[float]) -> str:
    return spread(values) + ("" if len(values) == 5 else f" ({len(values)})")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
