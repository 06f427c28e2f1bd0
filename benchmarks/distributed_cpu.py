"""Label shards over gloo: bytes on the wire and seconds on 1, 2 and 4 processes, beside the formulas of docs/scale.md.

    unshare -n sh -c 'ip link set lo up && python -m benchmarks.distributed_cpu'

In a network namespace of its own the counters of the loopback device are those of these processes alone; without one the
ratio is too large. Bytes that a step gives to collectives are counted where torch dispatches them, exactly. Seconds are
medians over many steps. Strong scaling: as many labels in all. Weak scaling: as many labels for each process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import socket
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from manyhot import LinearScores, SparseLabels, zlpr_loss

ROWS, SIZE, LABELS, STEPS = 256, 128, 16384, 100


class Counted(TorchDispatchMode):
    """Counts the bytes that this process gives to gathers and to sums."""

    def __init__(self) -> None:
        super().__init__()
        self.gathered = self.summed = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at operators of torch.distributed alone."""
        name = str(func)
        if name.startswith("c10d.") and "gather" in name:
            self.gathered += sum(each.nbytes for each in pytree.tree_leaves(args[1]) if isinstance(each, torch.Tensor))
        elif name.startswith("c10d.allreduce"):
            self.summed += sum(each.nbytes for each in pytree.tree_leaves(args[0]) if isinstance(each, torch.Tensor))
        return func(*args, **(kwargs or {}))

    def sent(self, count: int) -> int:
        """Bytes that all processes send: a gather goes to every other one, a ring sum passes round twice, less one part."""
        return count * (count - 1) * self.gathered + 2 * (count - 1) * self.summed


def wire_bytes(rows: int, size: int, count: int) -> float:
    """Bytes that all processes send in a step: the gather of 16 bytes a row, and the sum of the gradient of hidden."""
    gather = (count - 1) * count * 16 * rows
    return gather + 2 * (count - 1) * 4 * rows * size


def loopback() -> int:
    """Bytes that the loopback device has sent."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    return 0


def work(rank: int, count: int, port: int, labels: int, queue: Any) -> None:
    """Steps of one process; the first one tells bytes and seconds of a step."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=count)
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(ROWS, SIZE, generator=draw, requires_grad=True)
    weight = torch.randn(labels // count, SIZE, generator=draw, requires_grad=True)
    lists = [torch.randint(labels, (1,), generator=draw).tolist() for _ in range(ROWS)]
    truth = SparseLabels.from_lists(lists, num_labels=labels)
    place = {"group": dist.group.WORLD, "offset": rank * (labels // count), "num_labels": labels}

    def step() -> None:
        hidden.grad = weight.grad = None
        zlpr_loss(LinearScores(hidden, weight, **place), truth).backward()

    def alone() -> None:
        dist.all_reduce(torch.zeros(ROWS, SIZE))
        parts = [torch.zeros(4, ROWS) for _ in range(count)]
        dist.all_gather(parts, torch.zeros(4, ROWS))

    # Sums happen on the thread of backward, which is this one on a CPU.
    with Counted() as counted:
        step()
    told: list[float] = [counted.sent(count)]
    for one in (step, alone):
        for _ in range(5):
            one()
        dist.barrier()
        before, took = loopback(), []
        for _ in range(STEPS):
            began = time.perf_counter()
            one()
            took.append(time.perf_counter() - began)
        dist.barrier()
        told += [(loopback() - before) / STEPS, statistics.median(took)]
    if rank == 0:
        queue.put(told)
    dist.destroy_process_group()


def measure(count: int, labels: int) -> list[float]:
    """``[bytes counted, bytes of a step on the wire, seconds, bytes of its collectives alone, seconds]``."""
    context = multiprocessing.get_context("spawn")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    queue = context.Queue()
    started = [context.Process(target=work, args=(rank, count, port, labels, queue)) for rank in range(count)]
    for process in started:
        process.start()
    told: list[float] = queue.get(timeout=300)
    for process in started:
        process.join()
    return told


def main() -> None:
    """Measure and print a table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores, {ROWS} rows, hidden size {SIZE}")
    print(
        "| scaling | processes | labels | by formula | counted | on the wire | wire/formula | step ms | /1 | collectives ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    first = 0.0
    for scaling in ("strong", "weak"):
        for count in (1, 2, 4):
            labels = LABELS if scaling == "strong" else LABELS * count
            counted, found, seconds, _, bare = measure(count, labels)
            first = seconds if count == 1 else first
            wanted = wire_bytes(ROWS, SIZE, count)
            ratio = f"{found / wanted:.3f}" if wanted else "-"
            line = f"| {scaling} | {count} | {labels:,} | {wanted:,.0f} | {counted:,.0f} | {found:,.0f} | {ratio} |"
            print(f"{line} {seconds * 1000:.1f} | {seconds / first:.2f} | {bare * 1000:.2f} |", flush=True)
            assert counted == wanted


if __name__ == "__main__":
    main()
