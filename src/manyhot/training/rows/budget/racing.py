"""Trains several candidates, those of a time budget or those of the metric; the model is the best on held-out rows, or the
mean of several."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyhot._files import append_line, write_json
from manyhot.data.examples import Examples
from manyhot.metrics.names import parse_metric
from manyhot.training.rows.bodies.info import AUTO_BODY, SOLVED
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.budget.candidates import CANDIDATES, USUAL, Candidate, candidates_for
from manyhot.training.rows.budget.mean import Scored, can_be_averaged, mean_model
from manyhot.training.rows.budget.value import value_of
from manyhot.training.rows.bundle import TrainedModel, load_model
from manyhot.training.rows.choose import with_body
from manyhot.training.rows.rules.fitting import Tuning
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import AUTO, NONE
from manyhot.training.run.claim import RunClaim
from manyhot.training.run.fit import DivergedError
from manyhot.training.run.folder import RunFolder, claimed, fingerprint
from manyhot.training.run.processes import Processes, ProcessesError
from manyhot.training.run.progress import Event, Progress, json_line
from manyhot.training.run.settings import seconds_of

RECORD, FOLDER, LOG, MEAN = "race.json", "candidates", "metrics.jsonl", "mean"
# On few held-out rows one candidate is best by luck, and the mean is rarely bad: a candidate must beat it by a point.
MARGIN = 0.01
HeldOut = Callable[[TrainedModel, Tuning | None], None]
# Trains one model: (settings, run folder or None, resume, callback for the held-out scores).
TrainOne = Callable[[TrainSettings, Path | None, bool, HeldOut], TrainedModel]


def race(
    train: Callable[..., TrainedModel],
    examples: Examples,
    given: TrainSettings,
    *,
    run: Path | str | RunClaim | None,
    resume: bool,
    progress: Progress | None,
    held_out: HeldOut | None,
    names: Sequence[str] = (),
    **rows: Any,
) -> TrainedModel:
    """The best of the candidates that the budget of ``given`` allows, or of those called ``names``.

    The other arguments are those of ``train``.
    """
    if Processes.current().count > 1:
        raise ProcessesError(
            "train: `budget` must be left out in several processes. Use it in one process, then train with the best settings."
        )
    if not names:
        _check_body(given, examples)

    def train_one(settings: TrainSettings, folder: Path | None, again: bool, keep: HeldOut) -> TrainedModel:
        return train(examples, settings, run=folder, resume=again, progress=progress, held_out=keep, **rows)

    if run is None:
        model, tuning = Race(train_one, given, examples, None, progress, names).run()
    else:
        prints = {"train": fingerprint(examples, rows["sample_weight"])}
        if rows["validation"] is not None:
            prints["validation"] = fingerprint(rows["validation"])
        with claimed(run) as path:
            folder = RunFolder(path, given, prints, resume=resume)
            if folder.finished and held_out is None:
                return load_model(folder.model)
            model, tuning = Race(train_one, given, examples, path, progress, names).run()
            if not folder.finished:
                model.save(folder.model)
    if held_out is not None:
        held_out(model, tuning)
    return model


def _check_body(given: TrainSettings, examples: Examples) -> None:
    """Raise an error for a body without candidates; candidates are compared by the scores of all labels."""
    model = with_body(given, examples).model
    if model == AUTO_BODY:
        return
    entry = get_body(model)
    if entry.lazy or entry.fitting == SOLVED:
        raise ValueError(
            f"train: `budget` must be left out for the model {model}, which has no candidates. Try other values of"
            " `hidden`, `epochs` or `trees` instead."
        )


class Race:
    """The candidates of a run, trained one after the other while the budget lasts.

    Each candidate is a complete model in its own run folder, so that a killed race resumes with the candidate that it was
    training. A candidate is expected to take as long as the first one; it is not started if less time is left. How many are
    tried depends on the speed of the machine; the same candidates give the same model.

    Args:
        train_one: trains one model.
        given: settings with a ``budget``, or without one if there are ``names``.
        examples: the training rows.
        path: the run folder; None keeps everything in memory.
        progress: is called with every event.
        names: the candidates that are tried; empty: all that suit the settings, while the budget lasts.
    """

    def __init__(
        self,
        train_one: TrainOne,
        given: TrainSettings,
        examples: Examples,
        path: Path | None,
        progress: Progress | None,
        names: Sequence[str] = (),
    ) -> None:
        self.train_one, self.given, self.examples, self.path, self.progress = train_one, given, examples, path, progress
        self.names = names
        self.budget = math.inf if names else seconds_of("train", "budget", given.budget)
        self.done: list[dict[str, Any]] = []
        if path is not None and (path / RECORD).is_file():
            self.done = json.loads((path / RECORD).read_text(encoding="utf-8"))
        # Models and held-out scores of the candidates that were trained in this process.
        self.trained: dict[str, tuple[TrainedModel, Tuning | None]] = {}

    def run(self) -> tuple[TrainedModel, Tuning | None]:
        """``(model, scores its rule was tuned on)`` of the winner."""
        names = {each["name"] for each in self.done}
        for candidate in () if MEAN in names else candidates_for(self._plain(), self.examples):
            if candidate.name in names or (self.names and candidate.name not in self.names):
                continue
            spent = sum(each["seconds"] for each in self.done)
            if self.done and spent + self.done[0]["seconds"] > self.budget:
                self._tell(f"{spent:.0f} of {self.budget:.0f} s are used: {candidate.name} and later candidates are not tried")
                break
            self._try(candidate)
        if MEAN not in names:
            self._try_mean()
        winner = self._winner()
        model, tuning = self._mean() if winner["name"] == MEAN else self._candidate(winner["name"])
        model.about["candidates"] = self.done
        model.about["why"] = {**model.about["why"], "candidate": self._sentence(winner)}
        self._tell(f"candidate: {self._sentence(winner)}")
        self._copy_log(USUAL if winner["name"] == MEAN else winner["name"])
        return model, tuning

    def _plain(self) -> TrainSettings:
        """The given settings without the budget."""
        return replace(self.given, budget="")

    def _try(self, candidate: Candidate) -> None:
        begun = time.monotonic()
        self._tell(f"candidate {candidate.name}: {_listed(candidate)}")
        record: dict[str, Any] = {"name": candidate.name, "changes": _listed(candidate)}
        try:
            model, tuning = self._candidate(candidate.name)
            record["value"] = value_of(model, tuning, self.examples.hardened().labels)
            record |= {"learning_rate": model.about["learning_rate"], "mean_of": model.settings.mean_of}
        except (ValueError, DivergedError) as error:
            if candidate.name == USUAL:
                if self.path is not None and isinstance(error, ValueError):
                    shutil.rmtree(self.path / FOLDER, ignore_errors=True)
                raise
            record["refused"] = str(error)
        self._keep(record, begun)

    def _try_mean(self) -> None:
        """Try the mean of all candidates that differ only in loss or learning rate; it needs no training."""
        begun = time.monotonic()
        if can_be_averaged(self._averaged()):
            model, tuning = self._mean()
            value = value_of(model, tuning, self.examples.hardened().labels)
            names = ", ".join(each["name"] for each in self.done if self._averages(each))
            self._keep({"name": MEAN, "changes": f"the mean of {names}", "value": value}, begun)

    def _keep(self, record: dict[str, Any], begun: float) -> None:
        record["seconds"] = time.monotonic() - begun
        self.done.append(record)
        if self.path is not None:
            write_json(self.path / RECORD, self.done)
        found = f"{self._metric()} {record['value']:.4f} on held-out rows" if "value" in record else record["refused"]
        self._tell(f"candidate {record['name']}: {found}, {record['seconds']:.1f} s", value=record.get("value"))

    def _candidate(self, name: str) -> tuple[TrainedModel, Tuning | None]:
        """Train a candidate, or restore its model and scores from its run folder if it is finished."""
        if name not in self.trained:
            usual: dict[str, Any] = self.done[0] if self.done else {"learning_rate": 0.0}
            settings = CANDIDATES[name].settings(self._plain(), usual["learning_rate"], usual.get("mean_of", NONE))
            held: list[Tuning | None] = []
            folder = None if self.path is None else self.path / FOLDER / name
            resume = folder is not None and folder.exists()
            self.trained[name] = self.train_one(settings, folder, resume, lambda _, tuning: held.append(tuning)), held[0]
        return self.trained[name]

    def _averages(self, record: dict[str, Any]) -> bool:
        return "value" in record and record["name"] in CANDIDATES and set(CANDIDATES[record["name"]].changes) <= {"loss"}

    def _averaged(self) -> list[Scored]:
        trained = [self._candidate(each["name"]) for each in self.done if self._averages(each)]
        return [(model, tuning) for model, tuning in trained if tuning is not None]

    def _mean(self) -> Scored:
        return mean_model(self._averaged(), self.examples.hardened().labels)

    def _winner(self) -> dict[str, Any]:
        """The first of the best, or the mean where no candidate is better than it by more than ``MARGIN``."""
        sign = 1 if self.given.metric == AUTO else parse_metric(self.given.metric).info.sign
        best = max((each for each in self.done if "value" in each), key=lambda each: sign * each["value"])
        means = [each for each in self.done if each["name"] == MEAN]
        return means[0] if means and sign * (best["value"] - means[0]["value"]) <= MARGIN else best

    def _metric(self) -> str:
        return "mean of micro-F1 and macro-F1" if self.given.metric == AUTO else self.given.metric

    def _sentence(self, winner: dict[str, Any]) -> str:
        tried = ", ".join(f"{each['name']} {each['value']:.4f}" for each in self.done if "value" in each)
        kept = "is at most a point behind the best" if winner["name"] == MEAN else "is best"
        return f"{winner['name']} {kept}, by {self._metric()} on held-out rows: {tried}"

    def _tell(self, message: str, value: float | None = None) -> None:
        event = Event("note", message) if value is None else Event("note", message, metric=self._metric(), value=value)
        if self.path is not None:
            append_line(self.path / LOG, json_line(event))
        if self.progress is not None:
            self.progress(event)

    def _copy_log(self, name: str) -> None:
        """Append the winner's log to that of the race, for the report's learning curves."""
        if self.path is not None:
            append_line(self.path / LOG, (self.path / FOLDER / name / LOG).read_text(encoding="utf-8"))


def _listed(candidate: Candidate) -> str:
    texts = [f"{name} {value}" for name, value in candidate.changes.items()]
    if candidate.step != 1:
        texts.append(f"learning rate times {candidate.step:.2g}")
    return ", ".join(texts) or "the given settings"
