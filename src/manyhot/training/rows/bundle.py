"""A trained model and the folder it is saved in: safetensors and JSON, nothing that runs when it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyhot._checks import check_at_least
from manyhot.data.examples import Examples
from manyhot.data.reading import Reading
from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.links import probabilities
from manyhot.decisions.rule import DecisionRule, decide_sparse
from manyhot.explain.contributions import LinearFactors
from manyhot.explain.explanation import Explanation, LabelWords
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.at_k import LEAST_ROWS, label_propensities
from manyhot.training.rows.description import (
    COUNTS,
    FORMAT,
    read_parts,
    write_bundle,
)
from manyhot.training.rows.explaining import explain_rows, label_words
from manyhot.training.rows.inputs.features import FeatureInputs
from manyhot.training.rows.inputs.registry import Inputs
from manyhot.training.rows.inputs.row_batches import SparseRows, take_rows
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.bundle_folder import (
    model_folder,
    read_description,
    reading,
)


class TrainedModel:
    """Inputs, body, decision rule and link of a trained model. Made by ``train`` and ``load_model``.

    Args:
        body: the module, on its device.
        shape: what ``make_body`` makes it from.
        inputs: the fitted preparation of inputs.
        label_names: one name per label.
        settings: the resolved settings it was trained with.
        link: which link its scores have, or None where they only rank.
        rule: how its scores become predictions.
        calibration: fitted probabilities, or None.
        about: what is worth knowing: rows, versions, what tuning found.
        reading: how the files of the training rows were read, so that other files are read the same way.
        label_counts: int64 ``[L]``, how many training rows carry each label; None where nobody counted.
    """

    def __init__(
        self,
        body: nn.Module,
        shape: dict[str, Any],
        inputs: Inputs,
        label_names: tuple[str, ...],
        settings: TrainSettings,
        *,
        link: str | None,
        rule: DecisionRule,
        calibration: Calibration | None = None,
        about: dict[str, Any] | None = None,
        reading: Reading | None = None,
        label_counts: Tensor | None = None,
    ) -> None:
        self.body = body.eval()
        self.shape = shape
        self.inputs = inputs
        self.label_names = label_names
        self.settings = settings
        self.link = link
        self.rule = rule
        self.calibration = calibration
        self.about = about or {}
        self.reading = reading or Reading()
        self.label_counts = label_counts

    @property
    def num_labels(self) -> int:
        """L."""
        return len(self.label_names)

    @property
    def device(self) -> torch.device:
        """Where the body is."""
        return next(self.body.parameters()).device

    def iter_logits(self, inputs: Any, *, batch_size: int = 1024) -> Iterator[Tensor]:
        """Logits ``[B, L]`` batch by batch, on the CPU.

        Args:
            inputs: ``Examples``, or texts, features ``[N, F]`` or images ``[N, C, H, W]`` as the model reads them.
            batch_size: rows of a batch.
        """
        check_at_least("TrainedModel.iter_logits", "batch_size", batch_size, 1)
        if isinstance(inputs, Examples) and isinstance(self.inputs, FeatureInputs) and inputs.features is not None:
            self.reading.check_features(inputs, self.inputs.names, sparse=self.inputs.sparse)
        rows = self.inputs.rows(inputs)
        device = next(self.body.parameters()).device
        for start in range(0, rows.shape[0], batch_size):
            batch = take_rows(rows, slice(start, min(start + batch_size, rows.shape[0])))
            with torch.inference_mode():
                moved = batch.to_device(device) if isinstance(batch, SparseRows) else batch.to(device)
                logits: Tensor = self.body(moved).float().cpu()
            yield logits

    def logits(self, inputs: Any, *, batch_size: int = 1024) -> Tensor:
        """Logits ``[N, L]`` of all rows."""
        parts = list(self.iter_logits(inputs, batch_size=batch_size))
        return torch.cat(parts) if parts else torch.zeros(0, self.num_labels)

    def predict(self, inputs: Any, *, rule: DecisionRule | None = None, batch_size: int = 1024) -> SparseLabels:
        """What the model's rule, or another, says: hard labels ``[N, L]``."""
        parts = [decide_sparse(logits, rule or self.rule) for logits in self.iter_logits(inputs, batch_size=batch_size)]
        return SparseLabels.collate(parts) if parts else SparseLabels.from_lists([], num_labels=self.num_labels)

    def probabilities(self, inputs: Any, *, batch_size: int = 1024) -> Tensor:
        """``[N, L]`` by the calibration where there is one, by the link otherwise."""
        return self.to_probabilities(self.logits(inputs, batch_size=batch_size))

    def to_probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities of logits this model gave."""
        if self.calibration is None and self.link is None:
            raise ValueError(
                f"TrainedModel: the scores of loss {self.settings.loss!r} only rank; train with `calibrate` for probabilities."
            )
        return probabilities(logits, self.calibration or self.link or "hard")

    @property
    def has_propensities(self) -> bool:
        """Whether the model knows what ``propensities`` needs: label counts, of 3 training rows or more."""
        return self.label_counts is not None and self.about.get("rows", 0) >= LEAST_ROWS

    def propensities(self, *, a: float = 0.55, b: float = 1.5) -> Tensor:
        """How likely a true label is written down, float64 ``[L]``, by its count in the training rows; see PSP@k.

        Args:
            a: how fast the propensity rises with the count; see ``label_propensities``.
            b: added to every count.
        """
        if self.label_counts is None:
            raise ValueError(
                "PSP@k needs how many training rows carry each label, and this model was saved without these counts."
                " Train it again, or leave PSP@k out."
            )
        if not self.has_propensities:
            raise ValueError(
                f"PSP@k needs a model of at least {LEAST_ROWS} training rows; this one has {self.about.get('rows', 0)}."
                " Leave PSP@k out."
            )
        return label_propensities(self.label_counts, self.about["rows"], a=a, b=b)

    def factors(self) -> LinearFactors | None:
        """The tables whose product is the score, where it is linear in the inputs (linear, bag); otherwise None."""
        own = getattr(self.body, "factors", None)
        found: LinearFactors | None = None if own is None else own()
        return found

    def explain(
        self, inputs: Any, *, labels: Sequence[str] | None = None, top: int = 3, most: int = 10, steps: int = 1
    ) -> list[Explanation]:
        """Why each row has its labels: the inputs that spoke for and against.

        For linear and bag the parts are exact: weight times value, and with the base they add up to the score. For other
        bodies they are gradient times input, and ``error`` says what they leave unexplained; more ``steps`` make it smaller.

        Args:
            inputs: what ``predict`` takes.
            labels: the labels to explain; None explains the predicted ones and the best others up to ``top``.
            top: how many labels at least.
            most: how many contributions are listed for each label.
            steps: points at which gradients are taken, for bodies that are not linear.

        Example:
            >>> from manyhot.data.examples import Examples
            >>> from manyhot.training.rows.train import train
            >>> labels = SparseLabels.from_lists([[0], [1]] * 10, num_labels=2)
            >>> model = train(Examples(labels, ("cat", "dog"), texts=["a cat sat", "a dog ran"] * 10))
            >>> found = model.explain(["the dog"], labels=["dog"])[0].labels[0]
            >>> found.contributions[0].feature, found.contributions[0].spans
            ('dog', ((4, 7),))
        """
        return list(explain_rows(self, inputs, labels=labels, top=top, most=most, steps=steps))

    def label_words(self, *, labels: Sequence[str] | None = None, most: int = 10) -> list[LabelWords]:
        """The features that speak most for each label and most against it (linear and bag).

        Args:
            labels: which labels; None is all.
            most: how many on each side.
        """
        return list(label_words(self, labels=labels, most=most))

    def describe(self) -> dict[str, Any]:
        """What it is, fit for JSON and for a table."""
        thresholds = self.rule.threshold if isinstance(self.rule.threshold, tuple) else (self.rule.threshold,)
        return {
            "body": self.shape["body"],
            "inputs": self.inputs.kind,
            "features": self.inputs.width,
            "labels": self.num_labels,
            "parameters": sum(each.numel() for each in self.body.parameters()),
            "loss": self.settings.loss,
            "link": self.link,
            "calibration": None if self.calibration is None else self.calibration.kind,
            "thresholds": "one per label" if len(thresholds) > 1 else thresholds[0],
            "settings": self.settings.to_dict(),
            **self.about,
        }

    def save(self, folder: str | Path) -> None:
        """Write the bundle: ``model.json`` and the files it names.

        ``model.json`` is put in place last and in one move, so that the folder holds the old model or the new one.
        """
        tensors = {f"body.{name}": each for name, each in self.body.state_dict().items()}
        tensors |= {f"inputs.{name}": each for name, each in self.inputs.tensors().items()}
        if self.label_counts is not None:
            tensors[COUNTS] = self.label_counts
        described = {
            "shape": dict(self.shape),
            "inputs": self.inputs.to_json(),
            "labels": list(self.label_names),
            "link": self.link,
            "rule": self.rule.to_json(),
            "calibration": None if self.calibration is None else self.calibration.to_json(),
            "settings": self.settings.to_dict(),
            "about": self.about,
            "reading": self.reading.to_json(),
        }
        write_bundle(Path(folder), tensors, described)


def load_model(folder: str | Path, *, device: str = "cpu") -> TrainedModel:
    """Read a bundle; names, sizes and the checksum are checked, nothing is unpickled.

    Args:
        folder: where ``TrainedModel.save`` wrote it, or the folder of a run.
        device: where the body goes.

    Returns:
        The model.

    Raises:
        BundleError: where the folder does not hold a whole model.

    Example:
        >>> import tempfile
        >>> from manyhot.data.examples import Examples
        >>> from manyhot.training.rows.train import train
        >>> labels = SparseLabels.from_lists([[0], [1]] * 10, num_labels=2)
        >>> model = train(Examples(labels, ("cat", "dog"), texts=["a cat sat", "a dog ran"] * 10))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(folder)
        ...     load_model(folder).predict(["the dog"]).lists()
        [[1]]
    """
    folder = model_folder(folder)
    data = read_description("load_model", folder, FORMAT)
    with reading("load_model", folder):
        parts = read_parts(folder, data)
        return TrainedModel(parts.pop("body").to(device), **parts)
