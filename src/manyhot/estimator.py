"""The scikit-learn interface to training."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from manyhot._classifier_file import DESCRIPTION, FORMAT, read_classifier
from manyhot._files import json_bytes, write_whole
from manyhot._suggest import nearest
from manyhot.data.examples import Examples
from manyhot.labels.encode import decode_label_sets
from manyhot.labels.sparse import SparseLabels
from manyhot.targets import BINARY, INDICATORS, MULTICLASS, NAMES, label_sets, read_targets
from manyhot.training.rows.bundle import TrainedModel, load_model
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train

Array = np.ndarray[Any, Any]
WHO = "ManyhotClassifier"


class ManyhotClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-label classifier for scikit-learn's pipelines, searches and scorers.

    Every setting of ``TrainSettings`` is a parameter with the same name and default: ``ManyhotClassifier(loss="bce",
    epochs=5)``. ``X`` is texts (a list, an array, a data frame's column), dense or sparse features, with NaN for missing
    values, or images ``[N, C, H, W]``. ``y`` is one of

    - a list of names for each row, ``[["sea", "sun"], ["snow"], []]``; sets and columns of lists too;
    - an indicator matrix ``[N, L]``, dense or sparse, or columns of a data frame: 0 or 1, between them for soft labels, NaN
      for unknown labels;
    - a column of classes: two classes become one label; more become one label each, and the best one is predicted.

    ``predict`` returns the same form. ``save`` and ``load`` store a fitted classifier in a folder, as safetensors and JSON:
    nothing is pickled, and the command line reads the folder too (``manyhot predict FOLDER FILE``).

    Attributes:
        classes_: the label names; label numbers or column names for indicators; the classes if ``y`` is a column.
        model_: the ``TrainedModel``, with the decision rule and the calibration.
        n_features_in_: F, if ``X`` is features.

    Example:
        >>> import numpy as np
        >>> X = np.repeat(np.eye(4), 10, axis=0)
        >>> y = np.repeat([[1, 0], [0, 1], [1, 1], [0, 0]], 10, axis=0)
        >>> ManyhotClassifier(tune="none").fit(X, y).predict(np.eye(4)).tolist()
        [[1, 0], [0, 1], [1, 1], [0, 0]]
        >>> texts = ["boil an egg", "a pan of iron", "an egg in a pan", "nothing here"] * 20
        >>> fitted = ManyhotClassifier().fit(texts, [["egg"], ["pan"], ["egg", "pan"], []] * 20)
        >>> fitted.predict(["an egg", "a pan"])
        [['egg'], ['pan']]
    """

    classes_: Array
    model_: TrainedModel

    def __init__(self, **settings: Any) -> None:
        known = {each.name: each.default for each in fields(TrainSettings)}
        for name in settings:
            if name not in known:
                hint = " It is called `seed` here." if name == "random_state" else nearest(name, known)
                raise TypeError(f"{WHO}: there is no parameter `{name}`.{hint}")
        for name, value in {**known, **settings}.items():
            setattr(self, name, value)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ManyhotClassifier:
        """Train on rows and their labels.

        Args:
            X: features ``[N, F]``, dense or sparse, N texts, or images ``[N, C, H, W]``.
            y: N collections of names; indicators ``[N, L]``, dense or sparse, hard or soft, NaN for unknown labels; or N
                classes.
            sample_weight: N row weights >= 0; 0 excludes a row.
        """
        settings = TrainSettings.from_dict(self.get_params(deep=False))
        if y is None:
            raise ValueError(f"{WHO}: requires y to be passed, but the target y is None.")
        inputs = self._inputs(X, reset=True)
        targets = read_targets(WHO, y)
        labels, self.classes_, self._target = targets.labels, targets.classes, targets.kind
        size = len(inputs) if isinstance(inputs, list) else inputs.shape[0]
        if size != len(labels):
            raise ValueError(f"{WHO}: X and y must have the same number of rows; got {size} and {len(labels)}.")
        if self._target in (BINARY, MULTICLASS):
            # predict, decision_function and predict_proba must agree for classes: the best label, or the sign, decides.
            settings = TrainSettings.from_dict({**settings.to_dict(), "tune": "none", "min_labels": 0})
        examples = _examples(inputs, labels, targets.label_names, unknown=targets.unknown)
        weights = None
        if sample_weight is not None:
            examples, weights = self._weighted(examples, sample_weight)
        self.model_ = train(examples, settings, sample_weight=weights)
        return self

    def _weighted(self, examples: Examples, sample_weight: Any) -> tuple[Examples, torch.Tensor]:
        """The rows with a positive weight; the others are dropped, so that they are neither counted nor held out."""
        checked = _check_sample_weight(sample_weight, np.empty((len(examples), 1)), ensure_non_negative=True)
        kept = np.flatnonzero(checked)
        classes = {tuple(row) for row in examples.labels[torch.from_numpy(kept)].lists()}
        if self._target in (BINARY, MULTICLASS) and len(classes) < 2:
            raise ValueError(f"{WHO}: rows of more than one class must have a weight; got 1 class.")
        return examples[kept], torch.from_numpy(checked[kept]).float()

    def decision_function(self, X: Any) -> Array:
        """Scores ``[N, L]``; ``[N]`` for two classes. The model's rule predicts from them."""
        logits = self._logits(X)
        return logits[:, 0] if self._target == BINARY else logits

    def predict(self, X: Any) -> Any:
        """The labels that the model's rule predicts, in the form that ``y`` had.

        Lists of names; indicators ``[N, L]``; or classes ``[N]``.
        """
        check_is_fitted(self)
        if self._target in (BINARY, MULTICLASS):
            scores = self._logits(X)
            chosen = (scores[:, 0] > 0).astype(np.int64) if self._target == BINARY else scores.argmax(axis=1)
            return np.asarray(self.classes_[chosen])
        chosen_labels = self.model_.predict(self._rows(X))
        if self._target == NAMES:
            return decode_label_sets(chosen_labels, names=[str(name) for name in self.classes_])
        return np.asarray(chosen_labels.dense(torch.int64).numpy())

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Subset accuracy: the share of rows whose prediction is exactly right.

        Soft labels above one half are positive. Unknown labels (NaN) are not compared.
        """
        check_is_fitted(self)
        predicted = self.predict(X)
        if self._target == NAMES:
            sets = label_sets(WHO, y)
            if sets is None:
                raise ValueError(f"{WHO}: y must be collections of names, as the model was trained on; got {type(y).__name__}.")
            right = [set(ours) == set(row) for ours, row in zip(predicted, sets, strict=True)]
            return float(np.average(right, weights=sample_weight))
        if self._target == INDICATORS and hasattr(y, "tocsr"):
            y = (y.tocsr() > 0.5).astype(np.int64)
        elif self._target == INDICATORS:
            given = np.asarray(y, dtype=np.float64)
            y = (given > 0.5).astype(np.int64)
            if y.shape == predicted.shape:
                y = np.where(np.isnan(given), predicted, y)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def save(self, folder: str | Path) -> None:
        """Write the fitted classifier into a folder: the model's bundle and ``classifier.json``.

        Example:
            >>> import tempfile
            >>> fitted = ManyhotClassifier().fit(["a cat sat", "a dog ran"] * 10, [["cat"], ["dog"]] * 10)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     fitted.save(folder)
            ...     ManyhotClassifier.load(folder).predict(["the dog"])
            [['dog']]
        """
        check_is_fitted(self)
        self.model_.save(folder)
        described = {
            "format": FORMAT,
            "settings": TrainSettings.from_dict(self.get_params(deep=False)).to_dict(),
            "target": self._target,
            "classes": self.classes_.tolist(),
            "dtype": self.classes_.dtype.str if self.classes_.dtype.kind in "biuf" else "str",
            "features": getattr(self, "n_features_in_", None),
            "feature_names": [str(name) for name in getattr(self, "feature_names_in_", ())],
        }
        write_whole(Path(folder) / DESCRIPTION, json_bytes(described))

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu") -> ManyhotClassifier:
        """Load a folder that ``save`` wrote, or any model folder; a model of ``train`` predicts lists of names.

        Args:
            folder: the folder.
            device: the device of the model.
        """
        model = load_model(folder, device=device)
        path = Path(folder) / DESCRIPTION
        data = read_classifier(f"{WHO}.load", path, model.num_labels) if path.exists() else {}
        settings = data.get("settings") or {each.name: getattr(model.settings, each.name) for each in fields(model.settings)}
        fitted = cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()})
        fitted.model_ = model
        fitted._target = data.get("target", NAMES)
        kind = data.get("dtype", "str")
        fitted.classes_ = np.asarray(data.get("classes", model.label_names), dtype=None if kind == "str" else np.dtype(kind))
        if model.inputs.kind == "features":
            fitted.n_features_in_ = data.get("features") or model.inputs.width
        if data.get("feature_names"):
            fitted.feature_names_in_ = np.asarray(data["feature_names"], dtype=object)
        return fitted

    def predict_proba(self, X: Any) -> Array:
        """Probabilities ``[N, L]`` of the labels; rows sum to 1 if ``y`` was classes."""
        check_is_fitted(self)
        probs = self.model_.probabilities(self._rows(X)).double().numpy()
        if self._target == BINARY:
            return np.stack([1 - probs[:, 0], probs[:, 0]], axis=1)
        if self._target == MULTICLASS:
            total = probs.sum(axis=1, keepdims=True)
            return np.asarray(np.where(total > 0, probs / np.where(total > 0, total, 1), 1 / probs.shape[1]))
        return np.asarray(probs)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags

    def _logits(self, X: Any) -> Array:
        check_is_fitted(self)
        return np.asarray(self.model_.logits(self._rows(X)).double().numpy())

    def _rows(self, X: Any) -> Examples:
        """Examples without labels, for the model."""
        inputs = self._inputs(X, reset=False)
        size = len(inputs) if isinstance(inputs, list) else inputs.shape[0]
        names = self.model_.label_names
        return _examples(inputs, SparseLabels.from_lists([[]] * size, num_labels=len(names)), names)

    def _inputs(self, X: Any, *, reset: bool) -> Any:
        """Texts as a list, images as a tensor, or checked features as float32."""
        texts = [] if isinstance(X, list) and not X and not reset and self.model_.inputs.kind != "features" else _texts(X)
        kind = "texts" if texts is not None else "images" if getattr(X, "ndim", 2) == 4 else "features"
        if not reset:
            read = {"tokens": "texts"}.get(self.model_.inputs.kind, self.model_.inputs.kind)
            if kind != read:
                got = kind if kind != "features" else type(X).__name__
                raise ValueError(f"{WHO}: X must be {read}, as the model was trained on; got {got}.")
        if texts is not None:
            return texts
        if kind == "images":
            return torch.as_tensor(X)
        checked = validate_data(self, X, reset=reset, accept_sparse="csr", dtype="numeric", ensure_all_finite="allow-nan")
        with np.errstate(over="ignore"):
            # Values beyond float32 become infinite, which the model refuses.
            return checked.astype(np.float32, copy=False)


def _with_signature(init: Callable[..., None]) -> None:
    """Give the constructor the signature that scikit-learn reads: one parameter per field of ``TrainSettings``."""
    named = inspect.Parameter.KEYWORD_ONLY
    own = [inspect.Parameter(each.name, named, default=each.default) for each in fields(TrainSettings)]
    own.insert(0, inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD))
    init.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]


_with_signature(ManyhotClassifier.__init__)


def _texts(X: Any) -> list[str] | None:
    """The texts if ``X`` holds texts: a list, a series, an array of strings with one axis, a frame's only column."""
    if isinstance(X, str):
        raise ValueError(f"{WHO}: X must be a list of texts; got one text. Put it into a list.")
    if hasattr(X, "columns") and getattr(X, "shape", (0, 0))[1] == 1:
        X = X[X.columns[0]]
    if hasattr(X, "tocsr") or getattr(X, "ndim", 1) != 1:
        return None
    try:
        rows = list(X)
    except TypeError:
        return None
    texts = [isinstance(row, str) for row in rows]
    if any(texts) and not all(texts):
        place = texts.index(False)
        raise ValueError(f"{WHO}: X must be a text in every row; got {rows[place]!r} in row {place}. An empty text is ''.")
    return rows if rows and all(texts) else None


def _examples(inputs: Any, labels: SparseLabels, names: Sequence[str], *, unknown: SparseLabels | None = None) -> Examples:
    kind = "texts" if isinstance(inputs, list) else "images" if isinstance(inputs, torch.Tensor) else "features"
    return Examples(labels, tuple(names), unknown=unknown, **{kind: inputs})
