"""The page of metrics: every metric of the catalog is in its table, with its direction and a function that exists."""

import re
from pathlib import Path

import pytest

import manyhot.metrics
from manyhot.metrics import METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| .+ \| (up|down) \| `(\w+)(.*)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_has_a_row_with_its_direction(name):
    rows = [direction for names, direction, *_ in ROWS if name in names.split(", ")]
    assert rows == [METRICS[name].direction], f"docs/metrics.md has no row of {name}, or one with another direction"


def test_every_function_in_the_table_is_public():
    for names, _, function, rest in ROWS:
        assert rest == "=" or hasattr(manyhot.metrics, function), names
