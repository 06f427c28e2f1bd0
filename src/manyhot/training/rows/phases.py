"""The fits of a run: cross-fitted ones and the final one, or one with rows held out; each picks up where it was killed."""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.labels.split import stratified_folds, stratified_split
from manyhot.training.rows.bodies.networks import HiddenBody, make_body, mean_body, set_prior
from manyhot.training.rows.choose import log_odds
from manyhot.training.rows.fit import Fit, TrainingRows
from manyhot.training.rows.inputs.prepare import SparseRows
from manyhot.training.rows.rule import Tuning, best_value, empty_logits
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.folder import RunFolder
from manyhot.training.run.processes import Processes
from manyhot.training.run.progress import Event, Progress

# Multiples of the step that are tried on the first fold of a linear body: noisy labels want a smaller one.
STEPS = (1.0, 1 / 3)
# Bodies that a bag is the mean of.
MEMBERS = 2


class Session:
    """What all fits of a run share: rows, device, the run folder, the clock."""

    def __init__(
        self,
        settings: TrainSettings,
        shape: dict[str, Any],
        rows: TrainingRows,
        device: torch.device,
        folder: RunFolder | None,
        progress: Progress | None,
    ) -> None:
        self.settings, self.shape, self.rows, self.device = settings, shape, rows, device
        self.folder, self.progress = folder, progress
        self.started = self.saved = time.monotonic()
        self.learning_rate = 0.0

    def seconds(self) -> float:
        """Since the session started."""
        return time.monotonic() - self.started

    def tell(self, event: Event) -> None:
        """To whoever watches and to the log."""
        if self.folder is not None:
            self.folder.log(event)
        if self.progress is not None:
            self.progress(event)

    def fit(
        self, name: str, salt: int, rows: TrainingRows, *, linear: bool, held: TrainingRows | None = None, factor: float = 1.0
    ) -> Fit:
        """Run the fit called ``name`` to its end, from its checkpoint where it has one."""
        torch.manual_seed(self.settings.seed * 1000 + salt)
        body = make_body(self.shape)
        set_prior(body, log_odds(rows.labels, rows.unknown))
        fit = Fit(body.to(self.device), rows, self.settings, salt=salt, device=self.device, linear=linear)
        found = self.folder.checkpoints.load(name) if self.folder is not None else None
        going = True
        if found is not None:
            fit.from_parts(*found)
            going = bool(found[1]["going"])
        else:
            fit.start()
            fit.state.learning_rate *= factor
        while going and fit.state.epoch < fit.epochs:
            going = self._epoch(name, fit, held)
        fit.take_best()
        return fit

    def _epoch(self, name: str, fit: Fit, held: TrainingRows | None) -> bool:
        begun, before = time.monotonic(), fit.state.batch

        def after_step() -> None:
            if self.folder is not None and time.monotonic() - self.saved >= self.settings.checkpoint_seconds:
                self.save(name, fit, going=True)

        loss = fit.run_epoch(after_step)
        took = time.monotonic() - begun
        rows = len(fit.rows) - before * self.settings.batch_size
        value, going = float("nan"), True
        if held is not None and not fit.linear:
            value = best_value(self.settings, Tuning(logits_of(fit.body, held, self.device), held.labels, held.where()))
            value = fit.processes.agreed(value)
            going = fit.note_value(value)
        left = (fit.epochs - fit.state.epoch) * took * len(fit.rows) / max(rows, 1)
        last = not going or fit.state.epoch == fit.epochs
        quiet = time.monotonic() - self.saved >= self.settings.checkpoint_seconds
        if self.folder is not None and (last or quiet or not fit.linear):
            self.save(name, fit, going=going)
        self.tell(
            Event(
                "epoch",
                epoch=fit.state.epoch,
                epochs=fit.epochs,
                loss=loss,
                metric=self.settings.metric,
                value=value,
                rows_per_second=rows / max(took, 1e-9),
                seconds=self.seconds(),
                remaining=left,
                extra={"fit": name, "learning_rate": fit.state.learning_rate},
            )
        )
        return going

    def save(self, name: str, fit: Fit, *, going: bool) -> None:
        """Put a checkpoint on the disk."""
        if self.folder is not None:
            tensors, about = fit.to_parts()
            self.folder.checkpoints.save(name, tensors, {**about, "going": going})
            self.saved = time.monotonic()


def fit_crossed(session: Session, held: TrainingRows | None) -> tuple[nn.Module, Tensor | None, Tuning | None]:
    """``(body, learned threshold, scores to tune on)`` of a linear body fitted to all rows.

    The rows to tune on are ``held``, or all of them, each scored by a fit that did not see it.
    """
    rows, settings = session.rows, session.settings
    tuning, factor = None, 1.0
    if held is None and len(rows) >= 10 * settings.folds:
        folds = [fold.numpy() for fold in stratified_folds(rows.labels, num_folds=settings.folds, seed=settings.seed)]
        scores = empty_logits(len(rows), rows.labels.num_labels)
        factor, scores[folds[0]] = _first_fold(session, folds[0])
        for place, fold in enumerate(folds[1:], start=1):
            fit = session.fit(f"fold-{place}", place, _without(rows, fold), linear=True, factor=factor)
            scores[fold] = logits_of(fit.body, rows.take(fold), session.device)
        part = torch.zeros(len(rows), dtype=torch.int64)
        for place, fold in enumerate(folds):
            part[torch.from_numpy(fold)] = place
        tuning = Tuning(scores, rows.labels, rows.where(), torch.arange(len(rows)), part)
    fit = session.fit("final", 900, rows, linear=True, factor=factor)
    session.learning_rate = fit.state.learning_rate
    if held is not None:
        tuning = Tuning(logits_of(fit.body, held, session.device), held.labels, held.where())
    return fit.body, fit.objective.threshold, tuning


def _first_fold(session: Session, fold: np.ndarray[Any, Any]) -> tuple[float, Tensor]:
    """``(multiple of the step, scores of the fold)``: the best of ``STEPS`` on the rows of the first fold."""
    rows, settings = session.rows, session.settings
    rest, own = _without(rows, fold), rows.take(fold)
    tried: list[tuple[float, float, Tensor]] = []
    for factor in STEPS if settings.learning_rate is None else STEPS[:1]:
        fit = session.fit(f"fold-0-step-{factor:.2g}", 0, rest, linear=True, factor=factor)
        scores = logits_of(fit.body, own, session.device)
        tried.append((best_value(settings, Tuning(scores, own.labels, own.where())), factor, scores))
    value, factor, scores = max(tried, key=lambda each: each[0])
    session.tell(Event("note", f"step {factor:.2g} is best on held-out rows", metric=settings.metric, value=value))
    return factor, scores


def fit_held_out(session: Session, held: TrainingRows | None) -> tuple[nn.Module, Tensor | None, Tuning | None]:
    """``(body, learned threshold, scores to tune on)`` of a body that stops by rows it was not fitted to."""
    rows, settings = session.rows, session.settings
    share = round(settings.validation * len(rows))
    apart = None
    if held is None and 0 < share < len(rows):
        kept, apart = stratified_split(rows.labels, test_size=settings.validation, seed=settings.seed)
        held, rows = rows.take(apart.numpy()), rows.take(kept.numpy())
    fit = session.fit("final", 900, rows, linear=False, held=held)
    session.learning_rate = fit.state.learning_rate
    tuning = None
    if held is not None:
        tuning = Tuning(logits_of(fit.body, held, session.device), held.labels, held.where(), apart)
    return fit.body, fit.objective.threshold, tuning


def fit_members(session: Session, held: TrainingRows | None) -> tuple[nn.Module, Tensor | None, Tuning | None]:
    """``(body, learned threshold, scores to tune on)`` of the mean of ``MEMBERS`` bodies, each fitted without some rows.

    The rows to tune on are ``held``, and then every body is fitted to all others, or those that a body was fitted without,
    scored by it. The mean is better than any of its bodies, and together they have seen all rows.
    """
    rows, settings = session.rows, session.settings
    parts: list[np.ndarray[Any, Any]] = []
    if held is None and round(settings.validation * len(rows)):
        num_folds = max(round(1 / settings.validation), MEMBERS)
        folds = stratified_folds(rows.labels, num_folds=num_folds, seed=settings.seed)
        parts = [fold.numpy() for fold in folds[:MEMBERS]]
    fits, scores = [], []
    for place in range(MEMBERS):
        own = _without(rows, parts[place]) if parts else rows
        name = "final" if place == MEMBERS - 1 else f"member-{place}"
        fits.append(session.fit(name, 900 + place, own, linear=False))
        if parts:
            scores.append(logits_of(fits[-1].body, rows.take(parts[place]), session.device))
    session.learning_rate = fits[0].state.learning_rate
    body = mean_body([cast(HiddenBody, fit.body) for fit in fits])
    session.shape["hidden"] = body.head.in_features
    thresholds = [fit.objective.threshold for fit in fits if fit.objective.threshold is not None]
    threshold = torch.stack(thresholds).mean(dim=0) if thresholds else None
    tuning = None
    if held is not None:
        tuning = Tuning(logits_of(body, held, session.device), held.labels, held.where())
    elif parts:
        apart = torch.from_numpy(np.concatenate(parts))
        fold = torch.arange(MEMBERS).repeat_interleave(torch.tensor([len(part) for part in parts]))
        tuned = rows.take(apart.numpy())
        tuning = Tuning(torch.cat(scores), tuned.labels, tuned.where(), apart, fold)
    return body, threshold, tuning


def logits_of(body: nn.Module, rows: TrainingRows, device: torch.device) -> Tensor:
    """``[R, L]`` on the CPU; each process scores its part of the rows."""
    body.eval()
    processes = Processes.current()
    own = rows if processes.count == 1 else rows.take(processes.own_part(len(rows)))
    parts = [torch.zeros(0, rows.labels.num_labels)]
    with torch.inference_mode():
        for batch, *_ in own.batches(1024):
            moved = batch.to_device(device) if isinstance(batch, SparseRows) else batch.to(device)
            parts.append(body(moved).float().cpu())
    return processes.gathered(torch.cat(parts).clone(), len(rows))


def _without(rows: TrainingRows, fold: np.ndarray[Any, Any]) -> TrainingRows:
    kept = np.ones(len(rows), dtype=bool)
    kept[fold] = False
    return rows.take(np.flatnonzero(kept))
