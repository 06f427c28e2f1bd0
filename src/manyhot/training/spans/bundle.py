"""A trained span model and the folder it is saved in: safetensors and JSON, without executable content."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from manyhot._checks import check_at_least
from manyhot._files import make_folder, remove_drafts, write_json, write_whole
from manyhot.data.spans.examples import SpanExamples, as_span_examples
from manyhot.decisions.span_choice import MODES
from manyhot.decisions.span_decoding import Span
from manyhot.explain.contributions import STEPS
from manyhot.explain.span_explanation import TextExplanation
from manyhot.training.run.bundle_folder import (
    DESCRIPTION,
    BundleError,
    check_tensors,
    model_folder,
    read_description,
    read_weights,
    reading,
    remove_others,
)
from manyhot.training.run.checkpoint import pack
from manyhot.training.run.schema import TABLE, TEXT, TRUTH, Schema, check_schema, choice, listed, number, shown, whole
from manyhot.training.spans.inputs import VocabularyInputs
from manyhot.training.spans.network import SpanNetwork
from manyhot.training.spans.pretrained import SubwordInputs
from manyhot.training.spans.settings import BEFORE, SPAN_BODIES, SPAN_HEADS, SpanSettings
from manyhot.training.spans.windows import Windows, decode_windows, make_windows

SPAN_FORMAT = "manyhot-spans-1"
SPAN_INPUTS: dict[str, Any] = {each.kind: each for each in (VocabularyInputs, SubwordInputs)}
MODEL_SCHEMA: Schema = {
    "format": TEXT,
    "weights": TEXT,
    "shape": TABLE,
    "types": listed(TEXT),
    "inputs": TABLE,
    "settings": TABLE,
    "about": TABLE,
    "link": choice("hard", "soft").or_missing(),
}
SHAPE_SCHEMA: Schema = {
    "body": choice(*(name for name in SPAN_BODIES if name != "auto")),
    "hidden": whole(1),
    "layers": whole(1, 1000),
    "dropout": number(0, 1),
    "head": choice(*SPAN_HEADS),
    "head_size": whole(1),
    "rotary": TRUTH,
    "num_types": whole(1),
    "tables": listed(whole(2)).or_missing(),
    "uses": listed(whole(0)).or_missing(),
    "letters": whole(0).or_missing(),
    "skip": TRUTH.or_missing(),
    "config": TABLE.or_missing(),
    "around": TABLE.or_missing(),
}
# Texts per chunk in ``iter_predict``.
CHUNK = 4096


class FoundSpan(NamedTuple):
    """A predicted span: ``text[start:end]`` is of ``type``. ``link`` is the model's link, ``"hard"`` or ``"soft"``."""

    type: str
    start: int
    end: int
    score: float
    link: str = "hard"

    @property
    def probability(self) -> float:
        """``sigma(score)`` for a model trained on hard labels, ``sigma(2 score)`` for ZLPR trained on soft ones."""
        score = 2 * self.score if self.link == "soft" else self.score
        return 1 / (1 + math.exp(-score)) if score > -700 else 0.0


class TrainedSpanModel:
    """Inputs, network and decoding of a trained span model. Made by ``train_spans`` and ``load_span_model``.

    Args:
        network: the module, on its device.
        shape: the description that ``SpanNetwork`` is built from.
        inputs: the fitted encoding of texts.
        type_names: one name per type.
        settings: the resolved settings it was trained with.
        link: how scores become probabilities, ``"hard"`` or ``"soft"``.
        about: facts about the run: number of texts, versions, F1 on held-out texts.
    """

    def __init__(
        self,
        network: SpanNetwork,
        shape: dict[str, Any],
        inputs: VocabularyInputs | SubwordInputs,
        type_names: tuple[str, ...],
        settings: SpanSettings,
        *,
        link: str = "hard",
        about: dict[str, Any] | None = None,
    ) -> None:
        self.network = network.eval()
        self.shape, self.inputs, self.type_names, self.settings = shape, inputs, type_names, settings
        self.link, self.about = link, about or {}

    def __repr__(self) -> str:
        return f"TrainedSpanModel({self.shape['body']}, {len(self.type_names):,} types)"

    def predict(self, texts: SpanExamples | Sequence[str], *, batch_size: int = 64) -> list[list[FoundSpan]]:
        """The spans of each text, in reading order.

        Args:
            texts: strings, or ``SpanExamples``. If these have tokens, a word model uses them.
            batch_size: windows per batch.
        """
        return list(self.iter_predict(texts, batch_size=batch_size))

    def iter_predict(self, texts: SpanExamples | Sequence[str], *, batch_size: int = 64) -> Iterator[list[FoundSpan]]:
        """The spans of each text, as they are found."""
        check_at_least("TrainedSpanModel.predict", "batch_size", batch_size, 1)
        examples = as_span_examples("TrainedSpanModel.predict", texts)
        for start in range(0, len(examples), CHUNK):
            yield from self.read_windows(self.windows(examples[start : start + CHUNK]), batch_size=batch_size)

    def with_settings(self, settings: SpanSettings) -> TrainedSpanModel:
        """The same network with other settings for decoding."""
        return TrainedSpanModel(
            self.network, self.shape, self.inputs, self.type_names, settings, link=self.link, about=self.about
        )

    def windows(self, examples: SpanExamples) -> Windows:
        """The windows of texts, for callers that process them more than once."""
        chosen = self.settings
        return make_windows(self.inputs, examples, (), max_tokens=chosen.max_tokens, overlap=chosen.overlap)

    def read_windows(self, windows: Windows, *, batch_size: int = 64) -> Iterator[list[FoundSpan]]:
        """The spans of each text of ``windows``, as they are found."""
        chosen = self.settings
        spans = decode_windows(
            windows,
            lambda batch: self.network.decode(batch, threshold=chosen.threshold, mode=chosen.decode),
            num_types=len(self.type_names),
            device=self.device,
            mode=chosen.decode,
            threshold=chosen.threshold,
            batch_size=batch_size,
        )
        for own, offsets in zip(spans, windows.offsets, strict=True):
            named = [self._named(span, offsets) for span in own]
            # A subword of blanks alone has no characters left, so a span that starts after its end is dropped.
            yield [span for span in named if span.start < span.end]

    def _named(self, span: Span, offsets: list[tuple[int, int]]) -> FoundSpan:
        start, end = offsets[span.start][0], offsets[span.end][1]
        return FoundSpan(self.type_names[span.type], start, end, span.score, self.link)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.network.parameters()).device

    def probability(self, score: float) -> float:
        """The probability of a span with this score, by the model's link."""
        return FoundSpan("", 0, 0, score, self.link).probability

    def explain(
        self,
        texts: SpanExamples | Sequence[str],
        *,
        types: Sequence[str] | None = None,
        top: int = 3,
        most: int = 8,
        steps: int = STEPS,
    ) -> list[TextExplanation]:
        """Which tokens count for and against each span: gradient times input, with the unexplained rest.

        Args:
            texts: strings, or ``SpanExamples``.
            types: the types to explain; None for all.
            top: explain at least this many spans per text: the predicted ones, then the best others.
            most: list at most this many tokens per span.
            steps: points on the path from the baseline (unknown tokens) at which gradients are taken; more are more exact.
        """
        from manyhot.training.spans.explaining import explain_spans

        examples = as_span_examples("TrainedSpanModel.explain", texts)
        return list(explain_spans(self, examples, types=types, top=top, most=most, steps=steps))

    def describe(self) -> dict[str, Any]:
        """A description of the model, ready for JSON or a table."""
        return {
            "task": "spans",
            "body": self.shape["body"],
            "tokens": self.inputs.tokens,
            "types": list(self.type_names),
            "head": self.shape["head"],
            "parameters": sum(each.numel() for each in self.network.parameters()),
            "loss": self.settings.loss,
            "link": self.link,
            "decode": self.settings.decode,
            "settings": self.settings.to_dict(),
            **self.about,
        }

    def save(self, folder: str | Path) -> None:
        """Write the bundle: ``model.json``, written last and atomically, and the weights it names."""
        make_folder(folder := Path(folder))
        remove_drafts(folder)
        content = pack(dict(self.network.state_dict()), {"format": SPAN_FORMAT})
        weights = f"weights-{hashlib.sha256(content).hexdigest()[:12]}.safetensors"
        write_whole(folder / weights, content)
        data = {
            "format": SPAN_FORMAT,
            "weights": weights,
            "shape": self.shape,
            "types": list(self.type_names),
            "inputs": self.inputs.to_json(),
            "settings": self.settings.to_dict(),
            "about": self.about,
            "link": self.link,
        }
        write_json(folder / DESCRIPTION, data)
        remove_others(folder, "weights-*.safetensors", (weights,))


def load_span_model(folder: str | Path, *, device: str = "cpu") -> TrainedSpanModel:
    """Load a bundle. Names, sizes and the checksum are checked; nothing is unpickled or downloaded.

    Args:
        folder: where ``TrainedSpanModel.save`` wrote it, or the folder of a run.
        device: where the network goes.

    Raises:
        BundleError: if the folder does not hold a complete span model.

    Example:
        >>> import tempfile
        >>> from manyhot.data.spans.examples import TextSpan
        >>> from manyhot.training.spans.train import train_spans
        >>> examples = SpanExamples(["Ada met Bob"] * 8, [[TextSpan("PER", 0, 3), TextSpan("PER", 8, 11)]] * 8)
        >>> model = train_spans(examples, SpanSettings(hidden=8, epochs=1, validation=0.0))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(folder)
        ...     load_span_model(folder).type_names
        ('PER',)
    """
    folder = model_folder(folder)
    data = read_description("load_span_model", folder, SPAN_FORMAT)
    with reading("load_span_model", folder):
        return _assemble(folder, data, device)


def is_span_bundle(folder: str | Path) -> bool:
    """Whether a folder, or the model in a run folder, holds a span model."""
    try:
        read_description("is_span_bundle", model_folder(folder), SPAN_FORMAT)
    except BundleError:
        return False
    return True


def _assemble(folder: Path, data: dict[str, Any], device: str) -> TrainedSpanModel:
    who = "load_span_model"
    check_schema("model", data, MODEL_SCHEMA)
    names, shape, inputs_data = tuple(data["types"]), dict(data["shape"]), dict(data["inputs"])
    check_schema("shape", shape, SHAPE_SCHEMA)
    if shape["num_types"] != len(names) or len(set(names)) != len(names):
        raise BundleError(f"{who}: `types` must be {shape['num_types']} different names; got {len(names)}.")
    settings = SpanSettings.from_dict(BEFORE | data["settings"])
    if settings.decode not in MODES:
        raise BundleError(f"{who}: `decode` must be one of {', '.join(MODES)}; got {settings.decode!r}.")
    if settings.body != shape["body"]:
        raise BundleError(f"{who}: `shape.body` must be the body of the settings, {settings.body!r}; got {shape['body']!r}.")
    kind = SPAN_INPUTS.get(str(inputs_data.get("kind")))
    if kind is None:
        raise BundleError(
            f"{who}: `inputs.kind` must be one of {', '.join(SPAN_INPUTS)}; got {shown(inputs_data.get('kind'))}."
        )
    check_schema("inputs", inputs_data, kind.schema)
    inputs = kind.from_json(inputs_data)
    for name, wanted in inputs.shape().items():
        if shape.get(name) != wanted:
            raise BundleError(f"{who}: `shape.{name}` must be {wanted} for these inputs; got {shown(shape.get(name))}.")
    own = read_weights(who, folder, data["weights"])
    with torch.device("meta"):
        check_tensors(who, SpanNetwork(shape).state_dict(), own)
    # Building a network draws random weights; the caller's random state must not change.
    with torch.random.fork_rng(devices=[]):
        network = SpanNetwork(shape)
    network.load_state_dict(own)
    link, about = data.get("link", "hard"), dict(data["about"])
    return TrainedSpanModel(network.to(device), shape, inputs, names, settings, link=link, about=about)
