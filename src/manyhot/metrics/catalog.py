"""The catalog of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from manyhot.metrics.info import MetricInfo
from manyhot.metrics.score_entries import SCORE_METRICS
from manyhot.metrics.set_entries import SET_METRICS

_BY_NAME = {entry.name: entry for entry in (*SET_METRICS, *SCORE_METRICS)}
METRICS: Mapping[str, MetricInfo] = MappingProxyType(_BY_NAME)
