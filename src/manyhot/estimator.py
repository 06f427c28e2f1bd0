"""scikit-learn's interface to training: it wires, it does not compute."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

from manyhot._suggest import nearest
from manyhot.data.examples import Examples
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train

Array = np.ndarray[Any, Any]
WHO = "ManyhotClassifier"


class ManyhotClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-label classifier for scikit-learn's pipelines, searches and scorers.

    Every setting of ``TrainSettings`` is a parameter, under its name and with its default: ``ManyhotClassifier(loss="bce",
    epochs=5)``. ``X`` is dense or sparse features, NaN where one is missing, or a list of
    texts; ``y`` is an indicator matrix, dense or sparse, in
    which NaN means that a label is not known. A column of classes is taken too: two classes are one label, more are one
    label each, of which the best is predicted.

    Attributes:
        classes_: the label numbers, or the column names of a data frame; the classes where ``y`` is a column.
        model_: the ``TrainedModel``, with ``save``, the decision rule and the calibration.
        n_features_in_: F, where ``X`` is features.

    Example:
        >>> import numpy as np
        >>> X = np.repeat(np.eye(4), 10, axis=0)
        >>> y = np.repeat([[1, 0], [0, 1], [1, 1], [0, 0]], 10, axis=0)
        >>> ManyhotClassifier(tune="none").fit(X, y).predict(np.eye(4)).tolist()
        [[1, 0], [0, 1], [1, 1], [0, 0]]
    """

    classes_: Array
    model_: TrainedModel

    def __init__(self, **settings: Any) -> None:
        known = {each.name: each.default for each in fields(TrainSettings)}
        for name in settings:
            if name not in known:
                raise TypeError(f"{WHO}: there is no parameter `{name}`.{nearest(name, known)}")
        for name, value in {**known, **settings}.items():
            setattr(self, name, value)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ManyhotClassifier:
        """Train on rows and their labels.

        Args:
            X: features ``[N, F]``, dense or sparse, or N texts.
            y: indicators ``[N, L]``, dense or sparse, NaN where a label is not known; or N classes.
            sample_weight: N numbers >= 0: how much each row counts; 0 leaves it out.
        """
        settings = TrainSettings.from_dict(self.get_params(deep=False))
        if y is None:
            raise ValueError(f"{WHO}: requires y to be passed, but the target y is None.")
        inputs = self._inputs(X, reset=True)
        labels, unknown, self.classes_, self._target = _labels(y)
        size = len(inputs) if isinstance(inputs, list) else inputs.shape[0]
        if size != len(labels):
            raise ValueError(f"{WHO}: X and y must have as many rows; got {size} and {len(labels)}.")
        if self._target != "multilabel":
            # predict, decision_function and predict_proba must agree for classes: the best label, or the sign, decides.
            settings = TrainSettings.from_dict({**settings.to_dict(), "tune": "none", "min_labels": 0})
        names = tuple(f"{place}" for place in range(labels.num_labels))
        examples = _examples(inputs, labels, names, unknown=unknown)
        weights = None
        if sample_weight is not None:
            checked = _check_sample_weight(sample_weight, np.empty((size, 1)), ensure_non_negative=True)
            # A row without weight must be as good as not there, also where rows are counted, held out or dealt to folds.
            kept = np.flatnonzero(checked)
            if self._target != "multilabel" and len({tuple(row) for row in labels[torch.from_numpy(kept)].lists()}) < 2:
                raise ValueError(f"{WHO}: rows of more than one class must have a weight; got 1 class.")
            examples, weights = examples[kept], torch.from_numpy(checked[kept]).float()
        self.model_ = train(examples, settings, sample_weight=weights)
        return self

    def decision_function(self, X: Any) -> Array:
        """Scores ``[N, L]`` to rank by; ``[N]`` for two classes. What is predicted follows from them by the model's rule."""
        logits = self._logits(X)
        return logits[:, 0] if self._target == "binary" else logits

    def predict(self, X: Any) -> Array:
        """Indicators ``[N, L]`` of the labels that the model's rule takes; classes ``[N]`` where ``y`` was classes."""
        check_is_fitted(self)
        if self._target == "multilabel":
            return np.asarray(self.model_.predict(self._rows(X)).dense(torch.int64).numpy())
        scores = self._logits(X)
        chosen = (scores[:, 0] > 0).astype(np.int64) if self._target == "binary" else scores.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def predict_proba(self, X: Any) -> Array:
        """Probabilities ``[N, L]``, each label's own; rows sum to 1 where ``y`` was classes."""
        check_is_fitted(self)
        probs = self.model_.probabilities(self._rows(X)).double().numpy()
        if self._target == "binary":
            return np.stack([1 - probs[:, 0], probs[:, 0]], axis=1)
        if self._target == "multiclass":
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
        """Texts as a list, or checked features as float32."""
        texts = _texts(X)
        if texts is not None:
            if not reset and hasattr(self, "n_features_in_"):
                raise ValueError(f"{WHO}: X must be features, as the model was trained on; got texts.")
            return texts
        if not reset and not hasattr(self, "n_features_in_"):
            raise ValueError(f"{WHO}: X must be texts, as the model was trained on; got {type(X).__name__}.")
        checked = validate_data(self, X, reset=reset, accept_sparse="csr", dtype="numeric", ensure_all_finite="allow-nan")
        return checked.astype(np.float32, copy=False)


def _with_signature(init: Callable[..., None]) -> None:
    """The parameters that scikit-learn reads off the constructor are the settings, which are named in one place only."""
    named = inspect.Parameter.KEYWORD_ONLY
    own = [inspect.Parameter(each.name, named, default=each.default) for each in fields(TrainSettings)]
    own.insert(0, inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD))
    init.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]


_with_signature(ManyhotClassifier.__init__)


def _texts(X: Any) -> list[str] | None:
    """A list of texts, where ``X`` is one: a list, a series, or an array of strings with one axis."""
    if isinstance(X, str):
        raise ValueError(f"{WHO}: X must be a list of texts; got one text. Put it into a list.")
    if hasattr(X, "tocsr") or getattr(X, "ndim", 1) != 1:
        return None
    try:
        rows = list(X)
    except TypeError:
        return None
    return rows if rows and all(isinstance(row, str) for row in rows) else None


def _examples(inputs: Any, labels: SparseLabels, names: Sequence[str], *, unknown: SparseLabels | None = None) -> Examples:
    part = {"texts": inputs} if isinstance(inputs, list) else {"features": inputs}
    return Examples(labels, tuple(names), unknown=unknown, **part)


def _labels(y: Any) -> tuple[SparseLabels, SparseLabels | None, Array, str]:
    """``(labels, unknown, classes, target)`` of what scikit-learn calls y; target is multilabel, binary or multiclass."""
    if hasattr(y, "tocsr"):
        _check_hard(y.tocsr().data)
        labels = SparseLabels.from_scipy(y)
        return labels, None, np.arange(labels.num_labels), "multilabel"
    columns = getattr(y, "columns", None)
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] > 1:
        table = values.astype(np.float64)
        known = ~np.isnan(table)
        _check_hard(table[known])
        unknown = None if known.all() else SparseLabels.from_dense(torch.from_numpy(~known))
        labels = SparseLabels.from_dense(torch.from_numpy(table == 1))
        return labels, unknown, np.arange(labels.num_labels) if columns is None else np.asarray(columns), "multilabel"
    column = column_or_1d(y, warn=True)
    assert_all_finite(column, input_name="y")
    check_classification_targets(column)
    classes, places = np.unique(column, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"{WHO}: y must have more than one class; got 1 class.")
    if len(classes) == 2:
        return SparseLabels.from_dense(torch.from_numpy(places == 1)[:, None]), None, classes, "binary"
    one_each = SparseLabels.from_lists(places[:, None], num_labels=len(classes))
    return one_each, None, classes, "multiclass"


def _check_hard(values: Array) -> None:
    wrong = values[(values != 0) & (values != 1)]
    if len(wrong):
        raise ValueError(f"{WHO}: y must be 0 or 1, or NaN where a label is not known; got {wrong[0]!r}.")
