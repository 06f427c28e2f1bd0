"""A span model as one traceable module of tensor operations, from token features to the score of every span."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from manyhot.export.graph import Port
from manyhot.heads.global_pointer import EfficientGlobalPointer
from manyhot.heads.rotary_positions import BASE
from manyhot.training.spans.bundle import TrainedSpanModel
from manyhot.training.spans.encoders import RecurrentEncoder
from manyhot.training.spans.rows import SpanBatch

INF = float("inf")


class SpanGraph(nn.Module):
    """A span model without its vocabularies and its decoding.

    Args:
        model: the model, on the CPU, with a recurrent body (words or characters).
    """

    def __init__(self, model: TrainedSpanModel) -> None:
        super().__init__()
        network = model.network
        if not isinstance(network.encoder, RecurrentEncoder):
            raise ValueError(
                f"export: the body of a span model must be words or characters; {model.shape['body']!r} cannot be"
                " exported. Use manyhot serve."
            )
        self.vectors, self.head = network.encoder.vectors, network.head
        self.layers = nn.ModuleList(_directions(network.encoder))
        self.shared = isinstance(network.head, EfficientGlobalPointer)
        self.skip = network.encoder.skip
        self.has_letters = self.vectors.letters is not None
        self.eval()

    @property
    def ports(self) -> list[Port]:
        """The inputs."""
        found = [Port("features", ("texts", "tokens", None), "int64, the feature ids of each token; 0 is padding")]
        if self.has_letters:
            found.append(Port("letters", ("texts", "tokens", None), "int64, the letter ids of each word"))
        return [*found, Port("lengths", ("texts",), "int64, the number of tokens of each text, without padding")]

    def forward(self, features: Tensor, *others: Tensor) -> Tensor:
        """``scores [B, H, T, T]`` of type a from token i to token j; cells that cannot be a span are ``-inf``."""
        letters, lengths = (others[0], others[1]) if self.has_letters else (features[..., :0], others[0])
        places = torch.arange(features.shape[1])
        real = places < lengths.unsqueeze(1)
        reverse = torch.where(real, lengths.unsqueeze(1) - 1 - places, places).unsqueeze(2)
        hidden = vectors = self.vectors(features, letters)
        for pair in self.layers:
            assert isinstance(pair, nn.ModuleList)
            start = hidden.new_zeros(1, hidden.shape[0], pair[0].hidden_size)
            forwards = pair[0](hidden, (start, start))[0]
            backwards = pair[1](hidden.gather(1, reverse.expand_as(hidden)), (start, start))[0]
            hidden = torch.cat([forwards, backwards.gather(1, reverse.expand_as(backwards))], dim=2)
        hidden = hidden * real.unsqueeze(2)
        scores = self._scores(torch.cat([hidden, vectors], dim=2) if self.skip else hidden)
        counts = real.unsqueeze(1).unsqueeze(3) & real.unsqueeze(1).unsqueeze(2) & (places.unsqueeze(1) <= places)
        return torch.where(counts, scores, torch.full_like(scores, -INF))

    def _scores(self, hidden: Tensor) -> Tensor:
        head = self.head
        scale = head.head_size**-0.5 if head.scaled else 1.0
        projected = head.project(hidden)
        half = projected.shape[-1] // 2
        q, k = projected[..., :half], projected[..., half:]
        if not self.shared:
            # Sizes are read one by one: tracing would fix a slice of a shape.
            q, k = (
                part.reshape(part.shape[0], part.shape[1], head.num_types, head.head_size).transpose(1, 2) for part in (q, k)
            )
        q, k = (_rotated(part) if head.rotary else part for part in (q, k))
        products: Tensor = q @ k.transpose(-1, -2) * scale
        if not self.shared:
            return products
        assert isinstance(head, EfficientGlobalPointer)
        ends = head.type_ends(hidden if head.form == "hidden" else projected).transpose(1, 2)
        u, v = ends[:, : head.num_types], ends[:, head.num_types :]
        scores: Tensor = products.unsqueeze(1) + u.unsqueeze(3) + v.unsqueeze(2)
        return scores

    def inputs_of(self, batch: SpanBatch) -> tuple[Tensor, ...]:
        """A batch of windows as inputs of the graph."""
        given = [batch.features.long(), *([batch.letters.long()] if self.has_letters else []), batch.lengths.long()]
        return tuple(given)


def _rotated(x: Tensor) -> Tensor:
    """``rotary(x)`` of ``[..., T, d]``, written so that tracing fixes no size."""
    pairs = torch.arange(0, x.shape[-1], 2, dtype=x.dtype)
    angles = torch.arange(x.shape[-2]).to(x.dtype).unsqueeze(1) * BASE ** (-pairs / x.shape[-1])
    even, odd, cos, sin = x[..., 0::2], x[..., 1::2], angles.cos(), angles.sin()
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def _directions(encoder: RecurrentEncoder) -> list[nn.ModuleList]:
    """Each layer as two forward LSTMs: one for the tokens, one for the tokens in reverse order."""
    layers: list[nn.ModuleList] = []
    recurrent: Any = encoder.recurrent
    for layer in range(recurrent.num_layers):
        pair = []
        for side in (0, 1):
            weights = recurrent.all_weights[2 * layer + side]
            one = nn.LSTM(weights[0].shape[1], recurrent.hidden_size, batch_first=True)
            with torch.no_grad():
                for own, given in zip(one.all_weights[0], weights, strict=True):
                    own.copy_(given)
            pair.append(one)
        layers.append(nn.ModuleList(pair))
    return layers
