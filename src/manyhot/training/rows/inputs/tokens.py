"""Texts as token ids of an encoder's tokeniser, which is saved as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from manyhot.data.examples import Examples
from manyhot.training.rows.bodies.encoder import missing_text_package, read_tokenizer
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.schema import TABLE, TEXT, Schema, whole

TEXTS_AT_ONCE = 4096


class TokenRows:
    """The tokens of texts: row ``i`` is ``ids[offsets[i]:offsets[i + 1]]``.

    Args:
        ids: int ``[T]``, token ids.
        offsets: int64 ``[R + 1]``, from 0 to T.
        vocabulary: the size of the vocabulary.

    Example:
        >>> rows = TokenRows(torch.tensor([5, 6, 7]), torch.tensor([0, 1, 3]), 9)
        >>> ids, there = rows.padded(0)
        >>> ids.tolist(), there.tolist()
        ([[5, 0], [6, 7]], [[True, False], [True, True]])
    """

    def __init__(self, ids: Tensor, offsets: Tensor, vocabulary: int) -> None:
        self.ids, self.offsets, self.vocabulary = ids, offsets, vocabulary

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and the size of the vocabulary."""
        return len(self.offsets) - 1, self.vocabulary

    @property
    def lengths(self) -> Tensor:
        """``[R]``, tokens of each row."""
        return self.offsets.diff()

    def __getitem__(self, picked: slice | np.ndarray[Any, Any] | Tensor) -> TokenRows:
        """Some rows, without padding."""
        if isinstance(picked, np.ndarray):
            picked = torch.from_numpy(picked)
        starts, lengths = self.offsets[:-1][picked], self.lengths[picked]
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        places = torch.arange(int(offsets[-1]), device=offsets.device)
        places += (starts - offsets[:-1]).repeat_interleave(lengths)
        return TokenRows(self.ids[places], offsets, self.vocabulary)

    def to(self, device: torch.device) -> TokenRows:
        """The same on ``device``."""
        return TokenRows(self.ids.to(device), self.offsets.to(device), self.vocabulary)

    def padded(self, padding: int) -> tuple[Tensor, Tensor]:
        """``(ids [R, T], bool [R, T] which is True on tokens)``, as long as the longest row."""
        lengths = self.lengths
        there = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]
        ids = torch.full(there.shape, padding, dtype=torch.int64, device=lengths.device)
        ids[there] = self.ids.long()
        return ids, there


class TokenInputs:
    """Texts as the tokens of an encoder, cut after ``max_tokens``.

    Args:
        tokenizer: the tokeniser, as the tokenizers package writes it to JSON.
        padding: the id of the padding token.
        max_tokens: longer texts are truncated to this many tokens.
    """

    kind = "tokens"
    gives_sparse = False
    schema: ClassVar[Schema] = {"kind": TEXT, "tokenizer": TABLE, "padding": whole(0), "max_tokens": whole(1)}

    def __init__(self, tokenizer: dict[str, Any], *, padding: int, max_tokens: int) -> None:
        self.tokenizer, self.padding, self.max_tokens = tokenizer, padding, max_tokens
        self._tokenizer = _made(tokenizer, max_tokens)

    @classmethod
    def fit(cls, examples: Examples, settings: TrainSettings) -> tuple[TokenInputs, TokenRows]:
        """The tokeniser of the encoder that the settings name, and the texts as its tokens."""
        tokenizer, padding, longest = read_tokenizer(settings.encoder)
        fitted = cls(tokenizer, padding=padding, max_tokens=min(settings.max_tokens, longest))
        return fitted, fitted.rows(examples)

    @property
    def width(self) -> int:
        """The size of the vocabulary."""
        return int(self._tokenizer.get_vocab_size())

    def rows(self, inputs: Any) -> TokenRows:
        """Token ids of texts or ``Examples``; a text without tokens becomes one padding token, so that no row is empty."""
        texts = texts_of(inputs)
        found = []
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            encoded = self._tokenizer.encode_batch_fast(list(texts[first : first + TEXTS_AT_ONCE]))
            found += [np.asarray(each.ids or [self.padding], dtype=np.int32) for each in encoded]
        lengths = np.fromiter((len(each) for each in found), dtype=np.int64, count=len(found))
        offsets = torch.from_numpy(np.concatenate([[0], lengths.cumsum()]).astype(np.int64))
        ids = np.concatenate(found) if found else np.zeros(0, dtype=np.int32)
        return TokenRows(torch.from_numpy(ids), offsets, self.width)

    def pieces(self, text: str) -> tuple[list[str], list[tuple[int, int]]]:
        """The tokens of a text as strings, and where each stands in it; tokens that the encoder adds have no position."""
        encoded = self._tokenizer.encode(text)
        return (list(encoded.tokens), list(encoded.offsets)) if encoded.ids else (["padding"], [(0, 0)])

    def to_json(self) -> dict[str, Any]:
        """The description as JSON."""
        return {
            "kind": self.kind,
            "tokenizer": self.tokenizer,
            "padding": self.padding,
            "max_tokens": self.max_tokens,
        }

    def tensors(self) -> dict[str, Tensor]:
        """There are no tensors."""
        return {}

    @classmethod
    def from_parts(cls, data: dict[str, Any], tensors: dict[str, Tensor]) -> TokenInputs:
        """From the result of ``to_json``."""
        del tensors
        return cls(data["tokenizer"], padding=int(data["padding"]), max_tokens=int(data["max_tokens"]))


def texts_of(inputs: Any) -> Sequence[str]:
    """The texts of ``Examples`` or of a list of strings."""
    given = inputs.texts if isinstance(inputs, Examples) else inputs
    # A list first: an iterator can be walked only once.
    texts = None if given is None or isinstance(given, (str, np.ndarray)) or not hasattr(given, "__iter__") else list(given)
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise TypeError("TrainedModel: the model reads texts; give Examples with texts or a list of strings.")
    return texts


def _made(tokenizer: dict[str, Any], max_tokens: int) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise missing_text_package("tokenizers") from None
    try:
        made = Tokenizer.from_str(json.dumps(tokenizer))
    except Exception as error:  # the package raises nothing narrower
        raise ValueError(f"TokenInputs: `tokenizer` must be what the package tokenizers writes; {error}.") from error
    made.no_padding()
    made.enable_truncation(max_length=max_tokens)
    return made
