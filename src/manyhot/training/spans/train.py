"""Train a span model: from texts with marked spans to what finds them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manyhot.data.spans.examples import SpanExamples
from manyhot.metrics.spans.scores import SpanMetrics
from manyhot.training.rows.bundle import versions
from manyhot.training.rows.choose import choose_device
from manyhot.training.run.folder import RunFolder
from manyhot.training.run.progress import Event, Progress
from manyhot.training.run.random_state import random_state_kept
from manyhot.training.spans.bundle import TrainedSpanModel, load_span_model
from manyhot.training.spans.fit import Objective, SpanFit
from manyhot.training.spans.inputs import TokenInputs
from manyhot.training.spans.network import SpanNetwork, SpanObjective
from manyhot.training.spans.pretrained import SubwordInputs, open_pretrained
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.tokens import offsets_of, tokens_for
from manyhot.training.spans.windows import Windows, make_windows

METRIC = "span-F1"
# Spans inside others make a set nested from this share on; a few are slips of annotation.
NESTED_SHARE = 0.001
SHORTEST = 32
# Thresholds are tuned between these.
LOWEST, HIGHEST = -4.0, 4.0
RATES = {"pretrained": 3e-5, "transformer": 5e-4}
SCRATCH_RATE = 2e-3


def train_spans(
    train_examples: SpanExamples,
    settings: SpanSettings | None = None,
    *,
    validation: SpanExamples | None = None,
    run: Path | str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> TrainedSpanModel:
    """Fit a span model: an encoder with a GlobalPointer head, stopped by the F1 on texts it was not fitted to.

    The same seed on the same machine gives the same numbers; a run that was killed and resumed too (on a CPU).

    Args:
        train_examples: texts with marked spans.
        settings: what to do; None is the defaults.
        validation: texts to stop by; None holds a share of the training texts out.
        run: a folder for settings, log, checkpoints and the model; None keeps everything in memory.
        resume: go on with the run in ``run`` where there is one; the data and settings must be the same.
        progress: is called with every ``Event``.

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
    folder = None
    if run is not None:
        prints = {"train": train_examples.fingerprint()}
        if validation is not None:
            prints["validation"] = validation.fingerprint()
        folder = RunFolder(Path(run), given, prints, resume=resume)
        if folder.finished:
            return load_span_model(folder.model)
    with random_state_kept(given.seed, given.threads):
        session = SpanSession(train_examples, given, validation, folder, progress)
        model = session.train()
    if folder is not None:
        model.save(folder.model)
    return model


class SpanSession:
    """One run: what the data decides, the fit, and what is told meanwhile."""

    def __init__(
        self,
        examples: SpanExamples,
        settings: SpanSettings,
        validation: SpanExamples | None,
        folder: RunFolder | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.folder, self.progress = folder, progress
        self.started = self.saved = time.monotonic()
        self.device = choose_device(settings.device)
        self.settings = resolved(settings, examples)
        if validation is None:
            examples, validation = _held_out(examples, self.settings)
        self.held = validation
        self.held_windows: Windows | None = None
        self.type_names = examples.type_names
        self.inputs, shape, self.weights = self._inputs(examples)
        chosen = self.settings
        self.shape: dict[str, Any] = {"body": chosen.body, "hidden": chosen.hidden, "layers": chosen.layers, **shape}
        self.shape |= {"dropout": chosen.dropout, "head": chosen.head, "head_size": chosen.head_size, "rotary": chosen.rotary}
        self.shape |= {"num_types": len(self.type_names)}
        self.windows = self._windows(examples)
        # Windows to read are no longer than those of training: how far apart two ends can be has to be learned.
        size = min(self.settings.max_tokens, max(SHORTEST, *map(len, self.windows.rows)))
        self.settings = replace(self.settings, max_tokens=size, overlap=min(self.settings.overlap, size // 2))

    def _inputs(self, examples: SpanExamples) -> tuple[TokenInputs | SubwordInputs, dict[str, Any], dict[str, Any]]:
        chosen = self.settings
        if chosen.body == "pretrained":
            inputs, shape, weights, longest = open_pretrained(chosen.pretrained)
            size = min(chosen.max_tokens, longest)
            self.settings = replace(chosen, max_tokens=size, overlap=min(chosen.overlap, size // 2))
            return inputs, shape, weights
        made = TokenInputs.fit(examples.texts, offsets_of(examples, chosen.tokens), chosen.tokens, chosen)
        return made, made.shape(), {}

    def _windows(self, examples: SpanExamples) -> Windows:
        size, overlap = self.settings.max_tokens, self.settings.overlap
        return make_windows(self.inputs, examples, self.type_names, max_tokens=size, overlap=overlap)

    def network(self) -> SpanNetwork:
        """A fresh network, with the weights of a pretrained encoder where there is one."""
        network = SpanNetwork(self.shape)
        if self.weights:
            network.encoder.load_state_dict(self.weights)
        elif hasattr(network.encoder, "vectors"):
            network.encoder.vectors.set_hiding(self.inputs.counts(), self.settings.word_dropout)
        return network

    def train(self, network: Any = None, objective: Objective | None = None) -> TrainedSpanModel:
        """The whole run, of a fresh network unless another with the same ``decode`` is given, and of the settings' loss."""
        network = self.network() if network is None else network
        objective = objective or SpanObjective(self.settings.loss, self.settings.rdrop)
        texts, tokens = len(self.windows.offsets), sum(map(len, self.windows.offsets))
        self.tell(
            Event("start", f"{self.settings.body} body on {texts:,} texts, {tokens:,} {self.inputs.tokens}, {self._types()}")
        )
        self.tell(Event("note", f"in training {self.windows.alignment.report()}"))
        fit = SpanFit(
            network.to(self.device),
            objective,
            self.windows.rows,
            num_types=len(self.type_names),
            settings=self.settings,
            device=self.device,
        )
        self.run(fit, lambda weights: self.f1(network, weights))
        network.load_state_dict(fit.final_weights())
        model = self.model(network, fit)
        if self.settings.tune_threshold and self.held is not None:
            model = self._tuned(model, self.held)
        self.tell(Event("end", f"trained in {self.seconds():.1f} s", seconds=self.seconds()))
        return model

    def _tuned(self, model: TrainedSpanModel, held: SpanExamples) -> TrainedSpanModel:
        threshold, value = tuned_threshold(model, held)
        if value is None:
            return model
        model = model.with_settings(replace(model.settings, threshold=threshold))
        model.about = {**model.about, "tuned_f1": value}
        self.tell(Event("rule", f"a span is what scores above {threshold:.2f}; {METRIC} {value:.4f} on held-out texts"))
        return model

    def _types(self) -> str:
        return f"{len(self.type_names)} types, {self.settings.decode} spans, {self.device}"

    def run(self, fit: SpanFit, score: Callable[[dict[str, Any]], float]) -> None:
        """Epoch after epoch, from the checkpoint where there is one, until the settings say stop."""
        found = self.folder.checkpoints.load("final") if self.folder is not None else None
        going = True
        if found is not None:
            fit.from_parts(*found)
            going = bool(found[1]["going"])

        def after_step() -> None:
            if self.folder is not None and time.monotonic() - self.saved >= self.settings.checkpoint_seconds:
                self._save(fit, going=True)

        while going and fit.state.epoch < self.settings.epochs:
            begun, before = time.monotonic(), fit.state.batch
            loss = fit.run_epoch(after_step)
            took = time.monotonic() - begun
            value = float("nan")
            if self.held is not None and len(self.held):
                value = score(fit.model_weights())
                going = fit.note_value(value)
            self._save(fit, going=going)
            rows = len(fit.rows) - before * self.settings.batch_size
            left = (self.settings.epochs - fit.state.epoch) * took * len(fit.rows) / max(rows, 1)
            self.tell(
                Event(
                    "epoch",
                    epoch=fit.state.epoch,
                    epochs=self.settings.epochs,
                    loss=loss,
                    metric=METRIC,
                    value=value,
                    rows_per_second=rows / max(took, 1e-9),
                    seconds=self.seconds(),
                    remaining=left,
                    extra={"fit": "final"},
                )
            )

    def f1(self, network: Any, weights: dict[str, Any]) -> float:
        """On the held-out texts, with other weights for a moment."""
        if self.held is None:
            return 0.0
        own = {name: each.clone() for name, each in network.state_dict().items()}
        network.load_state_dict(weights)
        model = TrainedSpanModel(network, self.shape, self.inputs, self.type_names, self.settings)
        self.held_windows = self.held_windows or model.windows(self.held)
        metrics = score_spans(model, self.held, windows=self.held_windows)
        network.load_state_dict(own)
        return metrics.f1()

    def model(self, network: Any, fit: SpanFit) -> TrainedSpanModel:
        """The finished model."""
        unaligned = len(self.windows.alignment.unaligned)
        about: dict[str, Any] = {"texts": len(self.windows.offsets), "versions": versions(), "unaligned_spans": unaligned}
        about |= {"epochs_run": fit.state.epoch}
        if fit.state.best_tensors:
            about |= {"validation_f1": fit.state.best, "best_epoch": fit.state.best_epoch}
        return TrainedSpanModel(network, self.shape, self.inputs, self.type_names, self.settings, about=about)

    def _save(self, fit: SpanFit, *, going: bool) -> None:
        if self.folder is not None:
            tensors, about = fit.to_parts()
            self.folder.checkpoints.save("final", tensors, {**about, "going": going})
            self.saved = time.monotonic()

    def seconds(self) -> float:
        """Since the run started."""
        return time.monotonic() - self.started

    def tell(self, event: Event) -> None:
        """To whoever watches and to the log."""
        if self.folder is not None:
            self.folder.log(event)
        if self.progress is not None:
            self.progress(event)


def score_spans(
    model: TrainedSpanModel, examples: SpanExamples, *, batch_size: int = 256, windows: Windows | None = None
) -> SpanMetrics:
    """Counts of predicted against marked spans, in characters: what cannot be found in tokens is missed.

    Args:
        model: what finds them.
        examples: texts with marked spans.
        batch_size: windows that are read together.
        windows: those of the same texts, where ``model.windows`` made them before.

    Example:
        >>> from manyhot.data.spans.examples import TextSpan
        >>> examples = SpanExamples(["Ada met Bob"] * 8, [[TextSpan("PER", 0, 3), TextSpan("PER", 8, 11)]] * 8)
        >>> model = train_spans(examples, SpanSettings(hidden=8, epochs=1, validation=0.0))
        >>> score_spans(model, examples).counts().gold
        16
    """
    metrics = SpanMetrics()
    lost = [[span.type for span in row] for row in examples.fragmented]
    if windows is None:
        found = model.iter_predict(examples, batch_size=batch_size)
    else:
        found = model.read_windows(windows, batch_size=batch_size)
    metrics.update(found, examples.spans, unaligned=lost)
    return metrics


def tuned_threshold(model: TrainedSpanModel, examples: SpanExamples) -> tuple[float, float | None]:
    """``(threshold, F1)``: the best on these texts, None where no span of theirs was found.

    Spans are chosen by falling score, so those above a threshold are the ones that decoding with it would choose: one pass
    with a low threshold serves all of them.
    """
    low = model.with_settings(replace(model.settings, threshold=LOWEST))
    scores, hits = [], []
    for row, found in enumerate(low.iter_predict(examples, batch_size=256)):
        marked = set(examples.spans[row])
        scores += [span.score for span in found]
        hits += [(span.type, span.start, span.end) in marked for span in found]
    if not any(hits):
        return model.settings.threshold, None
    order = np.argsort(-np.array(scores), kind="stable")
    ranked = np.array(scores)[order]
    values = 2 * np.cumsum(np.array(hits)[order]) / (np.arange(1, len(order) + 1) + examples.num_spans)
    # A threshold lies between two scores that differ, and not above the highest that is sensible.
    between = np.append(ranked[1:], LOWEST)
    values = np.where((ranked > between) & (between < HIGHEST), values, -1.0)
    best = int(values.argmax())
    return min(float(ranked[best] + between[best]) / 2, HIGHEST), float(values[best])


def resolved(settings: SpanSettings, examples: SpanExamples) -> SpanSettings:
    """The settings with what the data decides filled in."""
    tokens, body = settings.tokens, settings.body
    if body in ("words", "characters"):
        if tokens not in ("auto", body):
            raise ValueError(f"train: `tokens` must be {body!r} for the body {body!r}; got {tokens!r}.")
        tokens = body
    elif tokens == "auto":
        tokens = "words" if examples.tokens is not None and body != "auto" else tokens_for(examples.texts)
    decode = settings.decode
    if decode == "auto":
        decode = "nested" if examples.num_nested() > NESTED_SHARE * max(examples.num_spans, 1) else "flat"
    body = tokens if body == "auto" else body
    layers = settings.layers or (4 if body == "transformer" else 2)
    rate = settings.learning_rate or RATES.get(body, SCRATCH_RATE)
    return replace(settings, tokens=tokens, body=body, decode=decode, layers=layers, learning_rate=rate)


def _held_out(examples: SpanExamples, settings: SpanSettings) -> tuple[SpanExamples, SpanExamples | None]:
    share = round(settings.validation * len(examples))
    if not 0 < share < len(examples):
        return examples, None
    order = np.random.default_rng([settings.seed, 1 << 20]).permutation(len(examples)).tolist()
    return examples[sorted(order[share:])], examples[sorted(order[:share])]


def _check_examples(examples: SpanExamples, validation: SpanExamples | None) -> None:
    for name, given in (("train_examples", examples), ("validation", validation)):
        if given is not None and not isinstance(given, SpanExamples):
            raise TypeError(
                f"train_spans: `{name}` must be SpanExamples; got {type(given).__name__}. Read a file with read_span_examples."
            )
    if not any(examples.spans):
        raise ValueError(f"train_spans: `train_examples` must have texts with spans; got {len(examples)} texts and no span.")
