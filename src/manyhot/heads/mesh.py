"""The parameters of a head on a device mesh: DTensors, sharded by labels on one axis and replicated on the others."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from manyhot.scores.shards import shard_bounds

LABELS = "labels"
# Initial weights are drawn in blocks of this many labels, so that they do not depend on how the labels are divided.
BLOCK = 4096


class LabelMesh:
    """Which labels of a head this process has.

    Args:
        mesh: a ``torch.distributed.DeviceMesh``. Its axis called ``labels``, otherwise its last one, divides the labels; the
            others are data parallel.
        num_labels: L.
    """

    def __init__(self, mesh: Any, num_labels: int) -> None:
        from torch.distributed.tensor import Replicate, Shard

        names = mesh.mesh_dim_names or ()
        self.mesh, self.num_labels = mesh, num_labels
        self.axis = names.index(LABELS) if LABELS in names else mesh.ndim - 1
        self.placements = [Shard(0) if axis == self.axis else Replicate() for axis in range(mesh.ndim)]
        self.start, self.stop = shard_bounds(num_labels, mesh.size(self.axis), mesh.get_local_rank(self.axis))

    @property
    def replicas(self) -> int:
        """How many processes have the same labels."""
        return int(self.mesh.size()) // int(self.mesh.size(self.axis))

    @property
    def group(self) -> Any:
        """The processes that together have all labels, and therefore need the same rows."""
        return self.mesh.get_group(self.axis)

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        kind = self.mesh.device_type
        return torch.device(kind, torch.cuda.current_device()) if kind == "cuda" else torch.device(kind)

    def distribute(self, own: Tensor) -> Tensor:
        """The DTensor ``[L, ...]`` whose labels ``start`` to ``stop`` are ``own``."""
        from torch.distributed.tensor import DTensor

        shape = torch.Size((self.num_labels, *own.shape[1:]))
        own = own.to(self.device)
        return DTensor.from_local(
            own, self.mesh, self.placements, run_check=False, shape=shape, stride=own.new_empty(shape, device="meta").stride()
        )

    def draw(self, width: int, dtype: torch.dtype) -> Tensor:
        """Normal numbers ``[own labels, width]``, the same for a label however the labels are divided."""
        seed = torch.randint(1 << 62, (1,)).to(self.device)
        dist.broadcast(seed, 0)
        out = torch.empty(self.stop - self.start, width, dtype=dtype)
        for block in range(self.start // BLOCK, -(-self.stop // BLOCK)):
            generator = torch.Generator().manual_seed((int(seed) + block) % (1 << 63))
            drawn = torch.randn(min(BLOCK, self.num_labels - block * BLOCK), width, generator=generator)
            first, last = max(block * BLOCK, self.start), min((block + 1) * BLOCK, self.stop)
            out[first - self.start : last - self.start] = drawn[first - block * BLOCK : last - block * BLOCK]
        return out

    def draw_in_order(self, width: int, dtype: torch.dtype, *, std: float) -> Tensor:
        """This process's rows of ``torch.empty(L, width).normal_(std=std)``, bitwise equal, drawn a block at a time.

        torch draws 16 numbers together, so blocks end at a multiple of 16, and the last block takes the rest. Every process
        draws the numbers of all labels, so that its random state afterwards is the same as without a mesh.
        """
        out = torch.empty(self.stop - self.start, width, dtype=dtype)
        first = 0
        while first < self.num_labels:
            last = first + BLOCK if first + 2 * BLOCK <= self.num_labels else self.num_labels
            drawn = torch.empty(last - first, width, dtype=dtype).normal_(std=std)
            begin, end = max(first, self.start), min(last, self.stop)
            if begin < end:
                out[begin - self.start : end - self.start] = drawn[begin - first : end - first]
            first = last
        return out

    def own(self, values: Tensor) -> Tensor:
        """The rows of ``values [L, ...]`` that belong to this process."""
        return values[self.start : self.stop]

    def collect(self, own: Tensor) -> Tensor | None:
        """Collect ``[L, ...]`` on the CPU of the group's first process from the parts of all processes; None on the others.

        The parts are sent one after the other and in blocks, so that no other process holds more than its own part.
        """
        group, place = self.group, int(self.mesh.get_local_rank(self.axis))
        count, first = int(self.mesh.size(self.axis)), dist.get_global_rank(self.group, 0)
        via = own.device if own.is_cuda and dist.get_backend(group) != "gloo" else torch.device("cpu")
        if place:
            for part in torch.split(own.detach(), BLOCK):
                dist.send(part.to(via).contiguous(), first, group=group)
            return None
        whole = torch.empty(self.num_labels, *own.shape[1:], dtype=own.dtype)
        whole[: len(own)] = own.detach().cpu()
        for other in range(1, count):
            start, stop = shard_bounds(self.num_labels, count, other)
            for part in torch.split(whole[start:stop], BLOCK):
                came = torch.empty_like(part, device=via)
                dist.recv(came, dist.get_global_rank(group, other), group=group)
                part.copy_(came)
        return whole


def local(part: Any) -> Any:
    """The local part of a DTensor; anything else is returned unchanged."""
    return part.to_local() if hasattr(part, "to_local") else part
