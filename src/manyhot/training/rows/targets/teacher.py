"""Distillation: the probabilities of a trained model become soft labels for a new one."""

from __future__ import annotations

from pathlib import Path

import torch

from manyhot.data.examples import Examples
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.bundle import TrainedModel, load_model

# Lower probabilities of the teacher become 0; otherwise every row would list every label.
LEAST = 1e-3


def open_teacher(folder: str | Path, examples: Examples) -> TrainedModel:
    """The model of a run, which must know the labels of ``examples`` and give probabilities."""
    teacher = load_model(folder)
    missing = [name for name in examples.label_names if name not in set(teacher.label_names)]
    if missing:
        raise ValueError(
            f"train: `teacher` must know all labels of the examples; {str(folder)!r} does not know {missing[0]!r}"
            f" ({len(missing)} of {examples.num_labels})."
        )
    if teacher.link is None and teacher.calibration is None:
        raise ValueError(
            f"train: `teacher` must give probabilities; the loss {teacher.settings.loss!r} of {str(folder)!r} only ranks."
            " Train it with `calibrate`."
        )
    return teacher


def taught_labels(teacher: TrainedModel, examples: Examples, share: float, *, batch_size: int = 1024) -> SparseLabels:
    """Soft labels ``[R, L]``: ``(1 - share) t + share p`` with the teacher's probability p. Values below 0.001 are 0.

    Args:
        teacher: a model that knows the labels of ``examples``.
        examples: the rows to learn from.
        share: of the teacher, in [0, 1].
        batch_size: rows scored at a time.
    """
    number = {name: place for place, name in enumerate(teacher.label_names)}
    columns = torch.tensor([number[name] for name in examples.label_names])
    parts, start = [], 0
    for logits in teacher.iter_logits(examples, batch_size=batch_size):
        rows = slice(start, start + len(logits))
        start = rows.stop
        says = teacher.to_probabilities(logits)[:, columns]
        mixed = torch.lerp(examples.labels[rows].dense(says.dtype), says, share)
        parts.append(SparseLabels.from_dense(torch.where(mixed < LEAST, 0.0, mixed)))
    return SparseLabels.collate(parts)
