"""A model as one traceable module of tensor operations, from inputs to logits, probabilities and decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.decisions.rule import DecisionRule
from manyhot.export.decision_graph import LinkGraph, RuleGraph
from manyhot.training.rows.bodies.networks import ConvBody, HiddenBody, LinearBody
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.bodies.wide import WideBody
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.inputs.features import FeatureInputs
from manyhot.training.rows.inputs.images import ImageInputs
from manyhot.training.rows.inputs.texts import TextInputs
from manyhot.training.rows.inputs.tokens import TokenInputs


class Port(NamedTuple):
    """An input of the graph.

    Args:
        name: its name.
        axes: a name for each dynamic axis, None for a fixed one.
        meaning: a one-line description.
    """

    name: str
    axes: tuple[str | None, ...]
    meaning: str


class ModelGraph(nn.Module):
    """A model without its vectoriser or tokeniser.

    Args:
        model: the model, on the CPU.
        decision: the decision rule; None uses the model's own.
    """

    def __init__(self, model: TrainedModel, decision: DecisionRule | None = None) -> None:
        super().__init__()
        self.decision = decision or model.rule
        self.entry, self.ports = _entry_of(model)
        self.link = None if model.link is None and model.calibration is None else LinkGraph(model.calibration or model.link)
        self.rule = RuleGraph(self.decision, model.num_labels)
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
        inputs: inputs of ``TrainedModel.predict``.
        batch_size: the number of rows in a batch.
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
    check_exportable(model)
    if isinstance(inputs, TextInputs) and isinstance(body, (LinearBody, HiddenBody, WideBody)):
        columns = Port("columns", ("batch", "entries"), "the feature ids of a text, padded with 0")
        values = Port("values", ("batch", "entries"), "the values of these features, padded with 0")
        return _Listed(body), (columns, values)
    if isinstance(inputs, FeatureInputs) and isinstance(body, (LinearBody, HiddenBody)):
        return _Features(body, inputs), (Port("features", ("batch", None), "raw features; NaN is a missing value"),)
    if isinstance(inputs, ImageInputs) and isinstance(body, ConvBody):
        meaning = "images in [0, 1], channels first"
        return _Images(body, inputs), (Port("images", ("batch", None, "height", "width"), meaning),)
    if isinstance(inputs, TokenInputs):
        ids = Port("input_ids", ("batch", "tokens"), "token ids")
        mask = Port("attention_mask", ("batch", "tokens"), "1 for tokens, 0 for padding")
        return _Tokens(body), (ids, mask)
    raise ValueError(f"export: a model with the body {model.shape['body']!r} on {inputs.kind} cannot be exported.")


def check_exportable(model: TrainedModel) -> None:
    """Raise an error that gives the reason if the body cannot be exported."""
    reason = get_body(model.shape["body"]).no_export
    if reason:
        raise ValueError(
            f"export: a model with the body {model.shape['body']!r} cannot be exported: {reason}. Use manyhot serve or manyhot"
            " predict, or train another body."
        )


class _Listed(nn.Module):
    """Texts: a weighted sum of those rows of the first weight that a text has features for."""

    def __init__(self, body: LinearBody | HiddenBody | WideBody) -> None:
        super().__init__()
        self.first = body.head if isinstance(body, LinearBody) else body.first
        self.rest: nn.Module | None = None
        if isinstance(body, HiddenBody):
            self.rest = nn.Sequential(body.activation, body.head)
        elif isinstance(body, WideBody):
            self.rest = _DenseHead(body)

    def forward(self, columns: Tensor, values: Tensor) -> Tensor:
        first: Any = self.first
        # The table of a large wide body is int8, with a scale for each row; earlier models have float16.
        scales = getattr(first, "scales", None)
        values = values if scales is None else values * scales[columns]
        summed = (values.unsqueeze(1) @ first.weight[columns].to(values.dtype)).squeeze(1)
        # The word vectors of a wide body have no bias.
        summed = summed if getattr(first, "bias", None) is None else summed + first.bias
        return summed if self.rest is None else self.rest(summed)  # type: ignore[no-any-return]


class _DenseHead(nn.Module):
    """The head of a wide body, with the scores of all labels."""

    def __init__(self, body: WideBody) -> None:
        super().__init__()
        self.head = body.head
        if self.head.weight.dtype != torch.float32:
            raise ValueError(
                f"export: the head of this model has {self.head.weight.numel():,} numbers in {self.head.weight.dtype}, which"
                " onnxruntime does not multiply on a CPU. Use manyhot serve, or train with a smaller --hidden."
            )

    def forward(self, hidden: Tensor) -> Tensor:
        return nn.functional.linear(hidden, self.head.weight, self.head.bias)


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
        if hasattr(body, "head"):
            states = body.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            weight = attention_mask.to(states.dtype)[:, :, None]
            return body.head((states * weight).sum(dim=1) / weight.sum(dim=1))  # type: ignore[no-any-return]
        return body.model(input_ids=input_ids, attention_mask=attention_mask).logits  # type: ignore[no-any-return]
