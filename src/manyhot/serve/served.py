"""A loaded model as the server uses it: it checks rows, computes them together, and returns JSON."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from manyhot._checks import is_number
from manyhot.decisions.rule import decide
from manyhot.serve.refusals import Refusal
from manyhot.serve.settings import ServeSettings
from manyhot.training.rows.bundle import TrainedModel, load_model
from manyhot.training.rows.explaining import can_explain
from manyhot.training.run.bundle_folder import DESCRIPTION, model_folder
from manyhot.training.spans.bundle import FoundSpan, TrainedSpanModel, is_span_bundle, load_span_model
from manyhot.training.spans.scoring import LOWEST

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Scored:
    """The model's output for one row: logits, predictions and probabilities ``[L]``."""

    logits: Tensor
    predicted: Tensor
    probabilities: Tensor | None


class Served(Protocol):
    """The interface through which the server uses a model."""

    kind: str
    digest: str

    def check(self, inputs: Sequence[Any], settings: ServeSettings) -> list[Any]:
        """The rows of a request, or a refusal."""
        ...

    def compute(self, rows: Sequence[Any]) -> list[Any]:
        """The model's output for each row."""
        ...

    def answer(self, found: Any, asked: Any) -> dict[str, Any]:
        """The JSON of one row."""
        ...

    def explain(self, rows: Sequence[Any], asked: Any) -> list[dict[str, Any]]:
        """The JSON of explanations."""
        ...

    def about(self) -> dict[str, Any]:
        """The description of the model, for the page and for clients."""
        ...


class ServedRows:
    """A model that predicts labels.

    Args:
        model: the model.
        digest: the identity of the model.
    """

    def __init__(self, model: TrainedModel, digest: str) -> None:
        self.model, self.digest = model, digest
        kind = model.inputs.kind
        self.kind = "texts" if kind == "tokens" else kind
        names = getattr(model.inputs, "names", None)
        self.columns = None if names is None else {name: place for place, name in enumerate(names)}
        self.ranks_only = model.link is None and model.calibration is None
        rule = model.rule
        listed = rule.threshold if isinstance(rule.threshold, tuple) else (rule.threshold,) * model.num_labels
        self.thresholds = None if not rule.by_threshold else [finite(each) for each in listed]
        # The probability at the threshold of each label; the softmax of a row has none.
        single = rule.by_threshold and not self.ranks_only and (model.calibration is not None or model.link != "softmax")
        cuts = torch.tensor(listed, dtype=torch.float32)[None]
        self.lines = [finite(each) for each in model.to_probabilities(cuts)[0].tolist()] if single else None

    def check(self, inputs: Sequence[Any], settings: ServeSettings) -> list[Any]:
        """Texts, rows of features or images within the limits."""
        check = {"texts": check_text, "features": self._features, "images": self._image}[self.kind]
        return [check(each, place, settings) for place, each in enumerate(inputs)]

    def compute(self, rows: Sequence[Any]) -> list[Scored]:
        """All rows at once; images grouped by size."""
        if self.kind == "images":
            logits = self._image_logits(rows)
        else:
            logits = self.model.logits(list(rows) if self.kind == "texts" else np.stack(rows))
        predicted = decide(logits, self.model.rule)
        probs: Any = [None] * len(rows) if self.ranks_only else self.model.to_probabilities(logits)
        return [Scored(*each) for each in zip(logits, predicted, probs, strict=True)]

    def answer(self, found: Scored, asked: Any) -> dict[str, Any]:
        """The predicted labels, highest score first; with ``top`` also the best labels, predicted or not."""
        labels = found.predicted.nonzero().flatten()
        order = labels[found.logits[labels].argsort(descending=True, stable=True)].tolist()
        told: dict[str, Any] = {"labels": [self.model.label_names[label] for label in order]}
        if asked.probabilities and found.probabilities is not None:
            told["probabilities"] = [finite(each) for each in found.probabilities[order].tolist()]
        if asked.scores:
            told["scores"] = [finite(each) for each in found.logits[order].tolist()]
        if asked.top:
            best = found.logits.nan_to_num(-math.inf).topk(min(asked.top, len(found.logits))).indices.tolist()
            told["top"] = [self._candidate(found, label) for label in best]
        return told

    def _candidate(self, found: Scored, label: int) -> dict[str, Any]:
        probability = None if found.probabilities is None else finite(float(found.probabilities[label]))
        return {
            "label": self.model.label_names[label],
            "score": finite(float(found.logits[label])),
            "probability": probability,
            "threshold": None if self.thresholds is None else self.thresholds[label],
            "line": None if self.lines is None else self.lines[label],
            "predicted": bool(found.predicted[label]),
        }

    def explain(self, rows: Sequence[Any], asked: Any) -> list[dict[str, Any]]:
        """The explanations of ``TrainedModel.explain``."""
        inputs = list(rows) if self.kind == "texts" else np.stack(rows) if self.kind == "features" else torch.stack(list(rows))
        found = self.model.explain(inputs, labels=asked.labels, top=asked.top, most=asked.most, steps=asked.steps)
        return [clean(each.to_json()) for each in found]

    def about(self) -> dict[str, Any]:
        """Kind, labels and rule."""
        model = self.model
        return {
            "kind": self.kind,
            "body": model.shape["body"],
            "labels": list(model.label_names),
            "features": list(self.columns) if self.columns is not None else model.inputs.width,
            "probabilities": not self.ranks_only,
            "rule": model.rule.to_json(),
            "explains": ("exactly" if model.factors() is not None else "by gradients") if can_explain(model) else None,
            "digest": self.digest,
        }

    def _features(self, row: Any, place: int, settings: ServeSettings) -> np.ndarray[Any, Any]:
        del settings
        width = self.model.inputs.width
        if isinstance(row, dict):
            if self.columns is None:
                raise Refusal(
                    422, f"inputs[{place}] must be a list of {width} numbers: the features of this model have no names."
                )
            for name, value in row.items():
                if name not in self.columns:
                    raise Refusal(422, f"inputs[{place}] must name features of the model; got {shortened(name)}.")
                # NaN is a missing value too: JSON has no NaN, but MLflow passes it.
                if value is not None and not (is_number(value) and not abs(value) > LARGEST):
                    words = f"a number of at most {LARGEST:.3g}, or null"
                    raise Refusal(422, f"inputs[{place}]: the value of {shortened(name)} must be {words}.")
            values = [row.get(name) for name in self.columns]
        elif len(row) != width:
            raise Refusal(422, f"inputs[{place}] must have {width} numbers, one for each feature; got {len(row)}.")
        else:
            values = row
        found = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
        if bool((np.abs(found) > LARGEST).any()):
            raise Refusal(422, f"inputs[{place}] must have numbers of at most {LARGEST:.3g}. Scale the features.")
        return found.astype(np.float32)

    def _image(self, image: Any, place: int, settings: ServeSettings) -> Tensor:
        channels = self.model.inputs.width
        sizes = {(len(plane), len(line)) for plane in image for line in plane}
        if len(image) != channels or len(sizes) != 1 or min(next(iter(sizes))) < 1:
            raise Refusal(422, f"inputs[{place}] must be {channels} channels of rows of equal length; got another shape.")
        height, width = next(iter(sizes))
        if channels * height * width > settings.max_pixels:
            raise Refusal(
                413, f"inputs[{place}] must have at most {settings.max_pixels:,} numbers; got {channels * height * width:,}."
            )
        return torch.tensor(image, dtype=torch.uint8).float() / 255

    def _image_logits(self, rows: Sequence[Tensor]) -> Tensor:
        logits = torch.zeros(len(rows), self.model.num_labels)
        for size in {row.shape for row in rows}:
            own = [place for place, row in enumerate(rows) if row.shape == size]
            logits[own] = self.model.logits(torch.stack([rows[place] for place in own]))
        return logits


class ServedSpans:
    """A span model.

    Args:
        model: the model.
        digest: the identity of the model.
    """

    kind = "spans"

    def __init__(self, model: TrainedSpanModel, digest: str) -> None:
        self.model, self.digest = model, digest
        self.with_low_threshold = model.with_settings(replace(model.settings, threshold=min(LOWEST, model.settings.threshold)))

    def check(self, inputs: Sequence[Any], settings: ServeSettings) -> list[Any]:
        """Texts within the limits."""
        return [check_text(each, place, settings) for place, each in enumerate(inputs)]

    def compute(self, rows: Sequence[Any]) -> list[tuple[str, list[FoundSpan]]]:
        """All texts at once, each beside its spans."""
        return list(zip(rows, self.model.predict(list(rows)), strict=True))

    def answer(self, found: tuple[str, list[FoundSpan]], asked: Any) -> dict[str, Any]:
        """The spans in reading order; ``end`` is exclusive. With ``top`` also the best spans, predicted or not."""
        text, spans = found
        told: dict[str, Any] = {"spans": [self._told(span, asked) for span in spans]}
        if asked.top:
            with warnings.catch_warnings():
                # At a low threshold there may be too many candidates, which is a warning; the best ones are enough.
                warnings.filterwarnings("ignore", message="decode_spans")
                candidates = self.with_low_threshold.predict([text])[0]
            best = sorted(candidates, key=lambda span: -span.score)[: asked.top]
            own = {span[:3] for span in spans}
            told["top"] = [{**self._told(span, asked), "predicted": span[:3] in own} for span in best]
        return told

    @staticmethod
    def _told(span: FoundSpan, asked: Any) -> dict[str, Any]:
        told: dict[str, Any] = {"type": span.type, "start": span.start, "end": span.end}
        if asked.probabilities:
            told["probability"] = finite(span.probability)
        if asked.scores:
            told["score"] = finite(span.score)
        return told

    def explain(self, rows: Sequence[Any], asked: Any) -> list[dict[str, Any]]:
        """The explanations of ``TrainedSpanModel.explain``; ``labels`` are types."""
        found = self.model.explain(list(rows), types=asked.labels, top=asked.top, most=asked.most, steps=asked.steps)
        return [clean(each.to_json()) for each in found]

    def about(self) -> dict[str, Any]:
        """Kind and types."""
        return {
            "kind": self.kind,
            "body": self.model.shape["body"],
            "labels": list(self.model.type_names),
            "probabilities": True,
            "explains": "by gradients",
            "digest": self.digest,
        }


def load_served(folder: Path) -> ServedRows | ServedSpans:
    """Load the model of a folder and predict one row, so that the first request is not slow."""
    digest = bundle_digest(folder)
    if is_span_bundle(folder):
        spans = ServedSpans(load_span_model(folder), digest)
        spans.compute(["warm up"])
        return spans
    model = load_model(folder)
    served = ServedRows(model, digest)
    width = model.inputs.width
    first: Any = {"texts": "warm up", "features": np.zeros(width, np.float32), "images": torch.zeros(width, 8, 8)}
    served.compute([first[served.kind]])
    return served


def bundle_digest(folder: Path) -> str:
    """The identity of the model in a folder: a digest of its description, which contains the digest of the weights."""
    import hashlib

    return hashlib.sha256((model_folder(folder) / DESCRIPTION).read_bytes()).hexdigest()[:12]


def check_text(text: str, place: int, settings: ServeSettings) -> str:
    """A text within the limits."""
    if len(text) > settings.max_characters:
        raise Refusal(413, f"inputs[{place}] must have at most {settings.max_characters:,} characters; got {len(text):,}.")
    return text


def finite(value: float) -> float | None:
    """A finite number rounded to six decimals; None for others."""
    return round(value, 6) if math.isfinite(value) else None


def clean(data: Any) -> Any:
    """``data`` with None in place of infinities and NaN."""
    if isinstance(data, float):
        return finite(data)
    if isinstance(data, dict):
        return {key: clean(value) for key, value in data.items()}
    return [clean(value) for value in data] if isinstance(data, (list, tuple)) else data


def shortened(text: str) -> str:
    """A client's text for a message, shortened."""
    return repr(text if len(text) <= 60 else text[:59] + "\u2026")
