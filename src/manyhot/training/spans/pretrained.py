"""Any Hugging Face encoder as a body: its tokenizer and weights are saved in the bundle, and nothing is downloaded on
loading."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.data.spans.examples import Offsets
from manyhot.training.run.schema import TABLE, TEXT, Schema
from manyhot.training.spans.inputs import Array
from manyhot.training.spans.rows import SpanBatch


class SubwordInputs:
    """The encoding of texts by a tokenizer of the library ``tokenizers``.

    Args:
        text: the tokenizer as JSON, ``tokenizer.json``.
    """

    kind = "subwords"
    tokens = "subwords"
    schema: ClassVar[Schema] = {"kind": TEXT, "tokenizer": TABLE}

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokenizer = _tokenizers().Tokenizer.from_str(text)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def offsets(self, text: str) -> Offsets:
        """The characters of each subword; leading and trailing blanks of a subword are left out."""
        found = self.tokenizer.encode(text, add_special_tokens=False).offsets
        trimmed = []
        for start, end in found:
            while start < end and text[start].isspace():
                start += 1
            while start < end and text[end - 1].isspace():
                end -= 1
            trimmed.append((start, end))
        return trimmed

    def encode(self, text: str, offsets: Offsets) -> tuple[Array, Array]:
        """``(features [T, 1], letters [T, 0])``; ``offsets`` must be those of the same text."""
        numbers = self.tokenizer.encode(text, add_special_tokens=False).ids
        if len(numbers) != len(offsets):
            raise ValueError(
                f"SubwordInputs: `offsets` must be those of the text's {len(numbers)} subwords; got {len(offsets)} offsets."
            )
        return np.array(numbers, dtype=np.int32).reshape(-1, 1), np.zeros((len(numbers), 0), dtype=np.int32)

    def shape(self) -> dict[str, Any]:
        """Empty: the description of the encoder does not depend on the tokenizer."""
        return {}

    def counts(self) -> list[Tensor]:
        """Empty: no token is replaced by the unknown one in training."""
        return []

    def to_json(self) -> dict[str, Any]:
        """The JSON form that the bundle stores."""
        return {"kind": self.kind, "tokenizer": json.loads(self.text)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SubwordInputs:
        """The inverse of ``to_json``."""
        return cls(json.dumps(data["tokenizer"]))


class PretrainedEncoder(nn.Module):
    """The last hidden states of an encoder, without the special tokens around the text.

    Args:
        shape: ``config``, the architecture's own settings, and ``around``, the numbers of the special tokens before and after a
            text and of padding.
    """

    def __init__(self, shape: dict[str, Any]) -> None:
        super().__init__()
        models = _transformers()
        config = dict(shape["config"])
        self.model = models.AutoModel.from_config(models.AutoConfig.for_model(config.pop("model_type"), **config))
        self.before, self.after, self.padding = (shape["around"][name] for name in ("before", "after", "padding"))
        self.width = int(self.model.config.hidden_size)

    def forward(self, batch: SpanBatch) -> Tensor:
        """``[B, T, D]``."""
        numbers, size = batch.features[..., 0].long(), batch.features.shape[1]
        front = len(self.before)
        own = batch.lengths.unsqueeze(1)
        places = torch.arange(size + front + len(self.after), device=numbers.device) - front
        row = numbers.new_full((len(numbers), len(places)), self.padding)
        for place, number in enumerate(self.before):
            row[:, place] = number
        row[:, front : front + size] = torch.where(places[front : front + size] < own, numbers, self.padding)
        for place, number in enumerate(self.after):
            row.scatter_(1, own + front + place, number)
        mask = (places < own + len(self.after)).long()
        states: Tensor = self.model(input_ids=row, attention_mask=mask).last_hidden_state
        return states[:, front : front + size]


def open_pretrained(name: str) -> tuple[SubwordInputs, dict[str, Any], dict[str, Tensor], int]:
    """``(inputs, shape, weights, longest window)`` of an encoder by its name or folder."""
    models = _transformers()
    try:
        tokenizer = models.AutoTokenizer.from_pretrained(name, use_fast=True, trust_remote_code=False)
        model = models.AutoModel.from_pretrained(name, trust_remote_code=False, use_safetensors=True)
    except (OSError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise ValueError(
            f"train: `pretrained` must name an encoder with a fast tokenizer; {name!r} could not be loaded: {said}"
        ) from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(
            f"train: `pretrained` must have a fast tokenizer, which gives the position of each subword; {name!r} has none."
        )
    marked = backend.encode("a", add_special_tokens=True).ids
    plain = backend.encode("a", add_special_tokens=False).ids
    front = next((place for place in range(len(marked)) if marked[place : place + len(plain)] == plain), 0)
    around = {"before": marked[:front], "after": marked[front + len(plain) :], "padding": tokenizer.pad_token_id or 0}
    config = json.loads(model.config.to_json_string(use_diff=False))
    longest = min(int(getattr(model.config, "max_position_embeddings", 512) or 512), 512) - len(marked) + len(plain) - 2
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    return SubwordInputs(backend.to_str()), {"config": config, "around": around}, weights, longest


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise ImportError(
            "A pretrained body needs the package tokenizers. Install it with: pip install manyhot[text]"
        ) from None
    return tokenizers


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise ImportError(
            "A pretrained body needs the package transformers. Install it with: pip install manyhot[text]"
        ) from None
    return transformers
