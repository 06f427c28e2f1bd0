"""Prefix sums in a fixed order: in the interpreter everywhere, on the device where there is one."""

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot.engines.triton import prefix

INTERPRETED = """
import sys
sys.path.insert(0, sys.argv[1])
from engines.triton.rows.test_prefix import check_prefix
from manyhot.engines.triton import prefix
prefix.TILE = 16
check_prefix("cpu", [1, 16, 17, 300, 5000])
print("checked")
"""


def check_prefix(device, sizes):
    """Prefix sums are those of the CPU; whole numbers are exact, and values after a place change nothing before it."""
    draw = torch.Generator().manual_seed(0)
    for size in sizes:
        values = torch.randn(size, generator=draw, dtype=torch.float64)
        found = prefix.prefix_sums(values.to(device))
        torch.testing.assert_close(found.cpu(), values.cumsum(0), rtol=1e-12, atol=1e-11)
        assert torch.equal(prefix.prefix_sums(values[: size // 2 + 1].to(device)), found[: size // 2 + 1])
        assert torch.equal(prefix.prefix_sums(values.to(device)), found)
        whole = (8 * values).round()
        assert torch.equal(prefix.prefix_sums(whole.to(device)).cpu(), whole.cumsum(0))


@pytest.mark.slow
def test_prefix_sums_are_those_of_the_cpu_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.gpu
def test_prefix_sums_are_those_of_the_cpu_on_the_device():
    check_prefix("cuda", [1, 1024, 1025, 3_000_001])


def test_values_that_no_kernel_sums_are_declined():
    assert prefix.prefix_sums(torch.zeros(3, dtype=torch.float64)) is None
    assert prefix.prefix_sums(torch.zeros(3)) is None
