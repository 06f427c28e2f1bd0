"""Label shards on CUDA: over NCCL alone, and two processes that share the GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

from training.run.process_runs import free_port

WORKER = Path(__file__).with_name("gpu_shards.py")


def started(backend, count, folder):
    """The ends of ``count`` processes over one group: exit codes and what they said."""
    port = str(free_port())
    lines = [[sys.executable, str(WORKER), backend, str(rank), str(count), port, str(folder)] for rank in range(count)]
    workers = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for line in lines]
    told = [worker.communicate(timeout=240)[0] for worker in workers]
    return [worker.returncode for worker in workers], told


@pytest.mark.slow(100)
@pytest.mark.gpu
def test_one_process_over_nccl_gives_what_no_group_gives(tmp_path):
    codes, told = started("nccl", 1, tmp_path)
    assert codes == [0], told[0][-3000:]


@pytest.mark.slow(100)
@pytest.mark.gpu
def test_two_processes_that_share_the_gpu_give_what_one_gives(tmp_path):
    """NCCL refuses two processes on one GPU ("Duplicate GPU", 2.28.9); gloo then carries what they exchange."""
    codes, told = started("nccl", 2, tmp_path / "nccl")
    if codes != [0, 0]:
        assert any("Duplicate GPU" in each or "invalid usage" in each for each in told), told[0][-3000:]
        codes, told = started("gloo", 2, tmp_path / "gloo")
    assert codes == [0, 0], told[0][-3000:]
