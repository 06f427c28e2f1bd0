"""An encoder with a span head: the network of a span model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from manyhot.decisions.span_decoding import Span, decode_spans
from manyhot.heads.global_pointer import EfficientGlobalPointer, GlobalPointer
from manyhot.losses.catalog import get_loss
from manyhot.losses.divergence import prediction_divergence
from manyhot.scores.spans import SpanScores
from manyhot.training.spans.encoders import RecurrentEncoder, TransformerEncoder
from manyhot.training.spans.pretrained import PretrainedEncoder
from manyhot.training.spans.rows import SpanBatch


class SpanNetwork(nn.Module):
    """Tokens to span scores.

    Args:
        shape: the description of the network. The head reads ``head``, ``head_size``, ``rotary`` and ``num_types``; for the
            encoder see ``make_encoder``.
    """

    def __init__(self, shape: dict[str, Any]) -> None:
        super().__init__()
        self.encoder = make_encoder(shape)
        make = GlobalPointer if shape["head"] == "global-pointer" else EfficientGlobalPointer
        self.head = make(
            int(self.encoder.width),
            num_types=int(shape["num_types"]),
            head_size=int(shape["head_size"]),
            rotary=bool(shape["rotary"]),
        )

    def forward(self, batch: SpanBatch) -> SpanScores:
        """Lazy scores ``[B, H, T, T]``; the head computes in float32 whatever type the encoder uses."""
        hidden = self.encoder(batch)
        with torch.autocast(hidden.device.type, enabled=False):
            scores: SpanScores = self.head(hidden.float(), batch.lengths)
        return scores

    def decode(self, batch: SpanBatch, *, threshold: float, mode: str) -> list[list[Span]]:
        """The spans of each row."""
        return decode_spans(self(batch), threshold=threshold, mode=mode)


class SpanObjective:
    """The loss of a training step.

    A loss that does not take lazy scores (BCE, focal) gets the dense grid. It is summed over the cells, so that a row has the
    same weight as in ZLPR. R-Drop adds the divergence of two passes, on the dense grid.
    """

    def __init__(self, loss: str, rdrop: float) -> None:
        self.loss, self.rdrop = get_loss(loss), rdrop

    def __call__(self, network: nn.Module, batch: SpanBatch) -> Tensor:
        """The mean loss over rows and types."""
        scores: SpanScores = network(batch)
        value = self._of(scores, batch)
        if not self.rdrop:
            return value
        again: SpanScores = network(batch)
        where = scores.where().expand(scores.shape).flatten(2)
        apart = prediction_divergence(scores.dense().flatten(2), again.dense().flatten(2), where=where)
        return (value + self._of(again, batch)) / 2 + self.rdrop * apart

    def _of(self, scores: SpanScores, batch: SpanBatch) -> Tensor:
        if self.loss.lazy:
            return self.loss(scores, batch.labels)
        where = scores.where().expand(scores.shape).flatten(2)
        labels = batch.labels.dense().flatten(2)
        summed = {"label_reduction": "sum"} if self.loss.takes("label_reduction") else {}
        return self.loss(scores.dense().flatten(2), labels, where=where, **summed)


def make_encoder(shape: dict[str, Any]) -> Any:
    """Build an encoder from its description.

    The keys are ``body``, ``tables``, ``uses``, ``letters``, ``hidden``, ``layers`` and ``dropout``; for the body
    ``pretrained`` they are ``body``, ``config`` and ``around``.
    """
    if shape["body"] == "pretrained":
        return PretrainedEncoder(shape)
    return TransformerEncoder(shape) if shape["body"] == "transformer" else RecurrentEncoder(shape)
