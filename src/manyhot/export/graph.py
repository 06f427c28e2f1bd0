"""A model as one traceable module of tensor operations, from inputs to logits, probabilities and decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.decisions.best_labels import top_mask
from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.rule import DecisionRule
from manyhot.decisions.set_values import LARGEST, SetValues
from manyhot.training.rows.bodies.networks import ConvBody, HiddenBody, LinearBody
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.inputs.features import FeatureInputs
from manyhot.training.rows.inputs.images import ImageInputs
from manyhot.training.rows.inputs.texts import TextInputs
from manyhot.training.rows.inputs.tokens import TokenInputs

INF = float("inf")
# Numbers of the table of label sets in a graph: 200 MB.
LARGEST_SETS = 50_000_000


class Port(NamedTuple):
    """An input of the graph.

    Args:
        name: what it is called.
        axes: a name for each axis that may have any size, None for a fixed one.
        meaning: one line.
    """

    name: str
    axes: tuple[str | None, ...]
    meaning: str


class ModelGraph(nn.Module):
    """Everything of a model after its vectoriser or tokeniser.

    Args:
        model: the model, on the CPU.
    """

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self.entry, self.ports = _entry_of(model)
        self.link = None if model.link is None and model.calibration is None else _Link(model.calibration or model.link)
        self.rule = _Rule(model.rule, model.num_labels)
        self.eval()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """``logits [B, L]``, ``probabilities [B, L]`` unless scores only rank, and ``decisions [B, L]``, bool."""
        logits = self.entry(*inputs)
        decisions = self.rule(logits)
        return (logits, decisions) if self.link is None else (logits, self.link(logits), decisions)

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs of ``forward``."""
        return ["logits", "decisions"] if self.link is None else ["logits", "probabilities", "decisions"]


def graph_inputs(model: TrainedModel, inputs: Any, *, batch_size: int = 64) -> Iterator[tuple[Tensor, ...]]:
    """Inputs of the model's graph for some rows, batch by batch.

    Args:
        model: the model.
        inputs: what ``TrainedModel.predict`` takes.
        batch_size: rows of a batch.
    """
    if isinstance(model.inputs, (TextInputs, TokenInputs)):
        rows = model.inputs.rows(inputs)
        for start in range(0, rows.shape[0], batch_size):
            part = rows[slice(start, min(start + batch_size, rows.shape[0]))]
            yield _padded(part) if isinstance(model.inputs, TextInputs) else _tokens(part, model.inputs.padding)
        return
    raw = inputs
    if isinstance(model.inputs, FeatureInputs):
        if hasattr(inputs, "features"):
            named = inputs if model.inputs.names is None else inputs.with_features(model.inputs.names)
            raw = named.features
        raw = np.asarray(raw.toarray() if hasattr(raw, "toarray") else raw, dtype=np.float32)
    elif hasattr(inputs, "images"):
        raw = inputs.images
    if isinstance(raw, Tensor) and not raw.is_floating_point():
        raw = raw.float() / 255
    for start in range(0, len(raw), batch_size):
        yield (torch.as_tensor(raw[start : start + batch_size]),)


def _padded(rows: Any) -> tuple[Tensor, Tensor]:
    """``(columns [B, K], values [B, K])`` of CSR rows; padding is column 0 with the value 0."""
    lengths = np.diff(rows.indptr)
    there = np.arange(max(1, lengths.max(initial=0))) < lengths[:, None]
    columns, values = np.zeros(there.shape, dtype=np.int64), np.zeros(there.shape, dtype=np.float32)
    columns[there], values[there] = rows.indices, rows.data
    return torch.from_numpy(columns), torch.from_numpy(values)


def _tokens(rows: Any, padding: int) -> tuple[Tensor, Tensor]:
    ids, there = rows.padded(padding)
    return ids, there.long()


def _entry_of(model: TrainedModel) -> tuple[nn.Module, tuple[Port, ...]]:
    body, inputs = model.body, model.inputs
    if isinstance(inputs, TextInputs) and isinstance(body, (LinearBody, HiddenBody)):
        columns = Port("columns", ("batch", "entries"), "the numbers of a text's features; 0 where a row is shorter")
        values = Port("values", ("batch", "entries"), "their values; 0 where a row is shorter")
        return _Listed(body), (columns, values)
    if isinstance(inputs, FeatureInputs) and isinstance(body, (LinearBody, HiddenBody)):
        return _Features(body, inputs), (Port("features", ("batch", None), "raw features; NaN is a missing value"),)
    if isinstance(inputs, ImageInputs) and isinstance(body, ConvBody):
        meaning = "images in [0, 1], channels first"
        return _Images(body, inputs), (Port("images", ("batch", None, "height", "width"), meaning),)
    if isinstance(inputs, TokenInputs):
        ids = Port("input_ids", ("batch", "tokens"), "token numbers")
        mask = Port("attention_mask", ("batch", "tokens"), "1 for tokens, 0 for padding")
        return _Tokens(body), (ids, mask)
    raise ValueError(f"export: a model with the body {model.shape['body']!r} on {inputs.kind} cannot be exported.")


class _Listed(nn.Module):
    """Texts: a weighted sum of the listed rows of the first table."""

    def __init__(self, body: LinearBody | HiddenBody) -> None:
        super().__init__()
        self.first = body.head if isinstance(body, LinearBody) else body.first
        self.rest = None if isinstance(body, LinearBody) else nn.Sequential(body.activation, body.head)

    def forward(self, columns: Tensor, values: Tensor) -> Tensor:
        weight: Any = self.first.weight
        summed = (values.unsqueeze(1) @ weight[columns]).squeeze(1) + self.first.bias
        return summed if self.rest is None else self.rest(summed)  # type: ignore[no-any-return]


class _Features(nn.Module):
    """Raw features: missing values become the mean, columns are scaled, then the body."""

    means: Tensor
    scale: Tensor

    def __init__(self, body: nn.Module, inputs: FeatureInputs) -> None:
        super().__init__()
        self.body, self.sparse = body, inputs.sparse
        self.register_buffer("means", torch.from_numpy(inputs.means))
        self.register_buffer("scale", torch.from_numpy(inputs.scale))

    def forward(self, features: Tensor) -> Tensor:
        filled = torch.where(features.isnan(), self.means, features)
        scaled = filled / self.scale if self.sparse else (filled - self.means) / self.scale
        return self.body(scaled)  # type: ignore[no-any-return]


class _Images(nn.Module):
    means: Tensor
    scale: Tensor

    def __init__(self, body: nn.Module, inputs: ImageInputs) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("means", inputs.means[:, None, None])
        self.register_buffer("scale", inputs.scale[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        return self.body((images - self.means) / self.scale)  # type: ignore[no-any-return]


class _Tokens(nn.Module):
    """An encoder with mean pooling and a head, or a whole classifier."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        body: Any = self.body
        if hasattr(body, "encoder"):
            states = body.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            weight = attention_mask.to(states.dtype)[:, :, None]
            return body.head((states * weight).sum(dim=1) / weight.sum(dim=1))  # type: ignore[no-any-return]
        return body.model(input_ids=input_ids, attention_mask=attention_mask).logits  # type: ignore[no-any-return]


class _Link(nn.Module):
    """Probabilities by a link or a calibration, from operations that ONNX supports."""

    def __init__(self, link: str | Calibration | None) -> None:
        super().__init__()
        self.kind = link.kind if isinstance(link, Calibration) else str(link)
        if isinstance(link, Calibration):
            for name in ("slope", "intercept", "knots", "levels"):
                self.register_buffer(name, getattr(link, name).float())

    def forward(self, logits: Tensor) -> Tensor:
        if self.kind == "softmax":
            return torch.softmax(logits, dim=-1)
        if self.kind in ("hard", "soft"):
            return torch.sigmoid(2 * logits if self.kind == "soft" else logits)
        if self.kind == "isotonic":
            return self._interpolated(logits)
        return torch.sigmoid(self.slope * logits + self.intercept)  # type: ignore[operator]

    def _interpolated(self, scores: Tensor) -> Tensor:
        knots: Any = self.knots
        levels: Any = self.levels
        if len(knots) == 1:
            return torch.where(scores.isnan(), scores, levels)
        right = (knots < scores.unsqueeze(-1)).sum(dim=-1).clamp(1, len(knots) - 1)
        start, stop = knots[right - 1], knots[right]
        apart = torch.where(stop > start, stop - start, 1.0)
        share = torch.where(stop > start, (scores - start) / apart, 0.5).clamp(0, 1)
        return levels[right - 1] + share * (levels[right] - levels[right - 1])  # type: ignore[no-any-return]


class _Sets(nn.Module):
    """``SetValues.chosen``, with a dense table of the sets' labels."""

    members: Tensor
    worth: Tensor

    def __init__(self, sets: SetValues, num_labels: int, lower: int, upper: int | None) -> None:
        super().__init__()
        if len(sets.sets) * num_labels > LARGEST_SETS:
            raise ValueError(
                f"export: {len(sets.sets):,} label sets of {num_labels:,} labels are too large a table for a graph."
                " Tune thresholds instead: manyhot tune --metric micro-F1"
            )
        table = torch.zeros(len(sets.sets), num_labels)
        for place, own in enumerate(sets.sets):
            table[place, list(own)] = 1.0
        most = num_labels if upper is None else upper
        barred = torch.tensor([not lower <= len(own) <= most for own in sets.sets])
        self.register_buffer("members", table)
        self.register_buffer("worth", torch.tensor(sets.values).masked_fill(barred, -INF))
        self.other = max(sets.other, -LARGEST * num_labels)

    def forward(self, margin: Tensor, free: Tensor) -> Tensor:
        barred = margin.isnan() | (margin == -INF)
        counted = torch.where(barred, 0.0, margin.clamp(-LARGEST, LARGEST))
        totals = counted @ self.members.T + self.worth
        totals = torch.where((barred.to(totals.dtype) @ self.members.T) > 0, -INF, totals)
        best, place = totals.max(dim=-1, keepdim=True)
        freely = torch.where(free, counted, 0.0).sum(dim=-1, keepdim=True) + self.other
        listed = self.members[place.squeeze(-1)] > 0
        return torch.where((best >= freely) & (best > -INF), listed, free)


class _Rule(nn.Module):
    """``manyhot.decide`` for one rule."""

    cut: Tensor

    def __init__(self, rule: DecisionRule, num_labels: int) -> None:
        super().__init__()
        self.per_label = isinstance(rule.threshold, tuple)
        listed = rule.threshold if isinstance(rule.threshold, tuple) else (rule.threshold,)
        # Rounded down, so that a float32 score is above it where it is above the threshold itself.
        near = [np.float32(value) for value in listed]
        down = [np.nextafter(n, np.float32(-INF)) if float(n) > value else n for n, value in zip(near, listed, strict=True)]
        self.register_buffer("cut", torch.tensor([float(value) for value in down]))
        top = rule.top_k
        self.lower = min(rule.min_labels if top is None else top, num_labels)
        upper = rule.max_labels if top is None else top
        self.upper = None if upper is None else min(upper, num_labels)
        self.sets = None if rule.sets is None else _Sets(rule.sets, num_labels, self.lower, self.upper)

    def forward(self, logits: Tensor) -> Tensor:
        chosen = self._by_threshold(logits)
        return chosen if self.sets is None else self.sets(logits - self.cut, chosen)

    def _by_threshold(self, logits: Tensor) -> Tensor:
        chosen = logits > self.cut
        if self.upper is None and not self.lower:
            return chosen
        key = logits - self.cut if self.per_label else logits
        key = torch.where(key.isnan(), -INF, key)
        if self.upper == self.lower:
            return top_mask(key, self.lower)
        if self.upper is not None:
            chosen = chosen & top_mask(key, self.upper)
        return chosen | top_mask(key, self.lower) if self.lower else chosen
