"""The fits of a body for very many labels: members on the device, and top lists of the held-out rows of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn

from manyhot.labels.sparse import SparseLabels
from manyhot.scores.top import TopScores
from manyhot.training.rows.bodies.wide import WideBody, assembled, finished
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.device_rows import DeviceRows
from manyhot.training.rows.rules.fitting import Tuning
from manyhot.training.rows.wide.fit import ROWS_TOGETHER, WideFit, joined_lists, top_scores
from manyhot.training.rows.wide.frequency import best_share, log_counts, lower_biases, may_lower

if TYPE_CHECKING:
    from manyhot.training.rows.phases import RowSession

Array = np.ndarray[Any, Any]
# Most held-out rows that are listed to tune one threshold on.
MOST_LISTED_ROWS = 20_000


def fit_wide(session: RowSession, held: TrainingRows | None) -> tuple[nn.Module, None, Tuning | None]:
    """``(body, None, top lists to tune on)`` of the mean of the settings' ``members`` bodies; see ``fit_members``.

    Rows to tune on are drawn at random: with very many labels most are too rare to stratify by.
    """
    rows, members = session.rows, session.settings.members or 1
    parts = _left_out(session, members) if held is None else []
    bodies: list[WideBody] = []
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
    tuning = _tuned_on_parts(session, bodies, on_device, parts) if parts else None
    joined = finished(bodies)
    session.shape["hidden"] = joined.head.hidden_size
    session.shape["head"] = str(joined.head.weight.dtype).removeprefix("torch.")
    session.shape["table"] = str(joined.first.weight.dtype).removeprefix("torch.")
    for name in ("moves", "made_on", "zeros", "shards_on"):
        session.shape.pop(name, None)
    # The members are no longer needed; this frees their memory for the model.
    bodies.clear()
    if held is not None:
        tuning = _tuned_on_held(session, joined, held)
    return assembled(joined), None, tuning


def _tuned_on_parts(session: RowSession, bodies: Sequence[WideBody], on_device: DeviceRows, parts: Sequence[Array]) -> Tuning:
    """Top lists of the rows that each member did not see; frequent labels are lowered by them before."""
    apart = np.concatenate(parts)
    labels = session.rows.take(apart).labels

    def listed() -> TopScores:
        tops = [top_scores(body, on_device, part) for body, part in zip(bodies, parts, strict=True)]
        values, indices, sums = (joined_lists(tops, name) for name in ("values", "indices", "log_sums"))
        return TopScores(values, indices, labels.num_labels, sums)

    fold = torch.arange(len(parts)).repeat_interleave(len(parts[0]))
    return Tuning(_listed_best(session, bodies, labels, listed), labels, None, torch.from_numpy(apart), fold)


def _tuned_on_held(session: RowSession, body: WideBody, held: TrainingRows) -> Tuning:
    """Top lists of the validation rows; frequent labels are lowered by them before."""
    rows = DeviceRows(held.inputs, held.targets, None, session.device)
    return Tuning(_listed_best(session, [body], held.labels, lambda: top_scores(body, rows)), held.labels, None)


def _listed_best(
    session: RowSession, bodies: Sequence[WideBody], labels: SparseLabels, listed: Callable[[], TopScores]
) -> TopScores:
    """The top lists of rows with ``labels``, after the biases of frequent labels are lowered as far as it ranks them better."""
    top = listed()
    if not may_lower(session.settings):
        return top
    logs = log_counts(session.rows.labels)
    share = best_share(top, labels, logs, session.settings.metric)
    if not share:
        return top
    lower_biases(bodies, share * logs)
    session.note(f"biases are lowered by {share:g} of the logarithm of each label's count, to rank held-out rows better")
    return listed()


def _left_out(session: RowSession, members: int) -> list[Array]:
    """The held-out rows of each member, on which the rule is tuned; an empty list if the settings hold none out."""
    num_rows = len(session.rows)
    count = min(round(session.settings.validation * num_rows), MOST_LISTED_ROWS) // members
    count = count // ROWS_TOGETHER * ROWS_TOGETHER or count
    drawn = np.random.default_rng([session.settings.seed, 1 << 22]).permutation(num_rows)
    return [np.sort(drawn[place * count : (place + 1) * count]) for place in range(members)] if count else []
