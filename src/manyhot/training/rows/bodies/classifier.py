"""A sequence classifier of the transformers package as a body: trained elsewhere, evaluated and served by manyhot."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from manyhot.training.rows.bodies.encoder import TOKENS_ON_CPU, TOKENS_ON_GPU, config_of, json_config, token_parts


class ClassifierBody(nn.Module):
    """A whole ``...ForSequenceClassification``, its own pooling and head included.

    Args:
        model: a transformers module that returns ``logits [B, L]``.
        padding: the id of the padding token.
    """

    def __init__(self, model: nn.Module, *, padding: int) -> None:
        super().__init__()
        self.model, self.padding = model, padding

    @property
    def encoder(self) -> nn.Module:
        """The module with the token embeddings; ``EncoderBody`` has the same attribute."""
        return self.model

    def forward(self, batch: Any) -> Tensor:
        """Logits ``[B, L]`` of ``TokenRows``, in parts of rows with similar lengths."""
        order = batch.lengths.argsort(stable=True)
        most = TOKENS_ON_CPU if batch.offsets.device.type == "cpu" else TOKENS_ON_GPU
        found = []
        for part in token_parts(batch.lengths[order].tolist(), most):
            ids, there = batch[order[part]].padded(self.padding)
            found.append(self.model(input_ids=ids, attention_mask=there.long()).logits)
        return torch.cat(found)[order.argsort()]


def make_classifier(shape: dict[str, Any]) -> ClassifierBody:
    """The body that ``classifier_shape`` describes, with random weights."""
    import transformers

    auto: Any = transformers.AutoModelForSequenceClassification
    model = auto.from_config(config_of(shape["config"]), trust_remote_code=False)
    return ClassifierBody(model.float(), padding=int(shape["padding"]))


def classifier_shape(model: Any, *, padding: int, width: int) -> dict[str, Any]:
    """The description that ``make_classifier`` builds a transformers classifier from."""
    return {
        "body": "classifier",
        "config": json_config(model.config),
        "padding": padding,
        "width": width,
        "num_labels": int(model.config.num_labels),
    }
