"""Files of a sharded state for ``torch.distributed.checkpoint``: one safetensors file for each process that writes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from manyhot._files import write_whole
from manyhot.training.run.checkpoint import pack

Entry = dict[str, Any]


class PartWriter(StorageWriter):
    """Writes the part of each process as ``STEM.RANK.safetensors``.

    After a save, ``tensors`` of the first process describes what was written, for an index: the type, the size and the chunks
    of each tensor. A chunk has a file, a name in the file, its offsets and its sizes.

    Args:
        folder: the folder of the files.
        stem: the start of the files' names.
    """

    def __init__(self, folder: Path, stem: str) -> None:
        self.folder, self.stem = folder, stem
        self.tensors: dict[str, Entry] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """There is no state between saves."""

    def set_up_storage_writer(self, is_coordinator: bool, *_: Any, **__: Any) -> None:
        """The folder is there."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Give every process its rank."""
        return [replace(plan, storage_data=rank) for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """One file with all chunks of this process."""
        done: Future[list[WriteResult]] = Future()
        chunks = {str(place): cast(Tensor, planner.resolve_data(item)) for place, item in enumerate(plan.items)}
        file = f"{self.stem}.{plan.storage_data}.safetensors"
        if chunks:
            write_whole(self.folder / file, pack(chunks, {}))
        done.set_result(
            [WriteResult(item.index, 0, {"file": file, "name": str(place)}) for place, item in enumerate(plan.items)]
        )
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Record what was written where."""
        places = {result.index: result.storage_data for part in results for result in part}
        for name, about in metadata.state_dict_metadata.items():
            assert isinstance(about, TensorStorageMetadata)
            chunks = [
                {**places[MetadataIndex(name, chunk.offsets)], "offsets": list(chunk.offsets), "sizes": list(chunk.sizes)}
                for chunk in about.chunks
            ]
            dtype = str(about.properties.dtype).removeprefix("torch.")
            self.tensors[name] = {"dtype": dtype, "size": list(about.size), "chunks": chunks}

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:  # noqa: ARG003 - torch asks with it
        """The folder is given to the writer itself."""
        return False


class PartReader(StorageReader):
    """Reads the files of ``PartWriter``, in any sharding.

    Args:
        folder: where the files are.
        tensors: ``PartWriter.tensors``.
    """

    def __init__(self, folder: Path, tensors: dict[str, Entry]) -> None:
        self.folder, self.tensors = folder, tensors

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """There is no state between loads."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """Sizes, types and chunks of all tensors."""
        return Metadata({name: _described(entry) for name, entry in self.tensors.items()})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *_: Any, **__: Any) -> None:
        """The files are there."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans, unchanged."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy the parts of chunks that this process wants."""
        done: Future[None] = Future()
        for item in plan.items:
            index = item.storage_index
            chunks = self.tensors[index.fqn]["chunks"]
            chunk = next(each for each in chunks if torch.Size(each["offsets"]) == (index.offset or torch.Size()))
            with safe_open(self.folder / chunk["file"], framework="pt") as file:
                if chunk["sizes"]:
                    starts = zip(item.storage_offsets, item.lengths, strict=True)
                    part = file.get_slice(chunk["name"])[tuple(slice(start, start + size) for start, size in starts)]
                else:
                    part = file.get_tensor(chunk["name"])
            target = planner.resolve_tensor(item)
            target.copy_(part)
            planner.commit_tensor(item, target)
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:  # noqa: ARG003 - torch asks with it
        """The folder is given to the reader itself."""
        return False


def _described(entry: Entry) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(each["offsets"]), torch.Size(each["sizes"])) for each in entry["chunks"]]
    return TensorStorageMetadata(TensorProperties(dtype=getattr(torch, entry["dtype"])), torch.Size(entry["size"]), chunks)
