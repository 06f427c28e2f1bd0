"""Several processes of one run: each takes its part of every batch, gradients are summed, and the first one writes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from manyhot._sparse import sparse_tensor

Array = np.ndarray[Any, Any]


class ProcessesError(ValueError):
    """The processes of a run cannot continue together."""


class Processes:
    """This process among those of the run.

    Args:
        rank: which one it is, from 0.
        count: how many there are.

    Example:
        >>> Processes(rank=1, count=2).own_places(7, 4)[0].tolist()
        [2, 3, 6]
    """

    def __init__(self, *, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count

    @classmethod
    def current(cls) -> Processes:
        """As torch.distributed was initialised; one process if it was not."""
        if not dist.is_available() or not dist.is_initialized():
            return cls()
        return cls(rank=dist.get_rank(), count=dist.get_world_size())

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """The GPU of this process, if training uses GPUs and no particular one was named."""
        if self.count == 1 or str(device) != "cuda":
            return device
        place, there = int(os.environ.get("LOCAL_RANK", self.rank)), torch.cuda.device_count()
        if place >= there:
            raise ProcessesError(f"train: there must be a GPU for each process of a machine; got {there} for process {place}.")
        return torch.device("cuda", place)

    def own_places(self, num_rows: int, size: int) -> tuple[Any, Tensor | None]:
        """``(places among num_rows, weights)`` of the rows that this process takes, batch after batch of ``size`` rows.

        All processes take the same number of batches. If the last batch has fewer rows than there are processes, a process
        without a row takes one with weight 0; otherwise the weights are None.
        """
        if self.count == 1:
            return slice(None), None
        whole = num_rows // size * size
        own = np.arange(whole).reshape(-1, self.count, self.own_size(size))[:, self.rank].ravel()
        last = np.arange(whole, num_rows)
        part = np.array_split(last, self.count)[self.rank]
        if len(part) or not len(last):
            return np.concatenate([own, part]), None
        weights = torch.ones(len(own) + 1)
        weights[-1] = 0
        return np.concatenate([own, last[:1]]), weights

    def part_of(self, batch: Array) -> Array:
        """The rows of one batch that this process takes; possibly none if the batch has fewer rows than there are processes."""
        return batch if self.count == 1 else np.array_split(batch, self.count)[self.rank]

    def own_size(self, size: int) -> int:
        """The number of rows of a full batch that this process takes."""
        if size % self.count:
            raise ProcessesError(
                f"train: `batch_size` must be a multiple of the number of processes, {self.count}; got {size}."
            )
        return size // self.count

    def own_part(self, num_rows: int) -> Array:
        """The rows that this process scores."""
        return np.array_split(np.arange(num_rows), self.count)[self.rank]

    def gathered(self, own: Tensor, num_rows: int) -> Tensor:
        """``[num_rows, ...]`` from the ``own_part`` of each process, on the CPU."""
        if self.count == 1:
            return own
        sizes = [len(part) for part in np.array_split(np.arange(num_rows), self.count)]
        padded = own.new_zeros((max(sizes), *own.shape[1:]))
        padded[: len(own)] = own
        parts = [torch.zeros_like(padded) for _ in sizes]
        with _together():
            dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    def agreed(self, value: float) -> float:
        """The value of the first process."""
        if self.count == 1:
            return value
        told = torch.tensor([value], dtype=torch.float64)
        with _together():
            dist.broadcast(told, 0)
        return float(told)

    def all_of(self, value: bool) -> bool:
        """Whether the value is True on every process."""
        if self.count == 1:
            return value
        told = torch.tensor([float(value)])
        with _together():
            dist.all_reduce(told, dist.ReduceOp.MIN)
        return bool(told)

    def from_first(self, content: bytes | None) -> bytes | None:
        """The bytes of the first process, or None if it has none."""
        size = int(self.agreed(-1 if content is None else len(content)))
        if self.count == 1 or size < 0:
            return content
        told = torch.zeros(size, dtype=torch.uint8)
        if content is not None and self.first:
            told = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        with _together():
            dist.broadcast(told, 0)
        return told.numpy().tobytes()

    def in_turn(self, messages: Iterable[bytes]) -> Iterator[Iterator[bytes]]:
        """The messages of every process, in the order of processes; each iterator must be exhausted before the next is taken.

        One message at a time is held.
        """
        for rank in range(self.count):
            yield self._told_by(rank, iter(messages if rank == self.rank else ()))

    def _told_by(self, rank: int, messages: Iterator[bytes]) -> Iterator[bytes]:
        if self.count == 1:
            yield from messages
            return
        while True:
            message = next(messages, None)
            size = torch.tensor([-1 if message is None else len(message)])
            with _together():
                dist.broadcast(size, rank)
                if int(size) < 0:
                    return
                told = torch.zeros(int(size), dtype=torch.uint8)
                if message:
                    told = torch.frombuffer(bytearray(message), dtype=torch.uint8)
                dist.broadcast(told, rank)
            yield told.numpy().tobytes()

    def check_same(self, what: str, digest: str) -> None:
        """Check that all processes have the same digest."""
        first = self.from_first(digest.encode())
        if first != digest.encode():
            raise ProcessesError(f"train: all processes must have the same {what}; process {self.rank} has another.")

    def same_start(self, module: nn.Module) -> None:
        """Broadcast the weights of the first process."""
        if self.count > 1:
            with torch.no_grad(), _together():
                for each in module.state_dict().values():
                    dist.broadcast(each, 0)

    def seed_step(self, *numbers: int) -> None:
        """Seed torch for a step: random draws differ between processes and do not depend on earlier draws."""
        if self.count > 1:
            torch.manual_seed(int(np.random.SeedSequence([*numbers, self.rank]).generate_state(1)[0]))

    def backward(self, loss: Tensor, weight: float, parameters: Sequence[nn.Parameter]) -> Tensor:
        """Compute gradients of the mean loss over the rows of all processes; returns that loss, on its device.

        Each process passes the mean loss and the weight of its rows; ``sum w loss / sum w`` is the mean that one process with
        all rows would have.
        """
        if self.count == 1:
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()
        (loss * weight).backward()  # type: ignore[no-untyped-call]
        moved = [each for each in parameters if each.grad is not None]
        dense = [each.grad for each in moved if each.grad is not None and not each.grad.is_sparse]
        ends = torch.stack([loss.detach().float() * weight, loss.new_tensor(weight, dtype=torch.float32)])
        flat = torch.cat([*(each.reshape(-1).float() for each in dense), ends])
        with _together():
            dist.all_reduce(flat)
            total = torch.where(flat[-1] == 0, 1.0, flat[-1])
            for each in moved:
                if each.grad is not None and each.grad.is_sparse:
                    each.grad = _sparse_sum(each.grad, self.count) / total
        flat /= total
        for gradient, part in zip(dense, torch.split(flat, [each.numel() for each in dense] + [2])[:-1], strict=True):
            gradient.copy_(part.view_as(gradient))
        return flat[-2]

    def same_buffers(self, module: nn.Module) -> None:
        """Average the running means of all processes."""
        if self.count > 1:
            with _together():
                for buffer in module.buffers():
                    if buffer.is_floating_point():
                        dist.all_reduce(buffer)
                        buffer /= self.count


def _sparse_sum(gradient: Tensor, count: int) -> Tensor:
    """The sum of a row-sparse gradient over all processes."""
    own = gradient.coalesce()
    rows, values = own.indices()[0], own.values()
    sizes = [rows.new_zeros(1) for _ in range(count)]
    dist.all_gather(sizes, rows.new_tensor([len(rows)]))
    most = max(int(size) for size in sizes)
    padded_rows, padded_values = rows.new_zeros(most), values.new_zeros((most, *values.shape[1:]))
    padded_rows[: len(rows)], padded_values[: len(rows)] = rows, values
    all_rows = [torch.zeros_like(padded_rows) for _ in sizes]
    all_values = [torch.zeros_like(padded_values) for _ in sizes]
    dist.all_gather(all_rows, padded_rows)
    dist.all_gather(all_values, padded_values)
    indices = torch.cat([part[: int(size)] for part, size in zip(all_rows, sizes, strict=True)])
    entries = torch.cat([part[: int(size)] for part, size in zip(all_values, sizes, strict=True)])
    return sparse_tensor(indices[None], entries, own.shape, is_coalesced=False).coalesce()


def process_mesh(device_type: str) -> Any:
    """A mesh of one axis over all processes; None if torch.distributed was not initialised."""
    if not dist.is_available() or not dist.is_initialized():
        return None
    from torch.distributed.device_mesh import DeviceMesh

    # init_device_mesh would create another group, over NCCL, if the default group is gloo and there are GPUs.
    with _together():
        return DeviceMesh.from_group(cast(Any, dist.group.WORLD), device_type)


def launched() -> bool:
    """Whether this process was started as one of several, by torchrun or with the same environment variables."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return all(name in os.environ for name in names) and int(os.environ["WORLD_SIZE"]) > 1


@contextlib.contextmanager
def several_processes() -> Iterator[Processes]:
    """Join the processes that torchrun started, for the time of the block; does nothing for a single process.

    Example:
        >>> with several_processes() as processes:
        ...     processes.count
        1
    """
    if not launched() or dist.is_initialized():
        yield Processes.current()
        return
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    with _together():
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    yield Processes.current()
    # Not after an error: the other processes may be gone, and waiting for them would hide the error.
    dist.destroy_process_group()


@contextlib.contextmanager
def _together() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ProcessesError(
            "train: another process of the run ended or cannot be reached; its own message says why. Saved checkpoints are"
            f" complete: start all processes again with --resume. ({why})"
        ) from error
