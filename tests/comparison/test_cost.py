"""What a method costs is measured, and told for every method."""

import sys

import pytest
import torch

from comparison.problems import small_plan
from manyhot.comparison.cost import memory_of, seconds_of
from manyhot.comparison.grid import run_grid
from manyhot.comparison.statistics import summarise
from manyhot.comparison.table import comparison_text, cost_rows

CPU = torch.device("cpu")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel tells the resident memory")
def test_the_memory_of_a_step_is_what_it_allocates():
    def step():
        torch.ones(3_000_000).add_(1)

    step()
    assert memory_of(step, CPU) == pytest.approx(12e6, rel=0.1)


def test_seconds_are_those_of_the_fastest_run():
    calls = []
    assert 0 < seconds_of(lambda: calls.append(torch.rand(10)), CPU) < 1
    assert len(calls) > 1


def test_every_method_has_the_time_of_prediction_and_the_peak_of_memory(tmp_path):
    plan = small_plan(tmp_path, losses="zlpr,lsep,powerset,zlpr+mixup", seeds=1)
    found = summarise(run_grid(plan, tmp_path, workers=1))
    for row in cost_rows(found):
        assert all(float(value) > 0 for value in row[1:])
    assert "seconds to predict 1,000 rows" in comparison_text(found)
