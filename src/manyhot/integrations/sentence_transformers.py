"""Losses for the ``CrossEncoder`` of sentence-transformers: several labels per text, several relevant documents per query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from manyhot.integrations.huggingface.loss import TrainerLoss
from manyhot.integrations.registry import framework
from manyhot.losses import zlpr_loss

sentence_transformers: Any = framework("sentence_transformers")


class MultiLabelLoss(nn.Module):
    """A loss of the catalog for a ``CrossEncoder`` with L labels, on texts or on pairs of texts.

    Args:
        model: a ``CrossEncoder`` with ``num_labels=L``.
        loss: a name of ``manyhot.LOSSES`` that is a sum over rows.
        **options: options of the loss, such as ``smoothing``.

    The data set has one or two columns of texts and a column ``label`` with a list of L numbers in [0, 1]; NaN is unknown.
    """

    def __init__(self, model: Any, loss: str = "zlpr", **options: Any) -> None:
        super().__init__()
        if model.num_labels < 2:
            raise ValueError(
                f"MultiLabelLoss: `model` must have num_labels = L, at least 2; got {model.num_labels}."
                " For one label per pair, use BinaryCrossEntropyLoss of sentence-transformers."
            )
        self.model, self.loss = model, TrainerLoss(loss, **options)

    def forward(
        self,
        inputs: Sequence[Sequence[str]],
        labels: Tensor | Sequence[Any],
        prompt: str | None = None,
        task: str | None = None,
    ) -> Tensor:
        """The mean loss of a batch: columns of texts, and labels ``[B, L]`` or a list of L numbers per row."""
        if len(inputs) not in (1, 2):
            raise ValueError(f"MultiLabelLoss: the data must have one or two columns of texts; got {len(inputs)}.")
        texts: list[Any] = list(inputs[0]) if len(inputs) == 1 else list(zip(*inputs, strict=True))
        logits = scores_of(self.model, texts, prompt, task)
        if not isinstance(labels, Tensor):
            rows = [torch.as_tensor(row, dtype=torch.float32) for row in labels]
            labels = torch.stack(rows) if len({row.shape for row in rows}) == 1 else torch.zeros(0)
        if labels.shape != logits.shape:
            raise ValueError(
                f"MultiLabelLoss: `label` must be a list of {self.model.num_labels} numbers per row, {list(logits.shape)} in"
                f" all; got {list(labels.shape)}."
            )
        return self.loss(logits, labels.to(logits.device))

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {"loss": self.loss.info.name, **self.loss.options}


class QueryDocumentsLoss(nn.Module):
    """ZLPR over the documents of a query: relevant documents score above 0, all others below.

    A ranking loss for any number of relevant documents, including none. It has a decision boundary: show the documents with
    a score above 0. Only documents of the same query are compared.

    Args:
        model: a ``CrossEncoder`` with ``num_labels=1``.
        smoothing: uniform label smoothing.

    The data set has the columns query, documents (a list of texts) and ``labels`` (a list of numbers in [0, 1], one for each
    document). Lists may differ in length.
    """

    def __init__(self, model: Any, *, smoothing: float = 0.0) -> None:
        super().__init__()
        if model.num_labels != 1:
            raise ValueError(f"QueryDocumentsLoss: `model` must have num_labels = 1; got {model.num_labels}.")
        self.model, self.smoothing = model, smoothing

    def forward(
        self, inputs: Sequence[Any], labels: Sequence[Tensor] | Tensor, prompt: str | None = None, task: str | None = None
    ) -> Tensor:
        """The mean loss of the queries of a batch."""
        if len(inputs) != 2:
            raise ValueError(
                f"QueryDocumentsLoss: the data must have queries and lists of documents; got {len(inputs)} columns."
            )
        queries, documents = inputs
        lengths = [len(each) for each in documents]
        truths = [torch.as_tensor(each, dtype=torch.float32) for each in labels]
        if [len(each) for each in truths] != lengths:
            raise ValueError("QueryDocumentsLoss: `labels` must have one number for each document of a query.")
        pairs = [(query, text) for query, own in zip(queries, documents, strict=True) for text in own]
        if not pairs:
            raise ValueError("QueryDocumentsLoss: the batch has no document.")
        scores = scores_of(self.model, pairs, prompt, task).reshape(-1)
        where = torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]
        where = where.to(scores.device)
        grid = scores.new_zeros(where.shape).masked_scatter(where, scores)
        truth = grid.detach().new_zeros(where.shape).masked_scatter(where, torch.cat(truths).to(grid))
        return zlpr_loss(grid, truth, where=where, smoothing=self.smoothing)

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, for the model card."""
        return {"loss": "zlpr", "smoothing": self.smoothing}


def scores_of(model: Any, texts: list[Any], prompt: str | None, task: str | None) -> Tensor:
    """Logits of texts or pairs, with gradients."""
    features = model.preprocess(texts, prompt=prompt, task=task)
    moved = {name: part.to(model.device) if isinstance(part, Tensor) else part for name, part in features.items()}
    scores: Tensor = model(moved)["scores"]
    return scores
