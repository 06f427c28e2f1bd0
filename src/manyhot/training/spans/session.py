"""A run on spans: the settings chosen from the data, the network, its fit and the finished model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from manyhot.data.spans.examples import SpanExamples
from manyhot.heads.global_pointer import EfficientGlobalPointer
from manyhot.losses.catalog import get_loss
from manyhot.training.run.device import choose_device
from manyhot.training.run.folder import RunFolder
from manyhot.training.run.processes import Processes
from manyhot.training.run.progress import Event, Progress
from manyhot.training.run.session import RunSession
from manyhot.training.run.versions import versions
from manyhot.training.spans.budget import budgeted, starting_scores
from manyhot.training.spans.bundle import TrainedSpanModel
from manyhot.training.spans.fit import SpanFit, SpanLoss
from manyhot.training.spans.inputs import VocabularyInputs
from manyhot.training.spans.network import SpanNetwork, SpanObjective
from manyhot.training.spans.options import check_span_settings_used, window_remarks
from manyhot.training.spans.pretrained import SubwordInputs, open_pretrained
from manyhot.training.spans.scoring import score_spans, tuned_threshold
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.teacher import open_span_teacher, taught_spans
from manyhot.training.spans.tokens import offsets_of, tokens_for
from manyhot.training.spans.windows import Windows, make_windows

METRIC = "span-F1"
# Decoding is nested if more than this share of the spans lies inside others; fewer are taken for annotation errors.
NESTED_SHARE = 0.001
SHORTEST = 32
# With fewer marked spans the head reads the vectors of the tokens too, and learns types sooner.
FEW_SPANS = 10_000
RATES = {"pretrained": 3e-5, "transformer": 5e-4}
SCRATCH_RATE = 2e-3


class SpanSession(RunSession):
    """One run: the settings chosen from the data, and the fit.

    Args:
        examples: texts with marked spans.
        settings: as they were given.
        validation: texts for early stopping; None holds out a share of ``examples``.
        folder: where checkpoints and the log go; None keeps everything in memory.
        progress: is called with every event.
    """

    def __init__(
        self,
        examples: SpanExamples,
        settings: SpanSettings,
        validation: SpanExamples | None,
        folder: RunFolder | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(folder, progress, checkpoint_seconds=settings.checkpoint_seconds, metric=METRIC)
        self.device = Processes.current().device(choose_device(settings.device))
        self.settings = resolved(settings, examples)
        validated = validation is not None
        if validation is None:
            examples, validation = hold_out(examples, self.settings)
        check_span_settings_used(settings, self.settings, validated=validated, held_out=bool(validation))
        self.type_names = examples.type_names
        if settings.teacher:
            teacher = open_span_teacher(settings.teacher, examples, device=str(self.device))
            examples = taught_spans(teacher, examples, settings.teacher_share)
        # Metrics count hard spans.
        self.held = None if validation is None else validation.hardened()
        self.held_windows: Windows | None = None
        info = get_loss(self.settings.loss)
        self.link = (info.soft_link if examples.soft else info.link) or "hard"
        self.inputs, shape, self.weights = self._inputs(examples)
        chosen = self.settings
        self.shape: dict[str, Any] = {"body": chosen.body, "hidden": chosen.hidden, "layers": chosen.layers, **shape}
        self.shape |= {"dropout": chosen.dropout, "head": chosen.head, "head_size": chosen.head_size, "rotary": chosen.rotary}
        self.shape |= {"num_types": len(self.type_names), "skip": bool(chosen.skip)}
        self.windows = self._windows(examples)
        # Prediction uses no longer windows than training: the model has only learned distances up to that length.
        size = min(self.settings.max_tokens, max(SHORTEST, *map(len, self.windows.rows)))
        self.idle = window_remarks(settings, size, cut=len(self.windows.rows) > len(self.windows.offsets))
        self.settings = replace(self.settings, max_tokens=size, overlap=min(self.settings.overlap, size // 2))
        self.settings = budgeted(self.settings, self.windows.rows)

    def _inputs(self, examples: SpanExamples) -> tuple[VocabularyInputs | SubwordInputs, dict[str, Any], dict[str, Any]]:
        chosen = self.settings
        if chosen.body == "pretrained":
            inputs, shape, weights, longest = open_pretrained(chosen.pretrained)
            size = min(chosen.max_tokens, longest)
            self.settings = replace(chosen, max_tokens=size, overlap=min(chosen.overlap, size // 2))
            return inputs, shape, weights
        made = VocabularyInputs.fit(examples.texts, offsets_of(examples, chosen.tokens), chosen.tokens, chosen)
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
        if isinstance(network.head, EfficientGlobalPointer):
            start = starting_scores(self.windows.rows, len(self.type_names), self.settings.loss)
            network.head.start_at(torch.from_numpy(start))
        return network

    def train(self, network: Any = None, objective: SpanLoss | None = None) -> TrainedSpanModel:
        """The whole run, with a new network and the settings' loss unless others are given."""
        network = self.network() if network is None else network
        objective = objective or SpanObjective(self.settings.loss, self.settings.rdrop)
        texts, tokens = len(self.windows.offsets), sum(map(len, self.windows.offsets))
        self.tell(
            Event("start", f"{self.settings.body} body on {texts:,} texts, {tokens:,} {self.inputs.tokens}, {self._types()}")
        )
        self.tell(Event("note", f"in training {self.windows.report()}"))
        for line in self.idle:
            self.tell(Event("note", line))
        fit = SpanFit(
            network.to(self.device),
            objective,
            self.windows.rows,
            num_types=len(self.type_names),
            settings=self.settings,
            device=self.device,
        )
        held = self.held is not None and len(self.held) > 0
        self.run("final", fit, start=_keep_learning_rate, score=(lambda: self.f1(network, fit)) if held else None)
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
        self.tell(Event("rule", f"spans score above {threshold:.2f}; {METRIC} {value:.4f} on held-out texts"))
        return model

    def _types(self) -> str:
        return f"{len(self.type_names)} types, {self.settings.decode} spans, {self.device}"

    def f1(self, network: Any, fit: SpanFit) -> float:
        """F1 on the held-out texts with the weights that the model would have now, at the best threshold if that is tuned.

        With a threshold of 0 it would be 0 for many epochs, because the scores of spans reach 0 late.
        """
        if self.held is None:
            return 0.0
        own = {name: each.clone() for name, each in network.state_dict().items()}
        fit.take(fit.weights())
        model = TrainedSpanModel(network, self.shape, self.inputs, self.type_names, self.settings)
        self.held_windows = self.held_windows or model.windows(self.held)
        if self.settings.tune_threshold:
            value = tuned_threshold(model, self.held, windows=self.held_windows)[1] or 0.0
        else:
            value = score_spans(model, self.held, windows=self.held_windows).f1()
        network.load_state_dict(own)
        return value

    def model(self, network: Any, fit: SpanFit) -> TrainedSpanModel:
        """The finished model."""
        unaligned = len(self.windows.alignment.unaligned)
        about: dict[str, Any] = {"texts": len(self.windows.offsets), "versions": versions(), "unaligned_spans": unaligned}
        about |= {"epochs_run": fit.state.epoch, "windows": len(self.windows.rows), "cut_spans": self.windows.cut}
        if fit.stopping.weights:
            about |= {"validation_f1": fit.stopping.best, "best_epoch": fit.stopping.best_epoch}
        return TrainedSpanModel(network, self.shape, self.inputs, self.type_names, self.settings, link=self.link, about=about)


def resolved(settings: SpanSettings, examples: SpanExamples) -> SpanSettings:
    """The settings with every value that depends on the data filled in."""
    tokens, body = settings.tokens, settings.body
    if body in ("words", "characters"):
        if tokens not in ("auto", body):
            raise ValueError(f"train: `tokens` must be {body!r} for the body {body!r}; got {tokens!r}.")
        tokens = body
    elif tokens == "auto":
        tokens = "words" if examples.tokens is not None and body != "auto" else tokens_for(examples.texts)
    decode = settings.decode
    if decode == "auto":
        hard = examples.hardened()
        decode = "nested" if hard.num_nested() > NESTED_SHARE * max(hard.num_spans, 1) else "flat"
    body = tokens if body == "auto" else body
    layers = settings.layers or (4 if body == "transformer" else 2)
    rate = settings.learning_rate or RATES.get(body, SCRATCH_RATE)
    affixes = settings.affixes if tokens == "words" and body != "pretrained" else 0
    skip = examples.num_spans < FEW_SPANS if settings.skip is None else settings.skip
    found = replace(settings, tokens=tokens, body=body, decode=decode, layers=layers, learning_rate=rate, affixes=affixes)
    return replace(found, skip=skip and body in ("words", "characters"))


def hold_out(examples: SpanExamples, settings: SpanSettings) -> tuple[SpanExamples, SpanExamples | None]:
    """``(training texts, held-out texts)``: a random share, drawn with the seed; None if that is no text or all texts."""
    share = round(settings.validation * len(examples))
    if not 0 < share < len(examples):
        return examples, None
    order = np.random.default_rng([settings.seed, 1 << 20]).permutation(len(examples)).tolist()
    return examples[sorted(order[share:])], examples[sorted(order[:share])]


def _keep_learning_rate() -> None:
    """Nothing to choose: span models take the learning rate from the settings."""
