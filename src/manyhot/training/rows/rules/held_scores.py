"""Scores of held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.row_batches import SparseRows
from manyhot.training.rows.rules.fitting import Tuning
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


def crossed_scores(rows: TrainingRows, scored: Sequence[np.ndarray[Any, Any]], scores: Sequence[Tensor]) -> Tuning:
    """Scores of some rows by the fits that did not see them, in the order of the rows."""
    places = np.concatenate(list(scored))
    order = np.argsort(places, kind="stable")
    fold = np.repeat(np.arange(len(scored)), [len(each) for each in scored])[order]
    own, table = rows.take(places[order]), scores[0].new_empty(len(places), rows.labels.num_labels)
    back, first = np.argsort(order, kind="stable"), 0
    for part in scores:
        table[torch.from_numpy(back[first : first + len(part)])] = part
        first += len(part)
    return Tuning(table, own.labels, own.where(), torch.from_numpy(places[order]), torch.from_numpy(fold))
