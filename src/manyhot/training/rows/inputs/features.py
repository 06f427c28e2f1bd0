"""Rows of a feature table, scaled column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from manyhot.data.examples import Examples
from manyhot.data.mapped.rows import MappedMatrix
from manyhot.data.tables.missing import fill_missing
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.example_checks import check_finite
from manyhot.training.rows.inputs.mapped import written_rows
from manyhot.training.rows.inputs.row_batches import Array
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.schema import TEXT, TRUTH, Schema, listed


class FeatureInputs:
    """Scaled features: dense columns get mean 0 and standard deviation 1, sparse ones are divided by their largest absolute
    value. Missing values become the mean."""

    kind = "features"
    schema: ClassVar[Schema] = {"kind": TEXT, "sparse": TRUTH, "names": listed(TEXT).or_none()}

    def __init__(self, means: Array, scale: Array, *, sparse: bool, names: Sequence[str] | None) -> None:
        self.means, self.scale, self.sparse = means, scale, sparse
        self.names = None if names is None else tuple(names)

    @property
    def gives_sparse(self) -> bool:
        """Whether prepared rows are a sparse matrix."""
        return self.sparse

    @classmethod
    def fit(cls, examples: Examples, settings: TrainSettings) -> tuple[FeatureInputs, Any]:
        """Means and scales of the training rows, and these rows prepared."""
        del settings
        if isinstance(examples.features, MappedMatrix):
            return cls._fit_mapped(examples, examples.features)
        filled, means = fill_missing(examples)
        sparse = not isinstance(filled.features, np.ndarray)
        if sparse:
            scale = np.asarray(abs(filled.features).max(axis=0).todense(), dtype=np.float32).ravel()
        else:
            scale = filled.features.std(axis=0, dtype=np.float64).astype(np.float32)
        scale[~(scale > 0) | ~np.isfinite(scale)] = 1
        fitted = cls(means, scale, sparse=sparse, names=examples.feature_names)
        return fitted, fitted.rows(filled)

    @classmethod
    def _fit_mapped(cls, examples: Examples, features: MappedMatrix) -> tuple[FeatureInputs, Any]:
        """``fit`` for rows in files; packed features have no missing values."""
        sums, largest = np.zeros(features.num_columns), np.zeros(features.num_columns, dtype=np.float32)
        for block in features.blocks():
            # Entries are added in their order, so that the sums are those of all rows at once.
            np.add.at(sums, block.indices, block.data)
            np.maximum.at(largest, block.indices, np.abs(block.data))
        means = (sums / max(len(examples), 1)).astype(np.float32)
        largest[~(largest > 0)] = 1
        fitted = cls(means, largest, sparse=True, names=examples.feature_names)
        return fitted, written_rows(features.folder, fitted, features.blocks(), fitted._scaled)

    def _scaled(self, features: Any) -> Any:
        """Sparse features divided by their scales."""
        from scipy import sparse

        scaled = sparse.csr_matrix(features, dtype=np.float32, copy=True)
        scaled.data /= self.scale[scaled.indices]
        return scaled

    @property
    def width(self) -> int:
        """How many features."""
        return len(self.means)

    def rows(self, inputs: Any) -> Any:
        """Prepared rows of ``Examples``, or of an array or scipy matrix ``[N, width]``."""
        examples = inputs if isinstance(inputs, Examples) else _unlabelled(inputs)
        if examples.features is None:
            raise TypeError(f"TrainedModel: the model reads features; the examples hold {examples.kind}.")
        if self.names is not None and examples.feature_names is not None:
            examples = examples.with_features(self.names)
        if examples.num_features != self.width:
            raise ValueError(f"TrainedModel: the model reads {self.width} features; got {examples.num_features}.")
        check_finite("TrainedModel", "inputs", examples)
        filled, _ = fill_missing(examples, means=self.means)
        features = filled.features
        if self.sparse:
            return self._scaled(features)
        dense = features if isinstance(features, np.ndarray) else features.toarray()
        return ((dense - self.means) / self.scale).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """The description as JSON, without the tensors."""
        return {"kind": self.kind, "sparse": self.sparse, "names": None if self.names is None else list(self.names)}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the description."""
        return {"means": torch.from_numpy(self.means), "scale": torch.from_numpy(self.scale)}

    @classmethod
    def from_parts(cls, data: dict[str, Any], tensors: dict[str, Tensor]) -> FeatureInputs:
        """From the results of ``to_json`` and ``tensors``."""
        means, scale = tensors["means"].numpy(), tensors["scale"].numpy()
        if means.ndim != 1 or means.shape != scale.shape or not (scale > 0).all():
            raise ValueError("FeatureInputs: there must be one mean and one scale > 0 for each feature.")
        if data["names"] is not None and len(data["names"]) != len(means):
            raise ValueError(f"FeatureInputs: there must be {len(means)} names of features; got {len(data['names'])}.")
        return cls(means, scale, sparse=data["sparse"], names=data["names"])


def _unlabelled(features: Any) -> Examples:
    if not hasattr(features, "shape") or len(features.shape) != 2:
        raise TypeError(f"TrainedModel: the model reads features; give Examples or [N, F]; got {type(features).__name__}.")
    labels = SparseLabels.from_lists([[]] * features.shape[0], num_labels=0)
    dense = isinstance(features, (np.ndarray, Tensor))
    with np.errstate(over="ignore"):
        # Values beyond float32 become infinite, which is an error.
        rows = np.asarray(features, dtype=np.float32) if dense else features.tocsr().astype(np.float32)
    return Examples(labels, (), features=rows)
