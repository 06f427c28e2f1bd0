"""The fits of label trees: a part of the rows is held out to tune on, then all rows are fitted."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from manyhot.labels.sparse import SparseLabels
from manyhot.scores.top import TopScores
from manyhot.training.rows.bodies.tree import TreeBody
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.row_batches import SparseRows
from manyhot.training.rows.rules.fitting import LARGEST_TABLE, LISTED, Tuning
from manyhot.training.rows.rules.held_scores import logits_of
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import NONE
from manyhot.training.rows.trees.choice import negative_cost
from manyhot.training.rows.trees.fit import MOST_HELD_OUT, TreeFit, check_tree, shape_of
from manyhot.training.run.checkpoint import Checkpoints
from manyhot.training.run.processes import Processes, ProcessesError

if TYPE_CHECKING:
    from manyhot.training.rows.phases import RowSession

# What thresholds per label are tuned for without regard to trees that are fitted again.
OF_THESE_TREES = ("macro-F1", "hamming-error")
# If fewer rows than this share are held out, fitting again to all rows does not pay off.
FEW_HELD_OUT = 0.05


def fit_solved(session: RowSession, held: TrainingRows | None) -> tuple[nn.Module, None, Tuning | None]:
    """``(body, None, scores to tune on)`` of label trees, which are solved node by node.

    At most ``MOST_HELD_OUT`` rows are held out to tune on. If they are more than a small part of the rows, the trees are then
    fitted again, to all rows, unless thresholds per label are tuned for macro-F1 or hamming-error: they fit the trees they were
    tuned with. With very many labels, only the best of each row are scored.
    """
    if Processes.current().count > 1:
        raise ProcessesError(
            "train: `model` must not be tree for several processes; one takes all CPU threads. Start it without torchrun."
        )
    rows, settings = session.rows, session.settings
    check_tree(rows, session.device)
    count, apart = held_out_rows(settings, len(rows)), None
    listed = lists_best(settings, count if held is None else len(held), rows.labels, None if held is None else held.unknown)
    if held is None and 0 < count < len(rows):
        order = np.random.default_rng([settings.seed, 1 << 22]).permutation(len(rows))
        scored = np.sort(order[:count])
        if not listed:
            scored = session.sample([scored])[0]
        apart, held, rows = torch.from_numpy(scored), rows.take(scored), rows.without(scored)
    sizes: dict[str, Any] = {"trees": settings.trees, "beam": settings.beam, "passes": settings.epochs or 1}
    sizes |= {"form": settings.loss, "seed": settings.seed, "threads": settings.threads or torch.get_num_threads()}
    sizes["neg_cost"] = negative_cost(session, rows, **sizes)
    body = TreeFit(session, rows, **sizes).run()
    tuning = None
    transfers = settings.tune not in OF_THESE_TREES or not settings.per_label
    again = apart is not None and transfers and len(apart) >= FEW_HELD_OUT * len(session.rows)
    if held is not None:
        scores = _best_labels(body, held) if listed else logits_of(body, held, session)
        tuning = Tuning(scores, held.labels, held.where(), apart, beams=True, again=again)
    if again and apart is not None:
        session.note(f"the trees are fitted again to all rows, with the {len(apart):,} that the rule is tuned on")
        body = TreeFit(_final_session(session), session.rows, **sizes).run()
    session.shape |= shape_of(body)
    return body, None, tuning


def held_out_rows(settings: TrainSettings, num_rows: int) -> int:
    """How many rows are held out to tune on."""
    return min(round(settings.validation * num_rows), MOST_HELD_OUT)


def lists_best(settings: TrainSettings, held_rows: int, labels: SparseLabels, unknown: SparseLabels | None) -> bool:
    """Whether the rule is tuned on the best labels of each row, because the table of all scores is too large.

    A calibration, and ``unknown`` labels of the held-out rows, need the table.
    """
    known = unknown is None or not len(unknown.indices)
    return held_rows * labels.num_labels > LARGEST_TABLE and settings.calibrate == NONE and known


def _best_labels(body: TreeBody, rows: TrainingRows) -> TopScores:
    """The ``LISTED`` best labels of each row."""
    found = [body.top(batch, LISTED) for batch, *_ in rows.batches(1024) if isinstance(batch, SparseRows)]
    values, indices = torch.cat([top.values for top in found]), torch.cat([top.indices for top in found])
    return TopScores(values, indices, rows.labels.num_labels)


def _final_session(session: RowSession) -> RowSession:
    """The session of the fit to all rows, whose checkpoints are in a folder of their own."""
    final = copy.copy(session)
    if session.folder is not None:
        final.folder = copy.copy(session.folder)
        final.folder.checkpoints = Checkpoints(session.folder.path / "checkpoints" / "final")
    return final
