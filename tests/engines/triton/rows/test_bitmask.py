"""Index lists as bits: in the interpreter everywhere, on the device where there is one."""

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import SparseLabels
from manyhot.engines.triton.bitmask import to_bitmask

INTERPRETED = """
import sys
sys.path.insert(0, sys.argv[1])
from engines.triton.rows.test_bitmask import check_bits
from manyhot.engines.triton.rows import bitmask
for bitmask.WORDS_PER_PROGRAM in (4096, 8, 1):
    check_bits("cpu", ((1, 1), (3, 21), (70, 33), (33, 100)))
print("checked")
"""


def check_bits(device, shapes, padding=777):
    """One bit per score, in the order of the scores, and 0 from the last one on."""
    generator = torch.Generator().manual_seed(0)
    for shape in shapes:
        for share in (0.0, 0.02, 0.5, 1.0):
            dense = torch.rand(shape, generator=generator) < share
            lists = SparseLabels.from_dense(dense)
            offsets, indices = lists.offsets.to(device), lists.indices.to(device)
            torch.full((dense.numel(),), -1, dtype=torch.int32, device=device)  # what is freed here may be taken for the bits
            words = to_bitmask(torch.empty(shape, device=device), offsets, indices, dense.numel() + padding)
            bits = ((words.cpu()[:, None] >> torch.arange(32)) & 1).flatten()
            assert torch.equal(bits[: dense.numel()].bool(), dense.flatten()), (shape, share)
            assert not bits[dense.numel() :].any()
            assert len(bits) >= dense.numel() + padding


@pytest.mark.slow
def test_lists_become_bits_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.gpu
def test_lists_become_bits_on_the_device():
    check_bits("cuda", ((1, 1), (3, 21), (1000, 128), (70, 4271), (33, 20_001), (3, 131_072)))


@pytest.mark.gpu
def test_entries_out_of_range_set_no_bit():
    offsets, indices = torch.tensor([0, 3, 4], device="cuda"), torch.tensor([-1, 2, 70, 64], device="cuda")
    words = to_bitmask(torch.empty(2, 70, device="cuda"), offsets, indices, 140)
    bits = ((words.cpu()[:, None] >> torch.arange(32)) & 1).flatten()
    assert bits.nonzero().flatten().tolist() == [2, 70 + 64]
