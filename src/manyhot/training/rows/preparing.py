"""From examples and settings to the session of a run: inputs, body, loss and all settings that depend on the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from manyhot.data.examples import Examples
from manyhot.data.mapped.rows import MappedTexts
from manyhot.data.reading import Reading
from manyhot.losses.catalog import get_loss
from manyhot.training.rows.bodies.info import AUTO_BODY, SOLVED, BodyInfo
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.choose import body_for, folds_for, solved_by, trees_for, with_loss
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.features import FeatureInputs
from manyhot.training.rows.inputs.registry import INPUTS, Inputs
from manyhot.training.rows.inputs.row_batches import is_sparse
from manyhot.training.rows.inputs.texts import TextInputs, longest_ngram
from manyhot.training.rows.linear.phase import PASSES
from manyhot.training.rows.mean_losses import MeanPlan, with_mean_of
from manyhot.training.rows.options import check_lazy
from manyhot.training.rows.phases import RowSession
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import AUTO, HINGE, NONE, losses_in_words, steering_of
from manyhot.training.rows.strategies import Posed, get_strategy
from manyhot.training.rows.targets.teacher import open_teacher, taught_labels
from manyhot.training.rows.wide.warming import Warming
from manyhot.training.run.device import choose_device
from manyhot.training.run.folder import RunFolder
from manyhot.training.run.processes import Processes
from manyhot.training.run.progress import Event, Progress


def session_for(
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
    if isinstance(inputs, TextInputs):
        settings = replace(settings, ngrams=len(inputs.words.keys))
    check_lazy(entry, settings, examples)
    posed, hard = _posed(examples, settings), examples.hardened().labels
    rows = TrainingRows(prepared, hard, examples.unknown, sample_weight, None if posed.labels is hard else posed.labels)
    sparse = is_sparse(prepared)
    dropout = (entry.dropout or 0.0) if settings.dropout is None else settings.dropout
    hidden = settings.hidden or entry.hidden_for(posed.labels.num_labels)
    shape = {"body": entry.name, "width": inputs.width, "num_labels": posed.labels.num_labels, "hidden": hidden}
    shape |= {"dropout": dropout, "sparse": sparse, **entry.shape}
    if entry.describe is not None:
        shape |= entry.describe(settings, inputs)
    if posed.reader is not None:
        shape |= {"strategy": get_strategy(settings.strategy).name, "read_labels": examples.num_labels}
    batch_size = settings.batch_size or entry.batch_size
    members = settings.members or entry.members.on(len(rows), held_out=settings.validation)
    settings = replace(settings, model=entry.name, dropout=dropout, batch_size=batch_size, members=members)
    if entry.fitting == SOLVED:
        settings = replace(settings, trees=settings.trees or trees_for(len(rows), ngrams=settings.ngrams or 1))
    settings = with_mean_of(settings, given, entry, examples, sparse=sparse)
    settings, threads, mean = _scheduled(settings, given, entry, examples, sparse=sparse)
    session = RowSession(settings, shape, rows, device, folder, progress, posed.reader)
    session.solver_threads, session.mean = threads, mean
    size = f"{len(rows):,} rows, {_width(examples, inputs.width)}, {examples.num_labels:,} labels"
    losses = losses_in_words(settings.loss, settings.mean_of)
    session.tell(Event("start", f"{entry.name} body, loss {losses}, on {size}, {device}"))
    _note_packed(session, examples)
    return session, inputs, entry


def _scheduled(
    settings: TrainSettings, given: TrainSettings, body: BodyInfo, examples: Examples, *, sparse: bool
) -> tuple[TrainSettings, int, MeanPlan | None]:
    """``(settings with epochs and folds, threads that solve labels one by one, the plan of a mean of losses)``."""
    passes, epochs = settings.epochs or PASSES, settings.epochs or body.num_epochs(len(examples), sparse=sparse)
    threads, plan = solved_by(given, settings, body, examples), None
    if settings.mean_of != NONE:
        hinge_threads = solved_by(given, replace(settings, loss=HINGE), body, examples)
        chooses = given.mean_of == AUTO and steering_of(given.metric).chooses_losses
        threads, plan = 0, MeanPlan(hinge_threads, passes, given.folds, chooses)
    folds = settings.folds or folds_for(len(examples), solved=bool(threads))
    return replace(settings, epochs=passes if threads else epochs, folds=folds), threads, plan


def _note_packed(session: RowSession, examples: Examples) -> None:
    """Say where packed texts have fewer features than the original files would have by default."""
    texts: Sequence[str] = examples.texts or []
    if isinstance(texts, MappedTexts) and longest_ngram(replace(session.settings, ngrams=None), texts) > 1:
        session.note("packed texts are read by single words; the original files would be read with pairs of words (--ngrams)")


def held_rows(examples: Examples, validation: Examples, inputs: Inputs) -> TrainingRows:
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
