"""Train a span model on texts with marked spans."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from manyhot.data.spans.examples import SpanExamples
from manyhot.training.run.bundle_folder import model_fingerprint
from manyhot.training.run.claim import RunClaim
from manyhot.training.run.folder import RunFolder, claimed
from manyhot.training.run.processes import Processes
from manyhot.training.run.progress import Progress
from manyhot.training.run.random_state import seeded
from manyhot.training.spans.bundle import TrainedSpanModel, load_span_model
from manyhot.training.spans.session import SpanSession, hold_out
from manyhot.training.spans.settings import SpanSettings

HeldOutSpans = Callable[[TrainedSpanModel, SpanExamples | None], None]


def train_spans(
    train_examples: SpanExamples,
    settings: SpanSettings | None = None,
    *,
    validation: SpanExamples | None = None,
    run: Path | str | RunClaim | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    held_out: HeldOutSpans | None = None,
) -> TrainedSpanModel:
    """Train a span model, an encoder with a GlobalPointer head, with early stopping by the F1 on held-out texts.

    The same seed on the same machine gives the same numbers. On a CPU this also holds for an interrupted and resumed run.

    Args:
        train_examples: texts with marked spans.
        settings: the settings; None for the defaults.
        validation: texts for early stopping; None holds out a share of the training texts.
        run: a folder for settings, log, checkpoints and the model; None keeps everything in memory. Only one run at a time
            may write to a folder.
        resume: continue the run in ``run`` if there is one; the data and settings must be the same.
        progress: is called with every ``Event``.
        held_out: is called once, after the model is saved, with the model and the held-out texts, or None if there are none.
            Of several processes only the first calls it. It is also called if a finished run is resumed.

    Returns:
        A ``TrainedSpanModel``; with ``run`` it is also saved there, under ``model``.

    Example:
        >>> from manyhot.data.spans.examples import TextSpan
        >>> names, verbs = ("Ada", "Bob", "Eve", "Kim"), ("met", "saw", "rang")
        >>> texts = [f"{a} {verb} {b}" for a in names for b in names for verb in verbs]
        >>> spans = [[TextSpan("PER", 0, 3), TextSpan("PER", len(text) - 3, len(text))] for text in texts]
        >>> model = train_spans(SpanExamples(texts, spans), SpanSettings(hidden=16, epochs=12, dropout=0.1, batch_size=8))
        >>> [text[span.start : span.end] for text in ["Kim saw Ada"] for span in model.predict([text])[0]]
        ['Kim', 'Ada']
    """
    given = settings or SpanSettings()
    _check_examples(train_examples, validation)
    if run is None:
        if given.tensorboard:
            raise ValueError("train_spans: `tensorboard` must go with `run`, the folder that the event files are written into.")
        return _run(train_examples, given, validation, None, progress, held_out)
    prints = {"train": train_examples.fingerprint()}
    if validation is not None:
        prints["validation"] = validation.fingerprint()
    if given.teacher:
        prints["teacher"] = model_fingerprint("train", "teacher", given.teacher)
    Processes.current().check_same("data", json.dumps(prints, sort_keys=True))
    with claimed(run) as path:
        folder = RunFolder(path, given, prints, resume=resume)
        if folder.finished:
            model = load_span_model(folder.model)
            if held_out is not None and Processes.current().first:
                held_out(model, hold_out(train_examples, given)[1] if validation is None else validation)
            return model
        return _run(train_examples, given, validation, folder, progress, held_out)


def _run(
    examples: SpanExamples,
    settings: SpanSettings,
    validation: SpanExamples | None,
    folder: RunFolder | None,
    progress: Progress | None,
    held_out: HeldOutSpans | None,
) -> TrainedSpanModel:
    """Train and save the model, then call ``held_out``."""
    with seeded(settings.seed, settings.threads):
        session = SpanSession(examples, settings, validation, folder, progress)
        model = session.train()
    first = Processes.current().first
    if folder is not None and first:
        model.save(folder.model)
    if held_out is not None and first:
        held_out(model, session.held)
    return model


def _check_examples(examples: SpanExamples, validation: SpanExamples | None) -> None:
    for name, given in (("train_examples", examples), ("validation", validation)):
        if given is not None and not isinstance(given, SpanExamples):
            raise TypeError(
                f"train_spans: `{name}` must be SpanExamples; got {type(given).__name__}. Read a file with read_span_examples."
            )
    if not any(examples.spans):
        raise ValueError(f"train_spans: `train_examples` must have texts with spans; got {len(examples)} texts and no span.")
