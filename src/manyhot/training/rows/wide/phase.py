"""The fits of a body for very many labels: members on the device, and top lists of the held-out rows of each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn

from manyhot.scores.top import TopScores
from manyhot.training.rows.bodies.wide import WideBody, assembled, finished
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.device_rows import DeviceRows
from manyhot.training.rows.rules.fitting import Tuning
from manyhot.training.rows.wide.fit import ROWS_TOGETHER, WideFit, joined_lists, top_scores

if TYPE_CHECKING:
    from manyhot.training.rows.phases import RowSession

# Most held-out rows that are listed to tune one threshold on.
MOST_LISTED_ROWS = 20_000


def fit_wide(session: RowSession, held: TrainingRows | None) -> tuple[nn.Module, None, Tuning | None]:
    """``(body, None, top lists to tune on)`` of the mean of the settings' ``members`` bodies; see ``fit_members``.

    Rows to tune on are drawn at random: with very many labels most are too rare to stratify by.
    """
    rows, members = session.rows, session.settings.members or 1
    parts = _left_out(session, members) if held is None else []
    bodies, tops = [], []
    on_device = DeviceRows(rows.inputs, rows.targets, rows.sample_weight, session.device)
    for place in range(members):
        kept = np.ones(len(rows), dtype=bool)
        kept[parts[place] if parts else []] = False
        picked = np.flatnonzero(kept)
        name = "final" if place == members - 1 else f"member-{place}"
        kind = partial(WideFit, on_device=on_device, picked=picked)
        fit = session.fit(name, 900 + place, rows.take(picked, inputs=False), linear=False, kind=kind)
        bodies.append(cast(WideBody, fit.body))
        session.learning_rate = fit.state.learning_rate
        if parts:
            tops.append(top_scores(bodies[-1], on_device, parts[place]))
    joined = finished(bodies)
    session.shape["hidden"] = joined.head.hidden_size
    session.shape["head"] = str(joined.head.weight.dtype).removeprefix("torch.")
    session.shape["table"] = str(joined.first.weight.dtype).removeprefix("torch.")
    for name in ("moves", "made_on", "shards_on"):
        session.shape.pop(name, None)
    listed = None
    if held is not None:
        listed = top_scores(joined, DeviceRows(held.inputs, held.targets, None, session.device))
    # The members are no longer needed; this frees their memory for the model.
    bodies.clear()
    body = assembled(joined)
    if held is not None and listed is not None:
        return body, None, Tuning(listed, held.labels, None)
    if not parts:
        return body, None, None
    apart = np.concatenate(parts)
    values, indices, sums = (joined_lists(tops, name) for name in ("values", "indices", "log_sums"))
    fold = torch.arange(members).repeat_interleave(len(parts[0]))
    listed = TopScores(values, indices, rows.labels.num_labels, sums)
    return body, None, Tuning(listed, rows.take(apart).labels, None, torch.from_numpy(apart), fold)


def _left_out(session: RowSession, members: int) -> list[np.ndarray[Any, Any]]:
    """The held-out rows of each member, on which the rule is tuned; an empty list if the settings hold none out."""
    num_rows = len(session.rows)
    count = min(round(session.settings.validation * num_rows), MOST_LISTED_ROWS) // members
    count = count // ROWS_TOGETHER * ROWS_TOGETHER or count
    drawn = np.random.default_rng([session.settings.seed, 1 << 22]).permutation(num_rows)
    return [np.sort(drawn[place * count : (place + 1) * count]) for place in range(members)] if count else []
