"""The fits of a linear body whose labels are solved one by one: the cost of an error, cross-fitting, the final model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.labels.split import stratified_folds
from manyhot.training.rows.bodies.registry import make_body
from manyhot.training.rows.choose import ROWS_A_FOLD, STEP_FOLDS
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.linear.offsets import import_early
from manyhot.training.rows.linear.solver import Job, LinearWeights, OneVsRest
from manyhot.training.rows.rules.fitting import Tuning, best_value
from manyhot.training.rows.rules.held_scores import crossed_scores, logits_of
from manyhot.training.rows.steering import BALANCED
from manyhot.training.run.progress import Event

if TYPE_CHECKING:
    from manyhot.training.rows.phases import RowSession

# On training rows of reuters21578 a cost of 1 or 2 was best, of cooking_stackexchange 1/4, of corel5k 1/16, of medical 8. Three
# costs are tried first, then the next one for as long as that is better.
COSTS = tuple(2.0**power for power in range(-5, 6))
FIRST, MIDDLE, LAST = 3, 4, 5
# Passes over the rows. 3 are too few on both sets; 10 and 15 are like 8.
PASSES = 8


def fit_one_vs_rest(session: RowSession, held: TrainingRows | None) -> tuple[nn.Module, None, Tuning | None]:
    """``(body, None, scores to tune on)`` of a linear body that is solved on all rows.

    The rule is tuned on ``held``, or on cross-fitted scores of all rows. The cost of an error is the best one on ``held`` or
    on the first fold.
    """
    rows, settings = session.rows, session.settings
    passes, folds = settings.epochs or PASSES, settings.folds or STEP_FOLDS
    solver = OneVsRest(rows, passes=passes, seed=settings.seed, threads=session.solver_threads)
    every = np.arange(len(rows))
    if held is not None:
        found = _best_cost(session, solver, every, held)
        return _body_of(session, found.weights), None, Tuning(found.scores, held.labels, held.where())
    if len(rows) < ROWS_A_FOLD * folds:
        return _body_of(session, next(solver.solve([Job(every, COSTS[MIDDLE])]))), None, None
    if settings.tune == BALANCED:
        import_early()
    parts = [part.numpy() for part in stratified_folds(rows.labels, num_folds=folds, seed=settings.seed)]
    scored = session.sample(parts)
    found = _best_cost(session, solver, np.setdiff1d(every, parts[0]), rows.take(scored[0]))
    jobs = [Job(np.setdiff1d(every, part), found.cost) for part in parts[1:]] + [Job(every, found.cost)]
    scores, body = [found.scores], None
    for number, weights in enumerate(solver.solve(jobs), start=1):
        body = _body_of(session, weights)
        if number < len(parts):
            scores.append(logits_of(body, rows.take(scored[number]), session))
            session.note(f"fold {number + 1} of {len(parts)} is scored by a model that was fitted without it")
    assert body is not None
    return body, None, crossed_scores(rows, scored, scores)


class _Found:
    """The best cost so far, with its weights and its scores of the held-out rows."""

    def __init__(self) -> None:
        self.values: dict[float, float] = {}
        self.cost, self.weights, self.scores = 0.0, LinearWeights(torch.zeros(0), torch.zeros(0)), torch.zeros(0)

    def add(self, cost: float, value: float, weights: LinearWeights, scores: Tensor) -> None:
        """Keep the better one; ties go to the one before."""
        if not self.values or value > max(self.values.values()):
            self.cost, self.weights, self.scores = cost, weights, scores
        self.values[cost] = value


def _best_cost(session: RowSession, solver: OneVsRest, picked: np.ndarray, held: TrainingRows) -> _Found:
    """The best cost for rows ``picked``, judged by the metric of the settings on ``held``."""
    found = _Found()

    def attempt(places: Sequence[int]) -> None:
        costs = [COSTS[place] for place in places]
        for cost, weights in zip(costs, solver.solve([Job(picked, cost) for cost in costs]), strict=True):
            scores = logits_of(_body_of(session, weights), held, session)
            value = best_value(session.settings, Tuning(scores, held.labels, held.where()))
            found.add(cost, value, weights, scores)

    attempt((MIDDLE, FIRST, LAST))
    for place, step in ((FIRST, -1), (LAST, 1)):
        while found.cost == COSTS[place] and 0 <= place + step < len(COSTS):
            place += step
            attempt((place,))
    value = found.values[found.cost]
    message = f"the cost of an error is {found.cost:g}, the best of {_listed(found.values)} on held-out rows"
    session.tell(Event("note", message, metric=session.settings.stop_metric, value=value * session.sign))
    return found


def _listed(values: dict[float, float]) -> str:
    return ", ".join(f"{cost:g} ({values[cost]:.4f})" for cost in sorted(values))


def _body_of(session: RowSession, weights: LinearWeights) -> nn.Module:
    body = make_body(session.shape)
    with torch.no_grad():
        body.get_parameter("head.weight").copy_(weights.weight)
        body.get_parameter("head.bias").copy_(weights.bias)
    return body.to(session.device)
