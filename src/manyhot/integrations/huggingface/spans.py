"""Span models for the ``Trainer``: an encoder with a GlobalPointer head, its collator and its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_choice
from manyhot._suggest import nearest
from manyhot.decisions import decode_spans
from manyhot.heads import EfficientGlobalPointer, GlobalPointer
from manyhot.integrations.huggingface.loss import PADDING, scaled_mean
from manyhot.integrations.registry import framework
from manyhot.labels import SpanLabels
from manyhot.losses import zlpr_loss
from manyhot.metrics import SpanMetrics

transformers = framework("huggingface")

HEADS = {"global_pointer": GlobalPointer, "efficient": EfficientGlobalPointer}


class GlobalPointerConfig(transformers.PretrainedConfig):
    """The configuration of ``GlobalPointerForTokenClassification``; span types are ``id2label``.

    Args:
        encoder: the configuration of the encoder, as ``config.to_dict()`` gives it.
        head: ``"global_pointer"`` or ``"efficient"``.
        head_size: d, even.
        max_spans: largest number of spans per row that are returned in evaluation.
        mode: which spans may overlap, ``"nested"``, ``"flat"`` or ``"all"``.
    """

    model_type = "manyhot-global-pointer"

    def __init__(
        self,
        encoder: Mapping[str, Any] | None = None,
        head: str = "efficient",
        head_size: int = 64,
        max_spans: int = 64,
        mode: str = "nested",
        **settings: Any,
    ) -> None:
        check_choice("GlobalPointerConfig", "head", head, tuple(HEADS))
        check_choice("GlobalPointerConfig", "mode", mode, ("nested", "flat", "all"))
        self.encoder = dict(encoder or {})
        self.head, self.head_size, self.max_spans, self.mode = head, head_size, max_spans, mode
        super().__init__(**settings)


@dataclass
class SpanOutput(transformers.utils.ModelOutput):
    """``loss`` if labels were given; ``spans`` int64 ``[B, K, 3]`` in evaluation, padded with -1."""

    loss: Tensor | None = None
    spans: Tensor | None = None


class GlobalPointerForTokenClassification(transformers.PreTrainedModel):
    """An encoder of transformers with a head that scores every span, trained by ZLPR.

    ``model(**batch)`` takes ``labels [B, K, 3]``: type, first and last token of each span, both inclusive, padded with -1,
    as ``SpanCollator`` makes them. In training it returns the loss alone, at the ``Trainer``'s scale; in evaluation also
    the spans it finds.
    """

    config_class = GlobalPointerConfig
    base_model_prefix = "encoder"

    def __init__(self, config: GlobalPointerConfig) -> None:
        super().__init__(config)
        plain = dict(config.encoder)
        inner = transformers.AutoConfig.for_model(plain.pop("model_type"), **plain)
        self.encoder = transformers.AutoModel.from_config(inner)
        head: Any = HEADS[config.head]
        self.head = head(inner.hidden_size, num_types=config.num_labels, head_size=config.head_size)
        self.post_init()

    @classmethod
    def from_encoder(cls, encoder: Any, *, types: Sequence[str], **settings: Any) -> GlobalPointerForTokenClassification:
        """A model around a pretrained ``encoder`` of transformers, with a new head for the span ``types``."""
        names = dict(enumerate(types))
        config = GlobalPointerConfig(
            encoder=encoder.config.to_dict(), id2label=names, label2id={name: n for n, name in names.items()}, **settings
        )
        model = cls(config)
        model.encoder = encoder
        return model

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **inputs: Any,
    ) -> SpanOutput:
        """The loss of ``labels [B, K, 3]`` and, in evaluation, the spans found in ``input_ids [B, T]``."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **inputs).last_hidden_state
        rows, tokens = hidden.shape[:2]
        lengths = [tokens] * rows if attention_mask is None else attention_mask.sum(dim=1).tolist()
        scores = self.head(hidden, lengths)
        output = SpanOutput()
        if labels is not None:
            truth: Any = span_labels(labels, num_types=self.config.num_labels, num_tokens=tokens)
            output["loss"] = scaled_mean(zlpr_loss(scores, truth, reduction="none"), labels, num_items_in_batch)
        if not self.training:
            limit = self.config.max_spans
            found = decode_spans(scores, mode=self.config.mode, top_k=limit, max_spans=max(limit, 1000))
            padded = _padded([[(each.type, each.start, each.end) for each in row] for row in found], limit)
            output["spans"] = padded.to(hidden.device)
        return output


class SpanCollator:
    """Pad tokenized rows and turn their character spans into token spans ``[B, K, 3]``, padded with -1.

    Rows come from ``tokenizer(text, truncation=True, return_offsets_mapping=True)`` with ``labels`` added: a list of
    (first character, end character, type), so that ``text[first:end]`` is the span. A span covers all tokens that it overlaps;
    spans that are cut off by truncation are dropped. Pass ``remove_unused_columns=False`` to ``TrainingArguments``, because the
    ``Trainer`` would otherwise drop the offsets.

    Args:
        tokenizer: a fast tokenizer.
        types: the names of the span types, in the order of the model's ``id2label``.
        width: K, the same in every batch, so that the ``Trainer`` counts rows correctly; a row with more spans is an error.
        **padding: arguments of ``tokenizer.pad``.
    """

    def __init__(self, tokenizer: Any, *, types: Sequence[str], width: int = 64, **padding: Any) -> None:
        check_at_least("SpanCollator", "width", width, 1)
        if getattr(tokenizer, "padding_side", "right") != "right":
            raise ValueError("SpanCollator: `tokenizer` must pad on the right. Set tokenizer.padding_side = 'right'.")
        self.tokenizer, self.width, self.padding = tokenizer, width, padding
        self._number = {name: number for number, name in enumerate(types)}

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A batch of ``rows``, each a dict of columns."""
        lists = [self._token_spans(row) for row in rows if "labels" in row]
        dropped = ("labels", "offset_mapping")
        inputs = [{name: value for name, value in row.items() if name not in dropped} for row in rows]
        batch = dict(self.tokenizer.pad(inputs, return_tensors="pt", **self.padding))
        if lists:
            batch["labels"] = _padded(lists, self.width)
        return batch

    def _token_spans(self, row: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        if "offset_mapping" not in row:
            raise ValueError(
                "SpanCollator: a row must have `offset_mapping`. Tokenize with return_offsets_mapping=True and pass"
                " remove_unused_columns=False to TrainingArguments."
            )
        # Special tokens have empty ranges and belong to no span.
        ranges = [(number, first, end) for number, (first, end) in enumerate(row["offset_mapping"]) if end > first]
        last = max((end for _, _, end in ranges), default=0)
        spans = set()
        for start, stop, name in row["labels"]:
            if name not in self._number:
                raise ValueError(f"SpanCollator: unknown span type {name!r}.{nearest(str(name), self._number)}")
            touched = [number for number, first, end in ranges if first < stop and end > start]
            if touched and stop <= last:
                spans.add((self._number[name], touched[0], touched[-1]))
        return sorted(spans)


class TrainerSpanMetrics:
    """``compute_metrics`` of a ``Trainer`` for span models: exact span precision, recall and F1, over all rows.

    Example:
        >>> import numpy as np
        >>> spans = np.array([[[0, 1, 2], [-1, -1, -1]]])
        >>> TrainerSpanMetrics()((spans, spans))
        {'precision': 1.0, 'recall': 1.0, 'f1': 1.0}
    """

    def __init__(self) -> None:
        self.metrics = SpanMetrics()

    def __call__(self, prediction: Any, compute_result: bool = True) -> dict[str, float]:
        """Update with an ``EvalPrediction`` of spans; return the metrics if ``compute_result`` is set."""
        predicted, truth = (_lists(torch.as_tensor(part)) for part in (prediction[0], prediction[1]))
        self.metrics.update(predicted, truth)
        if not compute_result:
            return {}
        counts = self.metrics.counts()
        self.metrics = SpanMetrics()
        return {"precision": counts.precision, "recall": counts.recall, "f1": counts.f1}


def span_labels(padded: Tensor, *, num_types: int, num_tokens: int) -> SpanLabels:
    """``SpanLabels`` of padded spans ``[B, K, 3]``."""
    if padded.ndim != 3 or padded.shape[-1] != 3 or padded.is_floating_point():
        raise ValueError(
            f"GlobalPointerForTokenClassification: `labels` must be whole numbers [B, K, 3], (type, first, last);"
            f" got {padded.dtype} {list(padded.shape)}. SpanCollator makes them."
        )
    labels = SpanLabels.from_lists(_lists(padded), num_types=num_types, num_tokens=num_tokens)
    return labels.to(padded.device)


def _lists(padded: Tensor) -> list[list[tuple[int, int, int]]]:
    """The spans of each row; padding is -1, or -100 where the ``Trainer`` padded."""
    return [[(t, first, last) for t, first, last in row if t >= 0] for row in padded.tolist()]


def _padded(lists: Sequence[Sequence[tuple[int, int, int]]], width: int) -> Tensor:
    padded = torch.full((len(lists), width, 3), PADDING)
    for row, spans in zip(padded, lists, strict=True):
        if len(spans) > width:
            raise ValueError(f"SpanCollator: a row has {len(spans)} spans; `width` must be at least that.")
        if spans:
            row[: len(spans)] = torch.tensor(spans)
    return padded


transformers.AutoConfig.register(GlobalPointerConfig.model_type, GlobalPointerConfig, exist_ok=True)
transformers.AutoModelForTokenClassification.register(GlobalPointerConfig, GlobalPointerForTokenClassification, exist_ok=True)
