"""A loss of the catalog for ``Trainer(compute_loss_func=...)``, at the right scale."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_choice, check_label_values, check_logits, shape_text
from manyhot._suggest import nearest
from manyhot.labels import SparseLabels
from manyhot.losses import get_loss

LABELS = ("dense", "lists")
PADDING = -1
# Arguments of a loss function that ``TrainerLoss`` sets itself.
_TAKEN = ("logits", "labels", "where", "sample_weight", "reduction", "dim", "validate")


class TrainerLoss:
    """A loss of the catalog in the form that Hugging Face's ``Trainer`` calls.

    The ``Trainer`` passes the number of label *entries* in all accumulated micro-batches of all processes, which is
    rows times L for labels ``[B, L]``, and does not divide by the accumulation steps. ``TrainerLoss`` returns the share of
    this micro-batch in the mean over all these rows, so a batch of 32 and 8 micro-batches of 4 give the same gradient.
    Without a count it returns the mean over the rows.

    Unknown labels are NaN and excluded from the loss. -100 is an error, because it also changes the ``Trainer``'s count. Label
    smoothing is the option ``smoothing``: the ``Trainer`` ignores its own ``label_smoothing_factor`` when it has a loss
    function.

    Args:
        loss: a name of ``manyhot.LOSSES``. A loss that compares the rows of a batch cannot be accumulated and is an error.
        labels: ``"dense"`` for ``[B, L]`` in [0, 1] (NaN is unknown), or ``"lists"`` for label numbers ``[B, K]`` padded
            with -1, with the same K in every batch, as ``MultiLabelCollator(width=K)`` makes them.
        validate: check the values of the labels. This is cheap: the ``Trainer`` waits for the device after every step anyway.
        **options: options of the loss function, such as ``smoothing``, ``pos_weight``, ``threshold`` or ``gamma``.

    Example:
        >>> loss = TrainerLoss("zlpr")
        >>> outputs = {"logits": torch.tensor([[2.0, -1.0, 0.5], [0.0, 1.0, -1.0]])}
        >>> labels = torch.tensor([[1.0, 0.0, float("nan")], [0.0, 1.0, 0.0]])
        >>> loss(outputs, labels)
        tensor(0.8077)
        >>> loss(outputs, labels, num_items_in_batch=torch.tensor(12))
        tensor(0.4039)
    """

    def __init__(self, loss: str = "zlpr", *, labels: str = "dense", validate: bool = True, **options: Any) -> None:
        check_choice("TrainerLoss", "labels", labels, LABELS)
        self.info, self.labels, self.validate = get_loss(loss), labels, validate
        known = [name for name in inspect.signature(self.info.function).parameters if name not in _TAKEN]
        for name in options:
            if name not in known:
                raise TypeError(f"TrainerLoss: {loss} has no option {name!r}.{nearest(name, known)}")
        if not self.info.row_separable and options.get("batch_weight") != 0:
            raise ValueError(
                f"TrainerLoss: {loss} compares the rows of a batch, so micro-batches do not add up to a batch."
                " Pass batch_weight=0, or choose another loss."
            )
        self.options = options

    def __call__(self, outputs: Any, labels: Any, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The loss of one micro-batch; ``outputs`` holds ``logits [B, L]``."""
        if labels is None:
            raise ValueError("TrainerLoss: the batch has no `labels`. Name the column in TrainingArguments(label_names=...).")
        logits = logits_of(outputs)
        where = None
        prepared: Any = labels
        if self.labels == "lists":
            prepared = self._lists(labels, logits)
        elif isinstance(labels, Tensor) and labels.is_floating_point():
            unknown = labels.isnan()
            if bool(unknown.any()):
                prepared, where = torch.where(unknown, 0.0, labels), ~unknown
        if self.validate and isinstance(prepared, Tensor) and prepared.shape == logits.shape:
            self._check_values(prepared, where)
        options = {name: _moved(value, logits) for name, value in self.options.items()}
        rows = self.info(logits, prepared, where=where, reduction="none", **options)
        return scaled_mean(rows, labels, num_items_in_batch)

    def _lists(self, labels: Any, logits: Tensor) -> SparseLabels:
        if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.ndim != 2:
            got = f"{labels.dtype} {shape_text(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
            raise TypeError(f"TrainerLoss: `labels` must be label numbers [B, K] padded with {PADDING}; got {got}.")
        return SparseLabels.from_padded(labels, num_labels=logits.shape[-1], padding=PADDING)

    def _check_values(self, labels: Tensor, where: Tensor | None) -> None:
        if not labels.dtype == torch.bool and bool((labels == -100).any()):
            raise ValueError(
                "TrainerLoss: `labels` must lie in [0, 1], and unknown labels must be NaN; got -100, which the Trainer"
                " does not count. Use float labels with NaN."
            )
        check_label_values("TrainerLoss", labels, where)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"TrainerLoss({self.info.name!r}, labels={self.labels!r}{options})"


def logits_of(outputs: Any) -> Tensor:
    """The logits of a model's output: an attribute, a key, or the first element of a tuple."""
    if isinstance(outputs, Tensor):
        found: Any = outputs
    elif isinstance(outputs, (tuple, list)) and not hasattr(outputs, "logits"):
        found = outputs[0] if outputs else None
    else:
        found = outputs.get("logits") if isinstance(outputs, dict) else getattr(outputs, "logits", None)
    if found is None:
        raise TypeError(f"TrainerLoss: the model's outputs must hold `logits`; got {type(outputs).__name__}.")
    check_logits("TrainerLoss", found)
    return found  # type: ignore[no-any-return]


def scaled_mean(rows: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
    """The share of ``rows [B]`` in the mean over all accumulated rows; without a count, the mean of ``rows``.

    ``labels`` are the labels that the ``Trainer`` counted, with the same number of entries for each row.
    """
    if num_items_in_batch is None:
        return rows.sum() / max(rows.numel(), 1)
    entries = labels.numel() // max(rows.numel(), 1)
    if not isinstance(num_items_in_batch, Tensor):
        num_items_in_batch = torch.tensor(num_items_in_batch)
    count = num_items_in_batch.to(rows.device)
    if count.numel() != 1:
        raise ValueError(
            "TrainerLoss: several GPUs in one process (DataParallel) are not supported."
            " Start one process per GPU with torchrun."
        )
    return rows.sum() * entries / count.reshape(())


def _moved(value: Any, logits: Tensor) -> Any:
    return value.to(logits.device) if isinstance(value, Tensor) else value
