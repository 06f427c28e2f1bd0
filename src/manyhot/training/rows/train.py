"""Train a model on examples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from manyhot.data.examples import Examples
from manyhot.data.reading import Reading
from manyhot.decisions.rule import DecisionRule
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.catalog import get_loss
from manyhot.training.rows.bodies.info import AUTO_BODY, SOLVED, BodyInfo
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.budget.racing import HeldOut, race
from manyhot.training.rows.bundle import TrainedModel, load_model
from manyhot.training.rows.choose import body_for, folds_for, resolved, solved_by, trees_for, with_body, with_loss
from manyhot.training.rows.example_checks import check_examples, check_finite, check_settings
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.features import FeatureInputs
from manyhot.training.rows.inputs.registry import INPUTS, Inputs
from manyhot.training.rows.inputs.row_batches import is_sparse
from manyhot.training.rows.linear.phase import PASSES
from manyhot.training.rows.linear.ranking import Ranked, rank_better
from manyhot.training.rows.mean_losses import with_mean_of
from manyhot.training.rows.options import check_lazy, check_processes, check_used, unreached_limits
from manyhot.training.rows.phases import FITTINGS, RowSession
from manyhot.training.rows.reasons import reasons_of
from manyhot.training.rows.rules.fitting import LISTED, Tuning, bounded_cut, fit_rule
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import BALANCED
from manyhot.training.rows.strategies import Posed, get_strategy
from manyhot.training.rows.targets.objective import check_loss, natural_rule
from manyhot.training.rows.targets.teacher import open_teacher, taught_labels
from manyhot.training.rows.trees.phase import held_out_rows, lists_best
from manyhot.training.rows.wide.warming import Warming
from manyhot.training.run.bundle_folder import model_fingerprint
from manyhot.training.run.claim import RunClaim
from manyhot.training.run.device import choose_device
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
    if given.budget:
        rows = {"validation": validation, "sample_weight": sample_weight}
        return race(train, train_examples, given, run=run, resume=resume, progress=progress, held_out=held_out, **rows)
    processes = Processes.current()
    settings = resolved(with_body(given, train_examples), train_examples)
    check_loss(settings)
    check_processes(settings, processes)
    if run is None:
        if settings.tensorboard:
            raise ValueError("train: `tensorboard` must go with `run`, the folder that the event files are written into.")
        return _run(train_examples, given, settings, validation, sample_weight, None, progress, held_out)
    prints = _fingerprints(train_examples, validation, sample_weight, settings)
    processes.check_same("data", json.dumps(prints, sort_keys=True))
    with claimed(run) as path:
        folder = RunFolder(path, given, prints, resume=resume, sharded=bool(settings.label_shards))
        if folder.finished and held_out is None:
            return load_model(folder.model)
        return _run(train_examples, given, settings, validation, sample_weight, folder, progress, held_out)


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
    session, inputs, entry = _session(examples, given, settings, sample_weight, folder, progress)
    settings, hard = session.settings, examples.hardened().labels
    facts = {"sparse": session.shape["sparse"], "validated": validation is not None, "solved": bool(session.solver_threads)}
    held_rows = held_out_rows(settings, len(examples)) if validation is None else len(validation)
    unknown = None if validation is None else validation.unknown
    facts["listed"] = entry.lazy or (entry.fitting == SOLVED and lists_best(settings, held_rows, hard, unknown))
    run = check_used(given, settings, entry, examples, **facts)
    why = reasons_of(run)
    for name, sentence in why.items():
        session.note(f"{name}: {sentence}")
    for sentence in unreached_limits(given, inputs, session.rows.inputs):
        session.note(sentence)
    fitted = FITTINGS[entry.fitting_on(sparse=session.shape["sparse"])]
    body, threshold, tuning = fitted(session, None if validation is None else _held_rows(examples, validation, inputs))
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
    rule, calibration, found = fit_rule(settings, natural, tuning, labels)
    if not session.solver_threads:
        return Ranked(rule, calibration, tuning), found
    ranked = rank_better(settings, body, rule, calibration, tuning)
    if ranked.moved:
        session.note(f"scores and thresholds are lowered by {ranked.moved}, to rank labels better")
    return ranked, found


def _session(
    examples: Examples,
    given: TrainSettings,
    settings: TrainSettings,
    sample_weight: Tensor | None,
    folder: RunFolder | None,
    progress: Progress | None,
) -> tuple[RowSession, Inputs, BodyInfo]:
    """The session of a run, the preparation of its inputs and its body; its settings include all choices made from the data."""
    device = Processes.current().device(choose_device(settings.device))
    kind = examples.kind
    if settings.model != AUTO_BODY and kind in get_body(settings.model).reads:
        kind = get_body(settings.model).inputs or kind
    warming = Warming(settings, examples.num_labels, device).start()
    try:
        inputs, prepared = INPUTS[kind].fit(examples, settings)
    finally:
        warming.wait()
    entry = body_for(settings, examples, inputs, device=device.type)
    settings = with_loss(settings, given, entry, examples)
    check_lazy(entry, settings, examples)
    posed, hard = _posed(examples, settings), examples.hardened().labels
    rows = TrainingRows(prepared, hard, examples.unknown, sample_weight, None if posed.labels is hard else posed.labels)
    sparse = is_sparse(prepared)
    dropout = (entry.dropout or 0.0) if settings.dropout is None else settings.dropout
    hidden = settings.hidden or entry.hidden_size
    shape = {"body": entry.name, "width": inputs.width, "num_labels": posed.labels.num_labels, "hidden": hidden}
    shape |= {"dropout": dropout, "sparse": sparse, **entry.shape}
    if entry.describe is not None:
        shape |= entry.describe(settings, inputs)
    if posed.reader is not None:
        shape |= {"strategy": get_strategy(settings.strategy).name, "read_labels": examples.num_labels}
    threads = solved_by(given, settings, entry, examples)
    epochs = settings.epochs or (PASSES if threads else entry.num_epochs(len(rows), sparse=sparse))
    batch_size = settings.batch_size or entry.batch_size
    members = settings.members or entry.members.on(len(rows), held_out=settings.validation)
    settings = replace(settings, model=entry.name, epochs=epochs, dropout=dropout, batch_size=batch_size, members=members)
    settings = replace(settings, folds=settings.folds or folds_for(len(rows), solved=bool(threads)))
    if entry.fitting == SOLVED:
        settings = replace(settings, trees=settings.trees or trees_for(len(rows)))
    settings = with_mean_of(settings, given, entry, examples, sparse=sparse)
    session = RowSession(settings, shape, rows, device, folder, progress, posed.reader)
    session.solver_threads = threads
    size = f"{len(rows):,} rows, {_width(examples, inputs.width)}, {examples.num_labels:,} labels"
    session.tell(Event("start", f"{entry.name} body, loss {settings.loss}, on {size}, {device}"))
    return session, inputs, entry


def _held_rows(examples: Examples, validation: Examples, inputs: Inputs) -> TrainingRows:
    """The validation rows, prepared like the training rows."""
    if isinstance(inputs, FeatureInputs) and validation.features is not None:
        Reading.of(examples).check_features(validation, inputs.names, sparse=inputs.sparse)
    return TrainingRows(inputs.rows(validation), validation.hardened().labels, validation.unknown)


def _posed(examples: Examples, settings: TrainSettings) -> Posed:
    """The targets that the strategy makes from the labels, after they are mixed with those of a teacher."""
    labels = examples.labels
    if settings.teacher:
        labels = taught_labels(open_teacher(settings.teacher, examples), examples, settings.teacher_share)
    why = None if labels.values is None else get_loss(settings.usual_loss).why_not("soft_labels")
    if why is not None:
        raise ValueError(f"train: `loss` must take soft labels, as the examples or the teacher give them: {why}.")
    posed = get_strategy(settings.strategy).pose(labels)
    if posed.reader is not None and examples.unknown is not None and len(examples.unknown.indices):
        raise ValueError(f"train: `strategy` {settings.strategy} must have all labels known; the examples have unknown ones.")
    return posed


def _width(examples: Examples, width: int) -> str:
    """A description of the width of a row."""
    what = "channel" if examples.kind == "images" else "feature"
    return f"{width:,} {what}{'' if width == 1 else 's'}"
