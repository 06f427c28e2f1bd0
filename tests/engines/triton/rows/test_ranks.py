"""Ranks of scores: in the interpreter everywhere, on the device where there is one."""

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import Metrics, SparseLabels
from manyhot.engines.triton import ranks

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.rows.test_ranks import check_ranks
from manyhot.engines.triton import ranks
ranks.TILE = 16
check_ranks("cpu", [(5, 7), (3, 40), (1, 16)])
print("checked")
"""


def check_ranks(device, shapes):
    """Counts with ties, infinite and missing scores, and rows that list nothing, against every comparison made by torch."""
    generator = torch.Generator().manual_seed(0)
    for rows, num_labels in shapes:
        x = torch.randint(-4, 4, (rows, num_labels), generator=generator).float()
        x[0, ::3], x[-1, ::4], x[0, 1] = float("inf"), -float("inf"), float("nan")
        flags = torch.rand(rows, num_labels, generator=generator) < min(0.3, 40 / num_labels)
        flags[rows // 2] = False
        flags[0, 1] = True
        lists = SparseLabels.from_dense(flags)
        own = x[lists.rows, lists.indices]
        found = ranks.count_higher(x.to(device), lists.offsets.to(device), own.to(device))
        others = x[lists.rows]
        assert torch.equal(found[0].cpu(), (others >= own[:, None]).sum(1))
        assert torch.equal(found[1].cpu(), (others > own[:, None]).sum(1))


@pytest.mark.slow
def test_ranks_are_those_of_all_comparisons_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.gpu
def test_ranks_are_those_of_all_comparisons_on_the_device():
    check_ranks("cuda", [(5, 7), (300, 8192), (3, 100_003), (2, 1_000_000)])


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("names", [["P@1", "P@5", "nDCG@5"], ["AvgPrec", "RankLoss"], ["micro-F1", "macro-F1", "SubACC"]])
def test_an_epoch_of_metrics_does_not_wait_for_the_device_and_agrees_with_the_cpu(names):
    on_device, on_cpu = Metrics(names, num_labels=5000).to("cuda"), Metrics(names, num_labels=5000)
    batches = []
    for seed in range(3):
        torch.manual_seed(seed)
        flags = torch.rand(64, 5000) < 0.001
        batches.append((torch.randn(64, 5000) + 3 * flags - 2, SparseLabels.from_dense(flags)))
        on_cpu.update(*batches[-1])
    moved = [(scores.to("cuda"), labels.to("cuda")) for scores, labels in batches]
    on_device.update(*moved[0])  # compiles
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        for batch in moved[1:]:
            on_device.update(*batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    wanted = on_cpu.compute()
    for name, value in on_device.compute().items():
        torch.testing.assert_close(torch.as_tensor(value).cpu().double(), torch.as_tensor(wanted[name]).double())
