"""Names of metrics, such as ``P@5``, and their entries in the catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass

from manyhot._suggest import nearest
from manyhot.metrics.catalog import METRICS
from manyhot.metrics.info import MetricInfo


@dataclass(frozen=True)
class MetricName:
    """A parsed name: the entry of the catalog, and the number in the name if it has one."""

    text: str
    info: MetricInfo
    k: int = 0

    @property
    def kind(self) -> str:
        """The name of the entry."""
        return self.info.name


def parse_metric(name: str) -> MetricName:
    """Parse the name of a metric.

    Example:
        >>> parse_metric("nDCG@5").kind, parse_metric("nDCG@5").k
        ('nDCG@k', 5)
        >>> parse_metric("subacc")
        Traceback (most recent call last):
            ...
        ValueError: parse_metric: `name` must be the name of a metric; got 'subacc'. Did you mean 'SubACC'?
    """
    return read_metric("parse_metric", "name", name)


def read_metric(who: str, argument: str, name: str) -> MetricName:
    """``parse_metric`` with error messages that name the argument of the calling function."""
    if not isinstance(name, str):
        raise TypeError(f"{who}: `{argument}` must be a str; got {type(name).__name__}.")
    if name in METRICS and not name.endswith("@k"):
        return MetricName(name, METRICS[name])
    at = re.fullmatch(r"(.+)@([1-9][0-9]*)", name, re.ASCII)
    if at and f"{at[1]}@k" in METRICS:
        return MetricName(name, METRICS[f"{at[1]}@k"], int(at[2]))
    raise ValueError(f"{who}: `{argument}` must be the name of a metric; got {name!r}.{_hint(name)}")


def _hint(name: str) -> str:
    """The nearest name, ignoring case; a metric at k keeps the given number, or gets 5."""
    number = re.search(r"@(\d+)$", name)
    k = str(int(number[1]) or 5) if number else "5"
    spelled = {entry.lower().replace("@k", f"@{k}"): entry.replace("@k", f"@{k}") for entry in METRICS}
    if name.lower() in spelled:
        return f" Did you mean {spelled[name.lower()]!r}?"
    close = nearest(name.lower(), spelled)
    for lower, right in spelled.items():
        if repr(lower) in close:
            return f" Did you mean {right!r}?"
    return f" There are {', '.join(METRICS)}."
