"""Label shards over gloo: bytes on the wire and seconds on 1, 2 and 4 processes, beside the formulas of docs/scale.md.

    unshare -n sh -c 'ip link set lo up && python -m benchmarks.distributed_cpu --loss zlpr'

In a network namespace of its own the counters of the loopback device are those of these processes alone; without one the
ratio is too large. Bytes that a step gives to collectives are counted where torch dispatches them, exactly. Times are medians
over many steps: of the clock, and of the CPU time of a process, which other jobs on the same cores change less. Strong scaling:
as many labels in all. Weak scaling: as many labels for each process.
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

from manyhot import LinearScores, SparseLabels, decoupled_softmax_loss, zlpr_loss

ROWS, SIZE, LABELS, STEPS = 256, 128, 16384, 100
# Loss, and the float32 sums a row of each of its gathers.
LOSSES: dict[str, tuple[Any, tuple[int, ...]]] = {"zlpr": (zlpr_loss, (4,)), "decoupled": (decoupled_softmax_loss, (2, 3))}


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


def wire_bytes(loss: str, rows: int, size: int, count: int) -> float:
    """Bytes that all processes send in a step: the sums of a row that are gathered, and the sum of the gradient of hidden."""
    gather = (count - 1) * count * 4 * sum(LOSSES[loss][1]) * rows
    return gather + 2 * (count - 1) * 4 * rows * size


def loopback() -> int:
    """Bytes that the loopback device has sent."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    return 0


def work(rank: int, count: int, port: int, labels: int, name: str, queue: Any) -> None:
    """Steps of one process; the first one tells bytes and seconds of a step."""
    loss, sums = LOSSES[name]
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
        loss(LinearScores(hidden, weight, **place), truth).backward()

    def alone() -> None:
        dist.all_reduce(torch.zeros(ROWS, SIZE))
        for size in sums:
            dist.all_gather([torch.zeros(size, ROWS) for _ in range(count)], torch.zeros(size, ROWS))

    # Sums happen on the thread of backward, which is this one on a CPU.
    with Counted() as counted:
        step()
    told: list[float] = [counted.sent(count)]
    for one in (step, alone):
        for _ in range(5):
            one()
        dist.barrier()
        before, took, used = loopback(), [], []
        for _ in range(STEPS):
            began, spent = time.perf_counter(), time.process_time()
            one()
            took.append(time.perf_counter() - began)
            used.append(time.process_time() - spent)
        dist.barrier()
        told += [(loopback() - before) / STEPS, statistics.median(took), statistics.median(used)]
    if rank == 0:
        queue.put(told)
    dist.destroy_process_group()


def measure(count: int, labels: int, loss: str) -> list[float]:
    """``[bytes counted, of a step: bytes on the wire, seconds, CPU seconds; of its collectives alone: the same three]``."""
    context = multiprocessing.get_context("spawn")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    queue = context.Queue()
    started = [context.Process(target=work, args=(rank, count, port, labels, loss, queue)) for rank in range(count)]
    for process in started:
        process.start()
    told: list[float] = queue.get(timeout=300)
    for process in started:
        process.join()
    return told


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", choices=list(LOSSES), default="zlpr")
    loss = parser.parse_args().loss
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores, {ROWS} rows, hidden size {SIZE}, {loss}")
    titles = (
        "scaling",
        "processes",
        "labels",
        "by formula",
        "counted",
        "on the wire",
        "wire/formula",
        "step ms",
        "ratio to one",
    )
    print(f"| {' | '.join((*titles, 'CPU ms a process', 'ratio to one', 'collectives alone ms'))} |")
    print("|" + "---|" * 12)
    first = [0.0, 0.0]
    for scaling in ("strong", "weak"):
        for count in (1, 2, 4):
            labels = LABELS if scaling == "strong" else LABELS * count
            counted, found, seconds, used, _, bare, _ = measure(count, labels, loss)
            first = [seconds, used] if count == 1 else first
            wanted = wire_bytes(loss, ROWS, SIZE, count)
            ratio = f"{found / wanted:.3f}" if wanted else "-"
            line = f"| {scaling} | {count} | {labels:,} | {wanted:,.0f} | {counted:,.0f} | {found:,.0f} | {ratio} |"
            took = f"{seconds * 1000:.1f} | {seconds / first[0]:.2f} | {used * 1000:.1f} | {used / first[1]:.2f}"
            print(f"{line} {took} | {bare * 1000:.2f} |", flush=True)
            assert counted == wanted


if __name__ == "__main__":
    main()
