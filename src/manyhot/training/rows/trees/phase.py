"""The fits of label trees: a part of the rows is held out to tune on, then all rows are fitted."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.rules.fitting import Tuning
from manyhot.training.rows.rules.held_scores import logits_of
from manyhot.training.rows.steering import BALANCED, NONE, SETS
from manyhot.training.rows.trees.choice import negative_cost
from manyhot.training.rows.trees.fit import MOST_HELD_OUT, TreeFit, check_tree, shape_of
from manyhot.training.run.checkpoint import Checkpoints
from manyhot.training.run.processes import Processes, ProcessesError

if TYPE_CHECKING:
    from manyhot.training.rows.phases import RowSession

# If fewer rows than this share are held out, fitting again to all rows does not pay off.
FEW_HELD_OUT = 0.05


def fit_solved(session: RowSession, held: TrainingRows | None) -> tuple[nn.Module, None, Tuning | None]:
    """``(body, None, scores to tune on)`` of label trees, which are solved node by node.

    At most ``MOST_HELD_OUT`` rows are held out to tune on. If they are more than a small part of the rows, the trees are then
    fitted again, to all rows, unless thresholds are tuned for one metric: they fit the trees they were tuned with.
    """
    if Processes.current().count > 1:
        raise ProcessesError(
            "train: `model` must not be tree for several processes; one takes all CPU threads. Start it without torchrun."
        )
    rows, settings = session.rows, session.settings
    check_tree(rows, session.device)
    count, apart = min(round(settings.validation * len(rows)), MOST_HELD_OUT), None
    if held is None and 0 < count < len(rows):
        order = np.random.default_rng([settings.seed, 1 << 22]).permutation(len(rows))
        scored = session.sample([np.sort(order[:count])])[0]
        apart, held, rows = torch.from_numpy(scored), rows.take(scored), rows.without(scored)
    sizes: dict[str, Any] = {"trees": settings.trees, "beam": settings.beam, "passes": settings.epochs or 1}
    sizes |= {"form": settings.loss, "seed": settings.seed, "threads": settings.threads or torch.get_num_threads()}
    sizes["neg_cost"] = negative_cost(session, rows, **sizes)
    body = TreeFit(session, rows, **sizes).run()
    tuning = None if held is None else Tuning(logits_of(body, held, session), held.labels, held.where(), apart, beams=True)
    transfers = settings.tune in (BALANCED, SETS, NONE)
    if apart is not None and transfers and len(apart) >= FEW_HELD_OUT * len(session.rows):
        session.note(f"the trees are fitted again to all rows, with the {len(apart):,} that the rule is tuned on")
        body = TreeFit(_final_session(session), session.rows, **sizes).run()
    session.shape |= shape_of(body)
    return body, None, tuning


def _final_session(session: RowSession) -> RowSession:
    """The session of the fit to all rows, whose checkpoints are in a folder of their own."""
    final = copy.copy(session)
    if session.folder is not None:
        final.folder = copy.copy(session.folder)
        final.folder.checkpoints = Checkpoints(session.folder.path / "checkpoints" / "final")
    return final
