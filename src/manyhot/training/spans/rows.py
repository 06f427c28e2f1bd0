"""All windows of a data set, stored on the device, where batches are gathered from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from manyhot.labels.spans import SpanLabels
from manyhot.labels.sparse import SparseLabels
from manyhot.training.spans.inputs import Array, Encoded

# Triton compiles a kernel again if a size is no longer divisible by 16, so on a GPU all sizes are multiples of this.
GPU_STEP = 16
# Larger data sets stay in host memory, and each batch is copied.
DEVICE_BYTES = 2 << 30


@dataclass(frozen=True)
class SpanBatch:
    """A padded batch of windows: ``features [B, T, K]``, ``letters [B, T, W]`` and ``lengths [B]`` on the device,
    ``sizes [B]`` the lengths on the CPU."""

    features: Tensor
    letters: Tensor
    lengths: Tensor
    sizes: Array
    labels: SpanLabels


class StoredRows:
    """Windows stored one after the other, without padding.

    A batch is gathered on the device from data that is already there. A step copies only a few indices, asynchronously.

    Args:
        rows: the windows.
        num_types: H.
        device: the device of the batches.
    """

    def __init__(self, rows: Sequence[Encoded], *, num_types: int, device: torch.device) -> None:
        self.num_types, self.device = num_types, device
        self.lengths = np.array([len(row) for row in rows], dtype=np.int64)
        # Token 0 is padding.
        self.starts = 1 + np.cumsum(self.lengths) - self.lengths
        self.features = _as_table([row.features for row in rows], device)
        self.letters = _as_table([row.letters for row in rows], device)
        self.spans = np.concatenate([row.spans for row in rows]) if rows else np.zeros((0, 3), dtype=np.int64)
        self.span_counts = np.array([len(row.spans) for row in rows], dtype=np.int64)
        self.span_starts = np.cumsum(self.span_counts) - self.span_counts
        self.values = _as_values(rows)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, picked: Array) -> SpanBatch:
        """The windows ``picked [B]`` as one batch, padded with 0."""
        lengths, counts = self.lengths[picked], self.span_counts[picked]
        step = GPU_STEP if self.device.type == "cuda" else 1
        size = -(-int(lengths.max(initial=1)) // step) * step
        places = np.arange(size)
        tokens = np.where(places < lengths[:, None], self.starts[picked][:, None] + places, 0)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        chosen = np.arange(offsets[-1]) + np.repeat(self.span_starts[picked] - offsets[:-1], counts)
        listed = self.spans[chosen]
        cells = (listed[:, 0] * size + listed[:, 1]) * size + listed[:, 2]
        sent = send([tokens.ravel(), cells, offsets, lengths], self.device)
        values = None if self.values is None else torch.from_numpy(self.values[chosen]).to(self.device, non_blocking=True)
        labels = SparseLabels(sent[1], sent[2], self.num_types * size * size, values=values, validate=False)
        features, letters = (self._gathered(table, tokens, sent[0]) for table in (self.features, self.letters))
        return SpanBatch(features, letters, sent[3], lengths, SpanLabels(labels, num_types=self.num_types, num_tokens=size))

    def _gathered(self, table: Tensor, tokens: Array, sent: Tensor) -> Tensor:
        where = sent if table.device == sent.device else torch.from_numpy(tokens.ravel())
        found = table.index_select(0, where).reshape(*tokens.shape, table.shape[1])
        return found.to(self.device, non_blocking=True)


def _as_values(rows: Sequence[Encoded]) -> Array | None:
    """The labels of all spans, float32 ``[P]``; None where all are hard."""
    if all(row.values is None for row in rows):
        return None
    ones = (np.ones(len(row.spans), dtype=np.float32) if row.values is None else row.values for row in rows)
    return np.concatenate(list(ones))


def _as_table(parts: list[Array], device: torch.device) -> Tensor:
    """A row of padding, then the rows of all windows; on the device unless they exceed ``DEVICE_BYTES``."""
    width = parts[0].shape[1] if parts else 0
    table = torch.from_numpy(np.concatenate([np.zeros((1, width), dtype=np.int32), *parts]))
    return table.to(device) if table.nbytes <= DEVICE_BYTES else table


def send(parts: Sequence[Array], device: torch.device) -> list[Tensor]:
    """Copy int64 arrays to a device in one asynchronous transfer."""
    # Each array starts at a multiple of 16 bytes, as the kernels expect.
    starts = np.cumsum([0, *(len(part) + len(part) % 2 for part in parts)])
    whole = torch.zeros(int(starts[-1]), dtype=torch.int64, pin_memory=device.type == "cuda")
    view = whole.numpy()
    for start, part in zip(starts, parts, strict=False):
        view[start : start + len(part)] = part
    there = whole.to(device, non_blocking=True)
    return [there[start : start + len(part)] for start, part in zip(starts.tolist(), parts, strict=False)]
