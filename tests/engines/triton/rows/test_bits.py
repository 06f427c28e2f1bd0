"""Bits of listed labels, some neighbours to an integer: in the interpreter everywhere, on the device where there is one."""

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import SparseLabels

INTERPRETED = """
import sys
sys.path.insert(0, sys.argv[1])
from engines.triton.rows.test_bits import check_near
check_near("cpu")
print("checked")
"""


def check_near(device):
    """All ways to divide rows of up to 128 labels, also those whose threads have two words each."""
    from engines.triton.rows.bits_kernel import near_kernel

    generator = torch.Generator().manual_seed(0)
    for block, parts, per in ((64, 2, 4), (32, 2, 4), (128, 1, 4), (128, 1, 2), (32, 1, 2), (64, 1, 4), (16, 1, 4)):
        dense = torch.rand(32, block * parts, generator=generator) < 0.15
        dense[3], dense[4] = True, False
        lists = SparseLabels.from_dense(dense)
        out = torch.full((32, block * parts // per), -1, dtype=torch.int32, device=device)
        near_kernel[(1,)](out, lists.offsets.to(device), lists.indices.to(device), 32, 32, block, parts, per)
        wanted = (dense.view(32, -1, per).int() << torch.arange(per)).sum(-1)
        assert torch.equal(out.cpu().long(), wanted), (block, parts, per)


@pytest.mark.slow
def test_neighbours_are_in_one_integer_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.gpu
def test_neighbours_are_in_one_integer_on_the_device():
    check_near("cuda")
