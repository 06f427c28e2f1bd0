"""Predictions of a saved model: row by row for the command line, and as an object that can be sent to other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhot._checks import check_at_least
from manyhot.data.examples import Examples
from manyhot.decisions.links import probabilities as probabilities_of
from manyhot.decisions.rule import DecisionRule, decide_sparse
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.bundle import TrainedModel, load_model
from manyhot.training.rows.scoring import scores_at


@dataclass(frozen=True)
class Prediction:
    """The predicted labels of a row, highest score first, with scores and probabilities if requested."""

    labels: list[str]
    scores: list[float] | None
    probabilities: list[float] | None


def predict_rows(
    model: TrainedModel,
    inputs: Any,
    rule: DecisionRule,
    *,
    scores: bool = False,
    probabilities: bool = False,
    close: Callable[[SparseLabels], SparseLabels] | None = None,
) -> Iterator[Prediction]:
    """Predict the labels of each row.

    Args:
        model: the model.
        inputs: inputs as for ``TrainedModel.iter_scores``.
        rule: the decision rule.
        scores: whether to return the scores of the labels.
        probabilities: whether to return their probabilities, for a model with a link or a calibration.
        close: a function that changes the predicted labels, for example to make them consistent with a hierarchy.
    """
    link = model.calibration or model.link
    for found in model.iter_scores(inputs):
        decided = decide_sparse(found, rule).to("cpu")
        decided = decided if close is None else close(decided)
        values = scores_at(found, decided.rows, decided.indices)
        probs = None
        if probabilities and link is not None:
            # Lazy scores have no calibration, and their links are elementwise.
            dense = probabilities_of(found, link) if isinstance(found, Tensor) else None
            probs = probabilities_of(values, link) if dense is None else dense[decided.rows, decided.indices]
        for start, stop in pairwise(decided.offsets.tolist()):
            order = start + values[start:stop].argsort(descending=True, stable=True)
            yield Prediction(
                labels=[model.label_names[label] for label in decided.indices[order].tolist()],
                scores=[round(value, 6) for value in values[order].tolist()] if scores else None,
                probabilities=None if probs is None else [round(value, 6) for value in probs[order].tolist()],
            )


class Predictor:
    """A saved model that can be sent to other processes.

    Its pickle holds only the path and the settings; a process loads the model at the first use.

    Args:
        model: the folder of a run or of a model. Every process that uses the predictor must be able to read it.
        top_k: predict the k best labels of each row instead of applying the model's rule.
        scores: also return the score of each label.
        probabilities: also return the probability of each label.
        threads: the number of CPU threads that torch uses in each process; 0 keeps torch's setting. Several processes on one
            machine should share its cores.

    Example:
        >>> import tempfile
        >>> from manyhot import Examples, SparseLabels, train
        >>> labels = SparseLabels.from_lists([[0], [1]] * 10, num_labels=2)
        >>> folder = tempfile.mkdtemp()
        >>> train(Examples(labels, ("cat", "dog"), texts=["a cat sat", "a dog ran"] * 10)).save(folder)
        >>> predictor = Predictor(folder)
        >>> predictor(["the dog", "my cat"])
        {'labels': [['dog'], ['cat']]}
    """

    def __init__(
        self,
        model: str | Path,
        *,
        top_k: int | None = None,
        scores: bool = False,
        probabilities: bool = False,
        threads: int = 0,
    ) -> None:
        if top_k is not None:
            check_at_least("Predictor", "top_k", top_k, 1)
        check_at_least("Predictor", "threads", threads, 0)
        self.model, self.top_k, self.scores, self.probabilities = str(Path(model).absolute()), top_k, scores, probabilities
        self.threads = threads
        self._loaded: TrainedModel | None = None

    @property
    def loaded(self) -> TrainedModel:
        """The model; it is loaded at the first call."""
        if self._loaded is None:
            if self.threads:
                torch.set_num_threads(self.threads)
            self._loaded = load_model(self.model)
        return self._loaded

    def __call__(self, inputs: Any) -> dict[str, list[Any]]:
        """Predict the labels of rows, highest score first.

        Args:
            inputs: texts, features ``[N, F]``, images or ``Examples``, as the model reads them.

        Returns:
            A dict of columns: ``labels``, and ``scores`` and ``probabilities`` if requested, with a list for each row.
        """
        model = self.loaded
        if self.probabilities and model.link is None and model.calibration is None:
            raise ValueError(
                f"Predictor: `probabilities` must be False for the loss {model.settings.loss!r}, which only ranks."
            )
        rule = model.rule if self.top_k is None else DecisionRule(top_k=min(self.top_k, model.num_labels))
        found = list(predict_rows(model, _rows(model, inputs), rule, scores=self.scores, probabilities=self.probabilities))
        asked = [name for name, wanted in (("scores", self.scores), ("probabilities", self.probabilities)) if wanted]
        return {name: [getattr(each, name) for each in found] for name in ("labels", *asked)}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}

    def __repr__(self) -> str:
        return f"Predictor({self.model!r})"


def _rows(model: TrainedModel, inputs: Any) -> Any:
    """Inputs as the model takes them. Other frameworks pass texts and rows of features as arrays of objects."""
    if isinstance(inputs, Examples) or model.inputs.kind == "images":
        return inputs
    if model.inputs.kind != "features":
        return [str(each) for each in inputs]
    return inputs if getattr(inputs, "ndim", 1) == 2 else np.stack([np.asarray(row) for row in inputs])
