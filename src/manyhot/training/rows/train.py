"""Train a model on examples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyhot.data.examples import Examples
from manyhot.data.reading import Reading
from manyhot.decisions.rule import DecisionRule
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.bodies.info import AUTO_BODY, SOLVED
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.budget.candidates import tried_anyway
from manyhot.training.rows.budget.racing import HeldOut, race
from manyhot.training.rows.bundle import TrainedModel, load_model
from manyhot.training.rows.choose import resolved, with_body
from manyhot.training.rows.example_checks import check_examples, check_finite, check_settings
from manyhot.training.rows.linear.ranking import Ranked, rank_better
from manyhot.training.rows.options import check_processes, check_used, unreached_limits
from manyhot.training.rows.phases import FITTINGS, RowSession
from manyhot.training.rows.preparing import held_rows, session_for
from manyhot.training.rows.reasons import reasons_of
from manyhot.training.rows.rules.fitting import LISTED, Tuning, bounded_cut, fit_rule
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import BALANCED, NONE
from manyhot.training.rows.targets.objective import check_loss, natural_rule
from manyhot.training.rows.trees.phase import held_out_rows, lists_best
from manyhot.training.run.bundle_folder import model_fingerprint
from manyhot.training.run.claim import RunClaim
from manyhot.training.run.folder import RunFolder, claimed, fingerprint
from manyhot.training.run.processes import Processes
from manyhot.training.run.progress import Event, Progress
from manyhot.training.run.random_state import seeded
from manyhot.training.run.versions import versions


def train(
    train_examples: Examples,
    settings: TrainSettings | None = None,
    *,
    validation: Examples | None = None,
    sample_weight: Tensor | None = None,
    run: Path | str | RunClaim | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    held_out: HeldOut | None = None,
) -> TrainedModel:
    """Fit a model, and tune its decision rule on rows it was not fitted to.

    A linear body on sparse inputs is fitted to all rows. Its rule is tuned on ``validation``, or by cross-validation: every row
    is scored by a model that did not see it. Other bodies use ``validation`` or a held-out share of the rows for early stopping
    and for the rule. On few rows the model is the mean of several such fits, each with a different share held out.
    With the setting ``budget`` several candidates are trained, and the best on held-out rows is the model.
    The same seed on the same machine gives the same numbers; so does a run that was killed and resumed (on a CPU).

    Args:
        train_examples: rows with texts, features or images.
        settings: the settings; None: the defaults.
        validation: rows for early stopping and tuning; their labels are put in the order of the training labels.
        sample_weight: one value per row of ``train_examples``.
        run: a folder for settings, log, checkpoints and the model; None keeps everything in memory. Only one training at a
            time may write to it.
        resume: continue the run in ``run`` if there is one; the data and settings must be the same.
        progress: is called with every ``Event``.
        held_out: is called once after the model is saved, with the model and the scores that its rule was tuned on, or None
            if no rows were held out. With several processes, only the first one calls it. If the run was finished before, the
            scores are restored from its checkpoints.

    Returns:
        A ``TrainedModel``; with ``run`` it is also saved there, under ``model``.

    Example:
        >>> from manyhot import SparseLabels
        >>> labels = SparseLabels.from_lists([[0], [1], [0, 1], []] * 10, num_labels=2)
        >>> texts = ["salt the water", "slice the bread", "bread with salt", "boil the water"] * 10
        >>> model = train(Examples(labels, ("salt", "bread"), texts=texts))
        >>> model.predict(["slice with salt"]).lists()
        [[0, 1]]
    """
    given = settings or TrainSettings()
    check_examples(train_examples, sample_weight)
    check_settings(given, train_examples.num_labels)
    if validation is not None:
        validation = validation.with_labels(train_examples.label_names)
        check_finite("train", "validation", validation)
    names = () if given.budget else tried_anyway(given, train_examples, validated=validation is not None)
    how: dict[str, Any] = {"run": run, "resume": resume, "progress": progress, "held_out": held_out}
    how |= {"validation": validation, "sample_weight": sample_weight}
    if given.budget or names:
        return race(_train_one, train_examples, given, names=names, **how)
    return _train_one(train_examples, given, **how)


def _train_one(
    examples: Examples,
    given: TrainSettings,
    *,
    validation: Examples | None,
    sample_weight: Tensor | None,
    run: Path | str | RunClaim | None,
    resume: bool,
    progress: Progress | None,
    held_out: HeldOut | None,
) -> TrainedModel:
    """A model by exactly these settings; the arguments are those of ``train``, checked."""
    processes = Processes.current()
    settings = resolved(with_body(given, examples), examples)
    check_loss(settings)
    check_processes(settings, processes)
    if run is None:
        if settings.tensorboard:
            raise ValueError("train: `tensorboard` must go with `run`, the folder that the event files are written into.")
        return _run(examples, given, settings, validation, sample_weight, None, progress, held_out)
    prints = _fingerprints(examples, validation, sample_weight, settings)
    processes.check_same("data", json.dumps(prints, sort_keys=True))
    with claimed(run) as path:
        folder = RunFolder(path, given, prints, resume=resume, sharded=bool(settings.label_shards))
        if folder.finished and held_out is None:
            return load_model(folder.model)
        return _run(examples, given, settings, validation, sample_weight, folder, progress, held_out)


def _run(
    examples: Examples,
    given: TrainSettings,
    settings: TrainSettings,
    validation: Examples | None,
    sample_weight: Tensor | None,
    folder: RunFolder | None,
    progress: Progress | None,
    held_out: HeldOut | None,
) -> TrainedModel:
    """Train, save, and hand over the held-out scores. A finished run is restored from its checkpoints, with the same
    numbers."""
    first = Processes.current().first
    with seeded(settings.seed, settings.threads):
        model, tuning = _train(examples, given, settings, validation, sample_weight, folder, progress)
    if folder is not None and first and not folder.finished:
        model.save(folder.model)
    if held_out is not None and first:
        held_out(model, tuning)
    return model


def _fingerprints(
    examples: Examples, validation: Examples | None, sample_weight: Tensor | None, settings: TrainSettings
) -> dict[str, str]:
    """Digests of everything that a run reads."""
    prints = {"train": fingerprint(examples, sample_weight)}
    if validation is not None:
        prints["validation"] = fingerprint(validation)
    reads_more = None if settings.model == AUTO_BODY else get_body(settings.model).fingerprint
    if reads_more is not None:
        prints[settings.model] = reads_more(settings)
    if settings.teacher:
        prints["teacher"] = model_fingerprint("train", "teacher", settings.teacher)
    return prints


def _train(
    examples: Examples,
    given: TrainSettings,
    settings: TrainSettings,
    validation: Examples | None,
    sample_weight: Tensor | None,
    folder: RunFolder | None,
    progress: Progress | None,
) -> tuple[TrainedModel, Tuning | None]:
    session, inputs, entry = session_for(examples, given, settings, sample_weight, folder, progress)
    settings, hard = session.settings, examples.hardened().labels
    facts = {"sparse": session.shape["sparse"], "validated": validation is not None, "solved": bool(session.solver_threads)}
    count = held_out_rows(settings, len(examples)) if validation is None else len(validation)
    unknown = None if validation is None else validation.unknown
    facts["listed"] = entry.lazy or (entry.fitting == SOLVED and lists_best(settings, count, hard, unknown))
    run = check_used(given, settings, entry, examples, **facts)
    why = session.why = reasons_of(run)
    for name, sentence in why.items():
        session.note(f"{name}: {sentence}")
    for sentence in unreached_limits(given, inputs, session.rows.inputs):
        session.note(sentence)
    fitted = FITTINGS[entry.fitting_on(sparse=session.shape["sparse"])]
    body, threshold, tuning = fitted(session, None if validation is None else held_rows(examples, validation, inputs))
    body.zero_grad(set_to_none=True)
    session.note("tuning the decision rule")
    if threshold is not None and tuning is not None:
        threshold = bounded_cut(threshold, tuning, hard, examples.unknown, sample_weight)
    natural = natural_rule(settings, threshold, cardinality=hard.indices.numel() / max(len(examples), 1))
    if entry.lazy and natural.top_k is None:
        # Predictions are made from top lists only.
        natural = replace(natural, max_labels=max(LISTED, natural.min_labels))
    (rule, calibration, tuning, _), found = _decided(session, body, natural, tuning, hard)
    session.tell(Event("rule", found or "the natural rule of the loss"))
    about = {"rows": len(examples), "versions": versions(), "tuned": found, "learning_rate": session.learning_rate, "why": why}
    model = TrainedModel(
        body,
        {name: value for name, value in session.shape.items() if name != "pretrained"},
        inputs,
        examples.label_names,
        settings,
        link=session.link,
        rule=rule,
        calibration=calibration,
        about=about,
        reading=Reading.of(examples),
        label_counts=torch.bincount(hard.indices, minlength=hard.num_labels),
    )
    session.tell(Event("end", f"trained in {session.seconds():.1f} s", seconds=session.seconds()))
    return model, tuning


def _decided(
    session: RowSession, body: nn.Module, natural: DecisionRule, tuning: Tuning | None, labels: SparseLabels
) -> tuple[Ranked, str]:
    """The rule, the calibration and the held-out scores, and a sentence about the rule; biases may be moved."""
    settings = session.settings
    # A sample of the held-out rows is too small for one threshold per label.
    if session.sampled and settings.tune != "none":
        settings = replace(settings, tune="micro-F1" if settings.tune == BALANCED else settings.tune, per_label=False)
    if not session.solver_threads:
        rule, calibration, found = fit_rule(settings, natural, tuning, labels)
        return Ranked(rule, calibration, tuning), found
    rule, _, found = fit_rule(replace(settings, calibrate=NONE), natural, tuning, labels)
    ranked = rank_better(settings, body, rule, tuning)
    if ranked.moved:
        session.note(f"scores and thresholds are lowered by {ranked.moved}, to rank labels better")
    return ranked, found
