"""The fits of a run, one function for each way of fitting (``FITTINGS``). Each fit resumes from its checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.labels.split import stratified_folds, stratified_split
from manyhot.metrics.names import parse_metric
from manyhot.training.rows.bodies.info import CROSSED, HELD_OUT, MEMBERS, SOLVED, WIDE
from manyhot.training.rows.bodies.networks import set_prior
from manyhot.training.rows.bodies.registry import get_body, make_body
from manyhot.training.rows.choose import ROWS_A_FOLD, STEP_FOLDS, starting_scores
from manyhot.training.rows.fit import RowFit, TrainingRows
from manyhot.training.rows.linear.phase import fit_one_vs_rest
from manyhot.training.rows.mean_losses import MeanPlan, fit_mean_of_losses
from manyhot.training.rows.rules.fitting import LARGEST_TABLE, Tuning, best_value
from manyhot.training.rows.rules.held_scores import crossed_scores, logits_of
from manyhot.training.rows.rules.row_threshold import RowThreshold
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import NONE
from manyhot.training.rows.strategies import ReadBody, without_reader
from manyhot.training.rows.targets.objective import link_of
from manyhot.training.rows.targets.soft_steps import fit_of_best_step
from manyhot.training.rows.trees.phase import fit_solved
from manyhot.training.rows.wide.phase import fit_wide
from manyhot.training.run.fit import DivergedError
from manyhot.training.run.folder import RunFolder
from manyhot.training.run.processes import Processes, ProcessesError
from manyhot.training.run.progress import Event, Progress
from manyhot.training.run.session import RunSession

# Multiples of the learning rate that a linear body tries on its first fold: noisy labels need a smaller rate.
STEPS = (1.0, 1 / 3)
# Soft labels have gradients at every label in every step, even if the model fits them, so large steps do not converge.
SOFT_STEPS = (1.0, 1 / 3, 1 / 10, 1 / 30)
# Body, learned threshold, scores to tune on.
Fitted = tuple[nn.Module, Tensor | None, Tuning | None]


class RowSession(RunSession):
    """What all fits of a run on rows share."""

    def __init__(
        self,
        settings: TrainSettings,
        shape: dict[str, Any],
        rows: TrainingRows,
        device: torch.device,
        folder: RunFolder | None,
        progress: Progress | None,
        reader: nn.Module | None = None,
    ) -> None:
        metric = settings.stop_metric
        sign = parse_metric(metric).info.sign
        super().__init__(folder, progress, checkpoint_seconds=settings.checkpoint_seconds, metric=metric, sign=sign)
        self.settings, self.shape, self.rows, self.device = settings, shape, rows, device
        self.reader = reader
        soft = rows.targets.values is not None
        self.link = link_of(settings, soft=soft)
        self.soft = soft or settings.softens
        self.steps: tuple[float, ...] = SOFT_STEPS if self.soft else STEPS
        # Whether smaller steps are tried only for as long as they are better.
        self.while_better = False
        self.learning_rate = 0.0
        # A multiple of the learning rate for the members of a mean; None: they choose it.
        self.factor: float | None = None
        # A prefix of the names of fits, if several losses are fitted.
        self.prefix = ""
        # Threads that solve the labels of a linear body one by one; 0: it is trained by gradient steps.
        self.solver_threads = 0
        # How the mean of several losses is fitted.
        self.mean: MeanPlan | None = None
        # Sentences that explain the model, by name; fits may add to them.
        self.why: dict[str, str] = {}
        # Whether only a sample of the held-out rows is scored, because there are too many.
        self.sampled = False

    def with_reader(self, body: nn.Module) -> nn.Module:
        """The body with the strategy's reader, where it has one."""
        return body if self.reader is None else ReadBody(body, self.reader).to(self.device)

    def sample(self, parts: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """The rows of each part that are scored: all of them, or a sample with ``LARGEST_TABLE`` scores in total."""
        labels, total = self.rows.labels.num_labels, sum(map(len, parts))
        share = LARGEST_TABLE / max(total * labels, 1)
        if share >= 1:
            return list(parts)
        self.sampled = True
        draw = np.random.default_rng([self.settings.seed, 1 << 21])
        kept = [np.sort(draw.permutation(part)[: max(int(share * len(part)), 1)]) for part in parts]
        self.note(
            f"{total:,} held-out rows with {labels:,} labels have too many scores: {sum(map(len, kept)):,} of the rows are"
            " scored, and one threshold is tuned for all labels"
        )
        return kept

    def fit(
        self,
        name: str,
        salt: int,
        rows: TrainingRows,
        *,
        linear: bool,
        held: TrainingRows | None = None,
        factor: float = 1.0,
        kind: Callable[..., RowFit] = RowFit,
    ) -> RowFit:
        """Run the fit called ``name`` to its end, from its checkpoint if there is one."""
        torch.manual_seed(self.settings.seed * 1000 + salt)
        body = self._body(rows).to(self.device)
        fit = kind(body, rows, self.settings, salt=salt, device=self.device, linear=linear)

        def score() -> float:
            assert held is not None
            return best_value(self.settings, Tuning(logits_of(fit.body, held, self), held.labels, held.where()))

        self.run(name, fit, start=lambda: fit.start(factor), score=None if held is None or linear else score)
        learned = fit.objective.fold_threshold(fit.body.head)
        if learned is not None:
            self.note(f"fit {name}: the learned threshold is {learned:.3g}; it is subtracted from the biases")
        if isinstance(fit.body, RowThreshold):
            fit.body = fit.body.folded()
        return fit

    def _body(self, rows: TrainingRows) -> nn.Module:
        """A fresh body whose biases start at the mean labels of ``rows``."""
        prior = starting_scores(self.settings, rows.targets, rows.unknown, link=self.link)
        if not self.settings.row_threshold:
            body = make_body(self.shape)
            set_prior(body, prior)
            return self.with_reader(body)
        body = make_body({**self.shape, "num_labels": self.shape["num_labels"] + 1})
        set_prior(body, torch.cat([prior, prior.new_zeros(1)]))
        return RowThreshold(body)


def fit_crossed(session: RowSession, held: TrainingRows | None) -> Fitted:
    """``(body, learned threshold, scores to tune on)`` of a linear body fitted to all rows.

    The rule is tuned on ``held``, or by cross-validation on all rows, each scored by a fit that did not see it.
    """
    if Processes.current().count > 1:
        raise ProcessesError(
            "train: `model` must not be linear for several processes on texts or sparse features; one process takes seconds."
            " Start it without torchrun, or choose bag or mlp."
        )
    if session.settings.mean_of != NONE and session.mean is not None:
        return fit_mean_of_losses(session, held)
    if session.solver_threads:
        return fit_one_vs_rest(session, held)
    rows, settings = session.rows, session.settings
    tuning, factor, count = None, 1.0, settings.folds or STEP_FOLDS
    if held is None and len(rows) >= ROWS_A_FOLD * count:
        folds = [fold.numpy() for fold in stratified_folds(rows.labels, num_folds=count, seed=settings.seed)]
        scored = session.sample(folds)
        factor, first = _first_fold(session, folds[0], scored[0])
        scores = [first]
        for place, fold in enumerate(folds[1:], start=1):
            fit = session.fit(f"{session.prefix}fold-{place}", place, rows.without(fold), linear=True, factor=factor)
            scores.append(logits_of(fit.body, rows.take(scored[place]), session))
        tuning = crossed_scores(rows, scored, scores)
    fit = session.fit(f"{session.prefix}final", 900, rows, linear=True, factor=factor)
    session.learning_rate = fit.state.learning_rate
    if held is not None:
        tuning = Tuning(logits_of(fit.body, held, session), held.labels, held.where())
    return fit.body, fit.objective.threshold, tuning


def _first_fold(session: RowSession, fold: np.ndarray[Any, Any], scored: np.ndarray[Any, Any]) -> tuple[float, Tensor]:
    """``(multiple of the learning rate, scores [R, L])``: the best of the session's ``steps`` on the first fold."""
    rows, settings = session.rows, session.settings
    rest, own = rows.without(fold), rows.take(scored)
    tried: list[tuple[float, float, Tensor]] = []
    factors = session.steps if settings.learning_rate is None else session.steps[:1]
    for factor in factors:
        try:
            fit = session.fit(f"{session.prefix}fold-0-step-{factor:.2g}", 0, rest, linear=True, factor=factor)
        except DivergedError:
            if not tried and factor == factors[-1]:
                raise
            session.note(f"the learning rate times {factor:.2g} is too large: the loss is not finite")
            continue
        scores = logits_of(fit.body, own, session)
        tried.append((best_value(settings, Tuning(scores, own.labels, own.where())), factor, scores))
        if session.while_better and len(tried) > 1 and tried[-1][0] <= tried[-2][0]:
            break
    value, factor, scores = max(tried, key=lambda each: each[0])
    message = f"the learning rate times {factor:.2g} is best on held-out rows"
    session.tell(Event("note", message, metric=settings.stop_metric, value=value * session.sign))
    return factor, scores


def fit_held_out(session: RowSession, held: TrainingRows | None) -> Fitted:
    """``(body, learned threshold, scores to tune on)`` of a body with early stopping on held-out rows."""
    rows, settings = session.rows, session.settings
    if settings.mean_of != NONE:
        return fit_mean_of_losses(session, held)
    if settings.members and settings.members > 1:
        return fit_all_members(session, held, stops=True)
    share = round(settings.validation * len(rows))
    apart = None
    if held is None and 0 < share < len(rows):
        kept, apart = stratified_split(rows.labels, test_size=settings.validation, seed=settings.seed)
        apart = torch.from_numpy(session.sample([apart.numpy()])[0])
        held, rows = rows.take(apart.numpy()), rows.take(kept.numpy())
    fit, _ = fit_of_best_step(session, "final", 900, rows, held)
    session.learning_rate = fit.state.learning_rate
    tuning = None
    if held is not None:
        tuning = Tuning(logits_of(fit.body, held, session), held.labels, held.where(), apart)
    return fit.body, fit.objective.threshold, tuning


def fit_members(session: RowSession, held: TrainingRows | None) -> Fitted:
    """``(body, learned threshold, scores to tune on)`` of the mean of several bodies, each trained for all its epochs."""
    return fit_all_members(session, held, stops=False)


def fit_all_members(session: RowSession, held: TrainingRows | None, *, stops: bool) -> Fitted:
    """The mean of the settings' ``members`` bodies, each fitted without some rows.

    If ``held`` is given, every body is fitted to all rows, and the rule is tuned on ``held``. Otherwise each body holds out a
    different part of the rows, and the rule is tuned on these parts. The mean is better than any single body, and together they
    are fitted to all rows. ``stops``: whether each body uses its held-out rows for early stopping.
    """
    rows, settings = session.rows, session.settings
    count = settings.members or 1
    parts: list[np.ndarray[Any, Any]] = []
    if held is None and round(settings.validation * len(rows)):
        num_folds = min(max(round(1 / settings.validation), count), len(rows))
        folds = stratified_folds(rows.labels, num_folds=num_folds, seed=settings.seed)
        parts = [fold.numpy() for fold in folds[:count]]
    fits, scores, scored, factor = [], [], session.sample(parts), session.factor
    for place in range(count):
        own = rows.without(parts[place]) if parts else rows
        by = None if not stops else rows.take(scored[place]) if parts else held
        name = session.prefix + ("final" if place == count - 1 else f"member-{place}")
        fit, factor = fit_of_best_step(session, name, 900 + place, own, by, factor)
        fits.append(fit)
        if parts:
            scores.append(logits_of(fits[-1].body, rows.take(scored[place]), session))
    session.learning_rate = fits[0].state.learning_rate
    body = session.with_reader(_joined(session, fits))
    thresholds = [fit.objective.threshold for fit in fits if fit.objective.threshold is not None]
    threshold = torch.stack(thresholds).mean(dim=0) if thresholds else None
    tuning = None
    if held is not None:
        tuning = Tuning(logits_of(body, held, session), held.labels, held.where())
    elif parts:
        apart = torch.from_numpy(np.concatenate(scored))
        fold = torch.arange(len(scored)).repeat_interleave(torch.tensor([len(part) for part in scored]))
        tuned = rows.take(apart.numpy())
        tuning = Tuning(torch.cat(scores), tuned.labels, tuned.where(), apart, fold)
    return body, threshold, tuning


def _joined(session: RowSession, fits: Sequence[RowFit]) -> nn.Module:
    """One body whose logits are the mean of those of the fits' bodies, without the strategy's reader."""
    bodies, join = [without_reader(fit.body) for fit in fits], get_body(session.shape["body"]).join
    assert join is not None or len(bodies) == 1
    joined = bodies[0] if join is None or len(bodies) == 1 else join(bodies)
    if get_body(session.shape["body"]).hidden:
        session.shape["hidden"] = joined.get_submodule("head").in_features
    return joined


FITTINGS: dict[str, Callable[[RowSession, TrainingRows | None], Fitted]] = {
    CROSSED: fit_crossed,
    HELD_OUT: fit_held_out,
    MEMBERS: fit_members,
    SOLVED: fit_solved,
    WIDE: fit_wide,
}
