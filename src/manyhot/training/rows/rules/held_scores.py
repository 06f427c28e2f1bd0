"""Scores of held-out rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.row_batches import SparseRows
from manyhot.training.run.processes import Processes

if TYPE_CHECKING:
    from manyhot.training.rows.phases import RowSession


def logits_of(body: nn.Module, rows: TrainingRows, session: RowSession) -> Tensor:
    """Scores ``[R, L]`` on the CPU; each process scores its part of the rows."""
    device = session.device
    body.eval()
    processes = Processes.current()
    own = rows if processes.count == 1 else rows.take(processes.own_part(len(rows)))
    parts = [torch.zeros(0, rows.labels.num_labels)]
    with torch.inference_mode():
        for batch, *_ in own.batches(1024):
            moved = batch.to_device(device) if isinstance(batch, SparseRows) else batch.to(device)
            parts.append(body(moved).float().cpu())
    return processes.gathered(torch.cat(parts).clone(), len(rows))
