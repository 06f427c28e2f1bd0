"""Encoders: from the numbers of tokens to hidden states ``[B, T, D]``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.engines.native import lstm as native
from manyhot.engines.native.library import GATE as NATIVE_GATE
from manyhot.engines.native.lstm import PackedRows, bilstm_layer
from manyhot.engines.readable import all_readable
from manyhot.training.spans.inputs import PADDING, UNKNOWN, Array
from manyhot.training.spans.rows import SpanBatch, send

# Embedding widths: of the first table (words or characters), of bigrams, of the parts of words, and of the shape, which is
# always the last table.
FIRST_WIDTH, BIGRAM_WIDTH, PART_WIDTH, SHAPE_WIDTH = 128, 64, 16, 16
LETTER_WIDTH, LETTER_FILTERS, LETTER_SPANS = 32, 64, (3, 5)

# For each layer, the features of its input that are kept; None for all.
Kept = Sequence[Tensor | None]


class LockedDropout(nn.Module):
    """Drops the same features at all tokens of a text, ``[B, T, D]``."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def draw(self, x: Tensor) -> Tensor | None:
        """The features that are kept, bool ``[B, 1, D]``; None outside training, where all are."""
        if not self.training or not self.share:
            return None
        return torch.rand(x.shape[0], 1, x.shape[2], device=x.device) >= self.share

    def forward(self, x: Tensor, kept: Tensor | None) -> Tensor:
        """``x`` with the features that ``draw`` keeps."""
        return x if kept is None else x * (kept.to(x.dtype) / (1 - self.share))


class LetterFilters(nn.Module):
    """A character CNN for words: the maximum of each filter over the letters, ``[B, T, W]`` to ``[B, T, D]``."""

    def __init__(self, num_letters: int) -> None:
        super().__init__()
        self.table = nn.Embedding(num_letters, LETTER_WIDTH, padding_idx=PADDING)
        self.filters = nn.ModuleList(nn.Conv1d(LETTER_WIDTH, LETTER_FILTERS, size, padding=size // 2) for size in LETTER_SPANS)
        self.width = LETTER_FILTERS * len(LETTER_SPANS)

    def forward(self, letters: Tensor) -> Tensor:
        """``[B, T, D]``."""
        flat, places = letters.flatten(0, 1), None
        traced = torch.compiler.is_exporting() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        if not flat.is_cuda and not traced:
            # Words repeat, and the filters take most of a step on a CPU: run them once per distinct word. On a GPU ``unique``
            # would synchronise.
            flat, places = torch.unique(flat, dim=0, return_inverse=True)
        vectors = self.table(flat).transpose(-1, -2)
        there = (flat != PADDING).unsqueeze(1)
        answers = [each(vectors).masked_fill(~there, -math.inf).amax(dim=2) for each in self.filters]
        # A padding token has no letters: relu makes its output 0.
        answer = torch.cat(answers, dim=1).relu()
        answer = answer if places is None else answer.index_select(0, places)
        return answer.reshape(*letters.shape[:2], self.width)


class TokenVectors(nn.Module):
    """Concatenated embeddings of tokens, ``[B, T, K]`` to ``[B, T, D]``.

    In training rare entries are sometimes replaced by the unknown token, so that its embedding is learned too.
    """

    hide: Tensor
    table_starts: Tensor

    def __init__(self, shape: dict[str, Any]) -> None:
        super().__init__()
        sizes, self.uses = list(shape["tables"]), list(shape["uses"])
        # Only words have letters, and their second table is of their parts; that of characters is of bigrams.
        second = PART_WIDTH if shape["letters"] else BIGRAM_WIDTH
        widths = [FIRST_WIDTH, *[second] * (len(sizes) - 2), SHAPE_WIDTH]
        self.tables = nn.ModuleList(
            nn.Embedding(size, width, padding_idx=PADDING) for size, width in zip(sizes, widths, strict=True)
        )
        for table in self.tables:
            assert isinstance(table, nn.Embedding)
            bound = math.sqrt(3 / table.embedding_dim)
            with torch.no_grad():
                table.weight.uniform_(-bound, bound)[PADDING] = 0
        starts = [sum(sizes[:place]) for place in range(len(sizes))]
        self.register_buffer("hide", torch.zeros(sum(sizes)))
        self.register_buffer("table_starts", torch.tensor([starts[use] for use in self.uses]), persistent=False)
        self.letters = LetterFilters(int(shape["letters"])) if shape["letters"] else None
        self.width = sum(widths[use] for use in self.uses) + (0 if self.letters is None else self.letters.width)

    def set_hiding(self, counts: list[Tensor], strength: float) -> None:
        """Set the probability of replacing an entry: ``a / (a + count)``."""
        self.hide.copy_(torch.cat([strength / (strength + count) for count in counts]))

    @torch.no_grad()
    def unknown(self) -> Tensor:
        """``[1, D]``: the vector of an unknown token, without letters."""
        parts = [self.tables[use].weight[UNKNOWN] for use in self.uses]
        if self.letters is not None:
            parts.append(parts[0].new_zeros(self.letters.width))
        return torch.cat(parts).unsqueeze(0)

    def forward(self, features: Tensor, letters: Tensor) -> Tensor:
        """``[B, T, D]``."""
        if self.training:
            hidden = torch.rand(features.shape, device=features.device) < self.hide[features + self.table_starts]
            features = torch.where(hidden, UNKNOWN, features)
        # Features of one table stand side by side. One look-up for all of them has one gradient of the size of the table.
        parts, place = [], 0
        for use, own in groupby(self.uses):
            count = len(list(own))
            parts.append(self.tables[use](features[..., place : place + count]).flatten(-2))
            place += count
        if self.letters is not None:
            parts.append(self.letters(letters))
        return torch.cat(parts, dim=-1)


class RecurrentEncoder(nn.Module):
    """Embeddings of tokens, then a BiLSTM; before, between and after its layers, dropout that is the same at all tokens.

    With ``skip`` the embeddings stand beside the states in the output.
    """

    def __init__(self, shape: dict[str, Any]) -> None:
        super().__init__()
        dropout, layers, hidden = float(shape["dropout"]), int(shape["layers"]), int(shape["hidden"])
        self.vectors = TokenVectors(shape)
        self.dropout = LockedDropout(dropout)
        self.recurrent = nn.LSTM(self.vectors.width, hidden, num_layers=layers, batch_first=True, bidirectional=True)
        for name, weight in self.recurrent.named_parameters():
            if "weight_hh" in name:
                for part in weight.chunk(4):
                    nn.init.orthogonal_(part)
            elif "bias" in name:
                # The forget gate starts open. torch adds two biases; setting one of them is enough.
                nn.init.zeros_(weight)
                if "bias_ih" in name:
                    with torch.no_grad():
                        weight[hidden : 2 * hidden] = 1.0
        self.states, self.skip = 2 * hidden, bool(shape.get("skip"))
        self.width = self.states + (self.vectors.width if self.skip else 0)

    def forward(self, batch: SpanBatch) -> Tensor:
        """``[B, T, D]``."""
        vectors = self.vectors(batch.features, batch.letters)
        kept = [self.dropout.draw(vectors)]
        kept += [self.dropout.draw(vectors.new_empty(len(vectors), 1, self.states)) for _ in self._weights()[1:]]
        # Autocast would run it in float16, where gradients underflow; in float32 cuDNN uses tensor cores (TF32) anyway.
        with torch.autocast(vectors.device.type, enabled=False):
            vectors = vectors.float()
            run = self._native if self._is_native(vectors) else self._packed if vectors.is_cuda else self._padded
            hidden = run(vectors, batch, kept)
            hidden = torch.cat([hidden, vectors], dim=2) if self.skip else hidden
        out: Tensor = self.dropout(hidden, self.dropout.draw(hidden))
        return out

    def _weights(self) -> list[list[Tensor]]:
        """The weights of each layer: those of both directions."""
        own = self.recurrent.all_weights
        return [[*own[place], *own[place + 1]] for place in range(0, len(own), 2)]

    def _is_native(self, vectors: Tensor) -> bool:
        """Whether the native engine runs the BiLSTM; a warning says once why it is off."""
        weights = tuple(self.recurrent.parameters())
        if torch.compiler.is_compiling() or not native.serves(vectors, weights) or not all_readable((vectors, *weights)):
            return False
        there, reason = native.available()
        if not there:
            NATIVE_GATE.warn_once(reason)
        return there

    def _native(self, vectors: Tensor, batch: SpanBatch, kept: Kept) -> Tensor:
        """Run both directions of a layer in one call over packed rows. Dropped features cost nothing there."""
        order, counts = packing(np.broadcast_to(batch.sizes, len(vectors)), vectors.shape[1])
        places, ranked = torch.from_numpy(order), torch.from_numpy(order[: counts[0]] // vectors.shape[1])
        rows, scale = PackedRows.of(counts), 1 / (1 - self.dropout.share)
        hidden = vectors.flatten(0, 1).index_select(0, places)
        for weights, mask in zip(self._weights(), kept, strict=True):
            hidden = bilstm_layer(hidden, rows.keeping(None if mask is None else mask[ranked, 0].numpy(), scale), weights)
        return self._unpacked(hidden, places, vectors)

    def _packed(self, vectors: Tensor, batch: SpanBatch, kept: Kept) -> Tensor:
        """Run both directions of a layer in one call. Packed by hand, because torch's function synchronises and copies token by
        token."""
        order, counts = packing(batch.sizes, vectors.shape[1])
        places, steps = send([order], vectors.device)[0], torch.from_numpy(counts)
        rows = places // vectors.shape[1]
        hidden = vectors.flatten(0, 1).index_select(0, places)
        start = hidden.new_zeros(2, len(vectors), self.recurrent.hidden_size)
        for weights, mask in zip(self._weights(), kept, strict=True):
            if mask is not None:
                hidden = self.dropout(hidden, mask[:, 0].index_select(0, rows))
            with warnings.catch_warnings():
                # cuDNN copies the weights of a layer into one buffer, which takes microseconds.
                warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
                hidden = torch.lstm(hidden, steps, (start, start), weights, True, 1, 0.0, self.training, True)[0]
        return self._unpacked(hidden, places, vectors)

    def _unpacked(self, hidden: Tensor, places: Tensor, vectors: Tensor) -> Tensor:
        """``[B, T, D]`` from packed tokens."""
        whole = hidden.new_zeros(len(vectors) * vectors.shape[1], self.states).index_copy_(0, places, hidden)
        return whole.reshape(*vectors.shape[:2], self.states)

    def _padded(self, vectors: Tensor, batch: SpanBatch, kept: Kept) -> Tensor:
        """Run each layer and direction in its own call, with rows reversed within their length. Packing is slow on a CPU."""
        places = torch.arange(vectors.shape[1])
        lengths = torch.from_numpy(batch.sizes).unsqueeze(1)
        there = (places < lengths).unsqueeze(2)
        turned = torch.where(places < lengths, lengths - 1 - places, places).unsqueeze(2)
        for weights, mask in zip(self._weights(), kept, strict=True):
            vectors = self.dropout(vectors, mask)
            forwards = self._direction(vectors, weights[:4])
            backwards = self._direction(_reordered(vectors, turned), weights[4:])
            vectors = torch.cat([forwards, _reordered(backwards, turned)], dim=2)
        return vectors * there

    def _direction(self, vectors: Tensor, weights: list[Tensor]) -> Tensor:
        start = vectors.new_zeros(1, len(vectors), self.recurrent.hidden_size)
        out: Tensor = torch.lstm(vectors, (start, start), weights, True, 1, 0.0, self.training, False, True)[0]
        return out


class TransformerEncoder(nn.Module):
    """Embeddings of tokens with sinusoidal positions, then transformer layers."""

    def __init__(self, shape: dict[str, Any]) -> None:
        super().__init__()
        dropout, layers, width = float(shape["dropout"]), int(shape["layers"]), 2 * int(shape["hidden"])
        self.vectors = TokenVectors(shape)
        self.project = nn.Linear(self.vectors.width, width)
        self.drop_in = nn.Dropout(dropout)
        heads = next(count for count in (8, 4, 2, 1) if width % count == 0)
        # Attention needs less dropout than a recurrent network: half of it.
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout / 2, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.width = width

    def forward(self, batch: SpanBatch) -> Tensor:
        """``[B, T, D]``."""
        vectors = self.project(self.drop_in(self.vectors(batch.features, batch.letters)))
        places = torch.arange(vectors.shape[1], device=vectors.device)
        vectors = vectors + _sines(places, self.width).to(vectors.dtype)
        padding = places >= batch.lengths.clamp(min=1).unsqueeze(1)
        out: Tensor = self.layers(vectors, src_key_padding_mask=padding)
        return out


def packing(lengths: Array, size: int) -> tuple[Array, Array]:
    """Indices into a padded ``[B * T]`` in the order of a packed batch, and the number of rows at each token position.

    A packed batch goes token by token, the longest rows first. An empty row cannot be packed, so it gets one padding token.

    Example:
        >>> packing(np.array([1, 3, 2]), 3)
        (array([3, 6, 0, 4, 7, 5]), array([3, 2, 1]))
    """
    lengths = lengths.clip(min=1)
    rows = np.argsort(-lengths, kind="stable")
    there = np.arange(lengths.max(initial=1))[:, None] < lengths[rows]
    return (rows * size + np.arange(len(there))[:, None])[there], there.sum(axis=1)


def _reordered(x: Tensor, places: Tensor) -> Tensor:
    return x.gather(1, places.expand_as(x))


def _sines(places: Tensor, width: int) -> Tensor:
    rates = torch.exp(torch.arange(0, width, 2, device=places.device) * (-math.log(10000.0) / width))
    angles = places.unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
