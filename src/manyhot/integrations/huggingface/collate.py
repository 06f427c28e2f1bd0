"""Batches for the ``Trainer``: texts padded by the tokenizer, label sets as tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least
from manyhot._suggest import nearest
from manyhot.integrations.huggingface.loss import PADDING

NAN = float("nan")


class MultiLabelCollator:
    """Pad tokenized rows and turn their ``labels`` into a tensor.

    The labels of a row are a list of names, a list of label numbers, or a mapping from name or number to a value: a label in
    [0, 1], or None (or NaN) where it is unknown. A label that is not listed is 0.

    Args:
        tokenizer: its ``pad`` method pads the other columns. None stacks them as they are.
        label_names: one name per label, in the order of the model's outputs (``id2label``).
        width: None for dense float32 labels ``[B, L]``. A number K gives label numbers ``[B, K]`` padded with -1, for
            ``TrainerLoss(labels="lists")`` and label sets too large to be dense; a row with more labels is an error.
        key: the column of the labels.
        **padding: arguments of ``tokenizer.pad``, such as ``pad_to_multiple_of``.

    Example:
        >>> collate = MultiLabelCollator(None, label_names=["cat", "dog", "fox"])
        >>> rows = [{"x": [1.0], "labels": ["fox"]}, {"x": [2.0], "labels": {"cat": 0.8, "dog": None}}]
        >>> collate(rows)["labels"]
        tensor([[0.0000, 0.0000, 1.0000],
                [0.8000,    nan, 0.0000]])
        >>> MultiLabelCollator(None, label_names=["cat", "dog", "fox"], width=2)(rows[:1])["labels"]
        tensor([[ 2, -1]])
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        label_names: Sequence[str],
        width: int | None = None,
        key: str = "labels",
        **padding: Any,
    ) -> None:
        if isinstance(label_names, str) or len(set(label_names)) != len(label_names):
            raise ValueError("MultiLabelCollator: `label_names` must be a list of different names.")
        if width is not None:
            check_at_least("MultiLabelCollator", "width", width, 1)
        self.tokenizer, self.width, self.key, self.padding = tokenizer, width, key, padding
        self.label_names = tuple(label_names)
        self._number = {name: number for number, name in enumerate(self.label_names)}

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A batch of ``rows``, each a dict of columns."""
        inputs = [{name: value for name, value in row.items() if name != self.key} for row in rows]
        if self.tokenizer is None:
            batch: dict[str, Any] = {name: torch.as_tensor([row[name] for row in inputs]) for name in inputs[0]}
        else:
            batch = dict(self.tokenizer.pad(inputs, return_tensors="pt", **self.padding))
        if self.key in rows[0]:
            sets = [self._entries(row[self.key]) for row in rows]
            batch["labels"] = self._dense(sets) if self.width is None else self._lists(sets, self.width)
        return batch

    def _entries(self, labels: Any) -> dict[int, float]:
        """The listed labels by number; NaN where unknown."""
        if isinstance(labels, Mapping):
            given = {self._number_of(name): NAN if value is None else float(value) for name, value in labels.items()}
        elif isinstance(labels, (str, bytes)) or not isinstance(labels, (Sequence, Tensor)):
            raise TypeError(
                f"MultiLabelCollator: the labels of a row must be a list or a mapping; got {type(labels).__name__}."
                " Write one label as a list of one."
            )
        else:
            given = {self._number_of(name): 1.0 for name in labels}
        for number, value in given.items():
            if not (0 <= value <= 1 or math.isnan(value)):
                raise ValueError(
                    f"MultiLabelCollator: a label must lie in [0, 1], or be None where unknown; got {value:g} for"
                    f" {self.label_names[number]!r}."
                )
        return given

    def _number_of(self, label: Any) -> int:
        if isinstance(label, str):
            if label not in self._number:
                raise ValueError(f"MultiLabelCollator: unknown label {label!r}.{nearest(label, self._number)}")
            return self._number[label]
        number = label.item() if isinstance(label, Tensor) else label
        if isinstance(number, bool) or int(number) != number or not 0 <= number < len(self.label_names):
            raise ValueError(
                f"MultiLabelCollator: a label must be a name or a whole number in [0, {len(self.label_names)}); got {number!r}."
                " List the positive labels, not one 0 or 1 for each label."
            )
        return int(number)

    def _dense(self, sets: list[dict[int, float]]) -> Tensor:
        dense = torch.zeros(len(sets), len(self.label_names))
        for row, entries in zip(dense, sets, strict=True):
            for number, value in entries.items():
                row[number] = value
        return dense

    def _lists(self, sets: list[dict[int, float]], width: int) -> Tensor:
        padded = torch.full((len(sets), width), PADDING)
        for row, entries in zip(padded, sets, strict=True):
            if len(entries) > width:
                raise ValueError(f"MultiLabelCollator: a row has {len(entries)} labels; `width` must be at least that.")
            for place, (number, value) in enumerate(sorted(entries.items())):
                if value != 1:
                    raise ValueError(
                        "MultiLabelCollator: label lists hold no soft or unknown labels; omit `width` to get dense labels."
                    )
                row[place] = number
        return padded
