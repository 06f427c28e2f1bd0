"""Chooses the learning rate for soft labels, for bodies with early stopping on held-out rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from manyhot.training.rows.fit import RowFit, TrainingRows
from manyhot.training.run.progress import Event

if TYPE_CHECKING:
    from manyhot.training.rows.phases import RowSession

# Multiples of the learning rate that the range test gives. The test sees only the start of training, where soft and hard labels
# have similar gradients; later the gradients of fitted hard labels vanish, those of soft labels do not.
FACTORS = (1.0, 1 / 3, 1 / 10)


def fit_of_best_step(
    session: RowSession, name: str, salt: int, rows: TrainingRows, held: TrainingRows | None, factor: float | None = None
) -> tuple[RowFit, float]:
    """``(fit, multiple of the learning rate)``. For soft labels, several rates are tried; the best on ``held`` is kept.

    Args:
        session: the session of the run.
        name: the name of the fit, if only one rate is tried.
        salt: separates the random draws of fits with the same seed.
        rows: the rows to fit to.
        held: held-out rows, for early stopping and the choice of the rate; None for none.
        factor: the multiple, if another fit has chosen it.
    """
    given = session.settings.learning_rate is not None or factor is not None
    if given or not session.soft or held is None or not len(held):
        return session.fit(name, salt, rows, linear=False, held=held, factor=factor or 1.0), factor or 1.0
    tried = []
    for factor in FACTORS:
        fit = session.fit(f"step-{factor:.2g}", salt, rows, linear=False, held=held, factor=factor)
        tried.append((_value_of(fit, held, session), factor, fit))
    _, factor, fit = max(tried, key=lambda each: each[0])
    extra = {"final": f"step-{factor:.2g}"} if name == "final" else {}
    session.tell(Event("note", f"the learning rate times {factor:.2g} is best on held-out rows", extra=extra))
    return fit, factor


def _value_of(fit: RowFit, held: TrainingRows, session: RowSession) -> float:
    """How good a fit is on rows it did not see, larger is better: by the loss, which is less noisy than a metric of few rows.

    The loss does not apply to the scores of a strategy's reader; there the metric of the best epoch counts.
    """
    if session.reader is not None:
        return fit.stopping.best
    fit.body.eval()
    fit.objective.eval()
    with torch.inference_mode():
        values = [(float(value), weight) for value, weight in map(fit.loss, held.batches(1024))]
    return -fit.processes.agreed(sum(value * weight for value, weight in values) / sum(weight for _, weight in values))
