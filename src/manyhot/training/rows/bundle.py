"""A trained model and the folder it is saved in: safetensors and JSON, without executable content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from manyhot.data.reading import Reading
from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.rule import DecisionRule
from manyhot.explain.contributions import STEPS, LinearFactors
from manyhot.explain.explanation import Explanation, LabelWords
from manyhot.training.rows.description import (
    COUNTS,
    FORMAT,
    read_parts,
    write_bundle,
)
from manyhot.training.rows.explaining import explain_rows, label_words
from manyhot.training.rows.inputs.registry import Inputs
from manyhot.training.rows.scoring import ScoringModel
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import losses_in_words
from manyhot.training.run.bundle_folder import (
    model_folder,
    read_description,
    reading,
)


class TrainedModel(ScoringModel):
    """Inputs, body, decision rule and link of a trained model. Made by ``train`` and ``load_model``.

    Args:
        body: the module, on its device.
        shape: the description of the body, from which ``make_body`` builds it.
        inputs: the fitted preparation of inputs.
        label_names: one name per label.
        settings: the resolved settings it was trained with.
        link: the link from its scores to probabilities, or None if the scores only rank.
        rule: how its scores become predictions.
        calibration: fitted probabilities, or None.
        about: facts about the training: rows, versions, the result of tuning.
        reading: how the files of the training rows were read, so that other files are read the same way.
        label_counts: int64 ``[L]``, how many training rows have each label; None if unknown.
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

    def __repr__(self) -> str:
        losses = losses_in_words(self.settings.loss, self.settings.mean_of)
        return f"TrainedModel({self.shape['body']} on {self.inputs.kind}, {self.num_labels:,} labels, loss {losses})"

    def factors(self) -> LinearFactors | None:
        """The weight matrices of a score that is linear in the inputs (linear, bag); otherwise None."""
        own = getattr(self.body, "factors", None)
        found: LinearFactors | None = None if own is None else own()
        return found

    def explain(
        self, inputs: Any, *, labels: Sequence[str] | None = None, top: int = 3, most: int = 10, steps: int = STEPS
    ) -> list[Explanation]:
        """Explain the labels of each row: the inputs that count for and against them.

        For linear and bag the contributions are exact: each is weight times value, and with the base they add up to the score.
        For other bodies they are gradient times input; ``error`` is the part of the score that they do not explain. More
        ``steps`` make it smaller.

        Args:
            inputs: what ``predict`` takes.
            labels: the labels to explain; None: the predicted ones, and the best others up to ``top``.
            top: how many labels at least.
            most: how many contributions are listed for each label.
            steps: points at which gradients are taken, for bodies that are not linear.

        Example:
            >>> from manyhot.data.examples import Examples
            >>> from manyhot.labels.sparse import SparseLabels
            >>> from manyhot.training.rows.train import train
            >>> labels = SparseLabels.from_lists([[0], [1]] * 10, num_labels=2)
            >>> model = train(Examples(labels, ("cat", "dog"), texts=["a cat sat", "a dog ran"] * 10))
            >>> found = model.explain(["the dog"], labels=["dog"])[0].labels[0]
            >>> found.contributions[0].feature, found.contributions[0].spans
            ('dog', ((4, 7),))
        """
        return list(explain_rows(self, inputs, labels=labels, top=top, most=most, steps=steps))

    def label_words(self, *, labels: Sequence[str] | None = None, most: int = 10) -> list[LabelWords]:
        """The features with the largest positive and negative weights of each label (linear and bag).

        Args:
            labels: the labels; None: all.
            most: how many on each side.
        """
        return list(label_words(self, labels=labels, most=most))

    def describe(self) -> dict[str, Any]:
        """A summary of the model, for JSON or a table."""
        thresholds = self.rule.threshold if isinstance(self.rule.threshold, tuple) else (self.rule.threshold,)
        return {
            "body": self.shape["body"],
            "inputs": self.inputs.kind,
            "features": self.inputs.width,
            "labels": self.num_labels,
            "parameters": sum(each.numel() for each in self.body.parameters()),
            "loss": losses_in_words(self.settings.loss, self.settings.mean_of),
            "link": self.link,
            "calibration": None if self.calibration is None else self.calibration.kind,
            "thresholds": "one per label" if len(thresholds) > 1 else thresholds[0],
            "settings": self.settings.to_dict(),
            **self.about,
        }

    def save(self, folder: str | Path) -> None:
        """Write the bundle: ``model.json`` and the files it names.

        ``model.json`` is written last and atomically, so that the folder holds either the old model or the new one.
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
    """Load a saved model. Names, sizes and the checksum are checked; nothing is unpickled.

    Args:
        folder: where ``TrainedModel.save`` wrote it, or the folder of a run.
        device: the device of the model.

    Returns:
        The model.

    Raises:
        BundleError: if the folder does not hold a complete model.

    Example:
        >>> import tempfile
        >>> from manyhot.data.examples import Examples
        >>> from manyhot.labels.sparse import SparseLabels
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
