"""A running training: its fits, from their checkpoints to their ends, with progress events and logs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from manyhot.training.run.checkpoint import CheckpointError
from manyhot.training.run.fit import Fit
from manyhot.training.run.folder import RunFolder
from manyhot.training.run.progress import Event, Progress

# Seconds between two progress events inside an epoch.
SECONDS_BETWEEN_EVENTS = 10.0


class RunSession:
    """What the fits of a run share: the run folder, the clock and the progress callback.

    Args:
        folder: where checkpoints and the log go; None keeps everything in memory.
        progress: is called with every event.
        checkpoint_seconds: least time between two checkpoints inside an epoch.
        metric: the name of the metric on held-out rows.
        sign: -1 if less is better; then scores of fits are the metric with its sign turned.
    """

    def __init__(
        self, folder: RunFolder | None, progress: Progress | None, *, checkpoint_seconds: float, metric: str, sign: int = 1
    ) -> None:
        self.folder, self.progress, self.metric, self.sign = folder, progress, metric, sign
        self.checkpoint_seconds = checkpoint_seconds
        self.started = self.saved = self.told = self.fit_begun = time.monotonic()

    def seconds(self) -> float:
        """Seconds since the session started."""
        return time.monotonic() - self.started

    def tell(self, event: Event) -> None:
        """Send an event to the callback and to the log."""
        self.told = time.monotonic()
        if self.folder is not None:
            self.folder.log(event)
        if self.progress is not None:
            self.progress(event)

    def note(self, message: str) -> None:
        """Report a choice, a finding, or work that may take long."""
        self.tell(Event("note", message, seconds=self.seconds()))

    def run(self, name: str, fit: Fit, *, start: Callable[[], None], score: Callable[[], float] | None = None) -> None:
        """Run the fit called ``name`` to its end, from its checkpoint if it has one, and load its best weights.

        Args:
            name: the name of its checkpoints and in the log.
            fit: a fresh fit.
            start: is called if there is no checkpoint, to choose the learning rate.
            score: the metric on held-out rows after an epoch, larger is better; None if no rows are held out.
        """
        self.fit_begun = time.monotonic()
        going = self._resume(name, fit)
        if going is None:
            start()
            going = True
        while going and fit.state.epoch < fit.epochs:
            going = self._epoch(name, fit, score)
        fit.finish()

    def _resume(self, name: str, fit: Fit) -> bool | None:
        """Whether the fit in the checkpoint continues; None if there is no checkpoint."""
        found = self.folder.load(name, lambda: fit.to_parts()[0]) if self.folder is not None else None
        if found is None:
            return None
        try:
            fit.from_parts(*found)
        except CheckpointError as error:
            raise CheckpointError(
                f"train: the checkpoint {name!r} must be one of this run: {error}. Start a new run in another folder."
            ) from error
        return bool(found[1].get("going", True))

    def _epoch(self, name: str, fit: Fit, score: Callable[[], float] | None) -> bool:
        begun, before = time.monotonic(), fit.state.batch

        def after_step() -> None:
            if time.monotonic() - self.told >= SECONDS_BETWEEN_EVENTS:
                self.tell(self._inside(name, fit, begun, before))
            if self._due():
                self.save(name, fit, going=True)

        loss = fit.run_epoch(after_step)
        took = time.monotonic() - begun
        rows = fit.num_rows - before * fit.batch_size
        value, going = math.nan, True
        if score is not None:
            value = fit.processes.agreed(score())
            going = fit.note_value(value)
        last = not going or fit.state.epoch == fit.epochs
        took_long = time.monotonic() - self.fit_begun >= fit.seconds_worth_saving
        if (last and self._agreed(took_long)) or fit.checkpoint_every_epoch or self._due():
            self.save(name, fit, going=going)
        self.tell(
            Event(
                "epoch",
                epoch=fit.state.epoch,
                epochs=fit.epochs,
                loss=loss,
                metric=self.metric,
                value=value * self.sign,
                rows_per_second=rows / max(took, 1e-9),
                seconds=self.seconds(),
                remaining=(fit.epochs - fit.state.epoch) * took * fit.num_rows / max(rows, 1),
                extra={"fit": name, "learning_rate": fit.state.learning_rate, "better": "more" if self.sign > 0 else "less"},
            )
        )
        return going

    def _inside(self, name: str, fit: Fit, begun: float, before: int) -> Event:
        """Where the fit stands inside an epoch."""
        took = time.monotonic() - begun
        rows = min(fit.state.batch * fit.batch_size, fit.num_rows)
        done = rows - before * fit.batch_size
        left = fit.num_rows * (fit.epochs - fit.state.epoch) - rows
        return Event(
            "step",
            epoch=fit.state.epoch + 1,
            epochs=fit.epochs,
            loss=fit.state.loss_sum / max(rows, 1),
            rows_per_second=done / max(took, 1e-9),
            seconds=self.seconds(),
            remaining=left * took / max(done, 1),
            extra={"fit": name, "batch": fit.state.batch, "batches": fit.num_batches},
        )

    def _due(self) -> bool:
        if self.folder is None:
            return False
        return self._agreed(time.monotonic() - self.saved >= self.checkpoint_seconds)

    def _agreed(self, save: bool) -> bool:
        """Whether a checkpoint is written: if every process saves its part, the clock of the first one decides for all."""
        if self.folder is None or not self.folder.sharded:
            return save
        return bool(self.folder.processes.agreed(save))

    def save(self, name: str, fit: Fit, *, going: bool) -> None:
        """Write a checkpoint, if the run has a folder."""
        if self.folder is not None:
            tensors, about = fit.to_parts()
            self.folder.checkpoints.save(name, tensors, {**about, "going": going})
            self.saved = time.monotonic()
