"""Inputs as a model reads them: fitted on the training rows, saved with the model, the same for every row after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor

from manyhot.data.examples import Examples
from manyhot.data.tables.missing import fill_missing
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.inputs.tokens import TokenInputs, TokenRows, texts_of
from manyhot.training.rows.inputs.words import (
    STARTS,
    Runs,
    find_runs,
    number_characters,
    number_starts,
    number_words,
    word_lists,
)
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.schema import TEXT, TRUTH, Schema, listed

Array = np.ndarray[Any, Any]
# Words a text from which on it says enough by whole words; first letters would only make it longer (a guess, not
# measured).
LONG_TEXT = 200


class SparseRows(NamedTuple):
    """Rows of sparse features for a body: entry ``i`` is ``values[i]`` in column ``columns[i]``; rows start at ``offsets``."""

    columns: Tensor
    offsets: Tensor
    values: Tensor

    def to_device(self, device: torch.device) -> SparseRows:
        """The same on ``device``."""
        return SparseRows(*(part.to(device) for part in self))

    def consecutive(self, part: slice) -> SparseRows:
        """Rows next to each other."""
        offsets = self.offsets[part.start : part.stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return SparseRows(self.columns[first:last], offsets - first, self.values[first:last])


Batch = Tensor | SparseRows | TokenRows


def take_rows(rows: Any, picked: Array | slice) -> Batch:
    """Some rows of prepared inputs (float32 array, CSR matrix or tensor) as a body reads them."""
    if isinstance(rows, Tensor):
        return rows[torch.from_numpy(picked) if isinstance(picked, np.ndarray) else picked]
    part = rows[picked]
    if isinstance(part, TokenRows):
        return part
    if isinstance(part, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(part))
    columns, offsets = torch.from_numpy(part.indices.astype(np.int64)), torch.from_numpy(part.indptr.astype(np.int64))
    return SparseRows(columns, offsets, torch.from_numpy(part.data.astype(np.float32, copy=False)))


class TextInputs:
    """Texts as weighted n-grams and first letters of words: ``(1 + log count) * idf``, rows of length 1."""

    kind = "texts"
    parts = ("words", "starts", "characters")
    gives_sparse = True
    schema: ClassVar[Schema] = {"kind": TEXT, **{name: listed(TEXT) for name in parts}}

    def __init__(self, words: Runs, starts: Runs, characters: Runs, idf: Array) -> None:
        self.words, self.starts, self.characters, self.idf = words, starts, characters, idf

    @classmethod
    def fit(cls, examples: Examples, settings: TrainSettings) -> tuple[TextInputs, Any]:
        """The n-grams of the training texts, and these texts prepared."""
        texts = examples.texts or []
        # What is in every one of the texts counts, however few they are.
        limits = {"min_count": min(settings.min_count, len(texts)), "most": settings.max_features}
        flat, rows, names = number_words(word_lists(texts))
        words = find_runs(flat, rows, names, longest=settings.ngrams, **limits)
        counts = [words.counts(flat, rows, len(texts))]
        starts = characters = Runs([], [np.zeros(0, dtype=np.int64)])
        if settings.word_starts and len(flat) < LONG_TEXT * len(texts):
            table, names = number_starts(names)
            flat, rows = table[flat].ravel(), np.repeat(rows, len(STARTS))
            starts = find_runs(flat, rows, names, longest=1, **limits)
            counts.append(starts.counts(flat, rows, len(texts)))
        if settings.char_ngrams:
            flat, rows, names = number_characters(texts)
            characters = find_runs(flat, rows, names, longest=settings.char_ngrams, **limits)
            counts.append(characters.counts(flat, rows, len(texts)))
        matrix = _side_by_side(counts)
        if not matrix.shape[1]:
            _refuse(texts, settings.min_count)
        rows_with = np.bincount(matrix.indices, minlength=matrix.shape[1])
        idf = (np.log((1 + len(texts)) / (1 + rows_with)) + 1).astype(np.float32)
        fitted = cls(_used(words), _used(starts), _used(characters), idf)
        return fitted, fitted._weighted(matrix)

    @property
    def width(self) -> int:
        """How many features."""
        return len(self.idf)

    def rows(self, inputs: Any) -> Any:
        """CSR ``[N, width]`` of texts or ``Examples``."""
        texts = texts_of(inputs)
        # Every different word is looked up once, however often it occurs.
        flat, rows, names = number_words(word_lists(texts))
        known = np.fromiter((self.words.number.get(name, -1) for name in names), dtype=np.int64, count=len(names))
        counts = [self.words.counts(known[flat], rows, len(texts))]
        if len(self.starts):
            table, _ = number_starts(names, self.starts.number)
            counts.append(self.starts.counts(table[flat].ravel(), np.repeat(rows, len(STARTS)), len(texts)))
        if len(self.characters):
            counts.append(self.characters.counts(*number_characters(texts, self.characters.number)[:2], len(texts)))
        return self._weighted(_side_by_side(counts))

    def _weighted(self, matrix: Any) -> Any:
        values = (1 + np.log(matrix.data)) * self.idf[matrix.indices]
        lengths = np.diff(matrix.indptr)
        row = np.repeat(np.arange(matrix.shape[0]), lengths)
        norms = np.sqrt(np.bincount(row, weights=values.astype(np.float64) ** 2, minlength=matrix.shape[0]))
        matrix.data = (values / np.repeat(norms, lengths)).astype(np.float32)
        return matrix

    def to_json(self) -> dict[str, Any]:
        """What is not a tensor."""
        return {"kind": self.kind, **{name: getattr(self, name).symbols for name in self.parts}}

    def tensors(self) -> dict[str, Tensor]:
        """What is."""
        found = {"idf": torch.from_numpy(self.idf)}
        for name in self.parts:
            every = enumerate(getattr(self, name).keys, start=1)
            found |= {f"{name}.{length}": torch.from_numpy(keys) for length, keys in every}
        return found

    @classmethod
    def from_parts(cls, data: dict[str, Any], tensors: dict[str, Tensor]) -> TextInputs:
        """From what ``to_json`` and ``tensors`` gave."""
        runs = []
        for name in cls.parts:
            keys = [tensors[f"{name}.{length}"].numpy() for length in range(1, 1 + sum(k.startswith(name) for k in tensors))]
            runs.append(Runs(data[name], keys))
        words, starts, characters = runs
        idf = tensors["idf"].numpy()
        if sum(map(len, runs)) != len(idf) or any(len(each.keys[0]) > len(each.symbols) for each in runs):
            raise ValueError(f"TextInputs: there must be one `idf` for each n-gram, {sum(map(len, runs))}; got {len(idf)}.")
        return cls(words, starts, characters, idf)


def _refuse(texts: Sequence[str], min_count: int) -> NoReturn:
    """Say why there is nothing to learn from."""
    if any(word_lists(texts)):
        raise ValueError(
            f"train: no word is in {min_count} of the {len(texts)} texts, so there is nothing to learn from."
            " Give more texts, or pass min_count=1 (--min-count 1)."
        )
    raise ValueError(f"train: there is no word in any of the {len(texts)} texts. Is it the column of texts that was read?")


class FeatureInputs:
    """Features: dense columns to mean 0 and deviation 1, sparse ones divided by their largest size; gaps take the mean."""

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
        filled, means = fill_missing(examples)
        sparse = not isinstance(filled.features, np.ndarray)
        if sparse:
            scale = np.asarray(abs(filled.features).max(axis=0).todense(), dtype=np.float32).ravel()
        else:
            scale = filled.features.std(axis=0, dtype=np.float64).astype(np.float32)
        scale[~(scale > 0) | ~np.isfinite(scale)] = 1
        fitted = cls(means, scale, sparse=sparse, names=examples.feature_names)
        return fitted, fitted.rows(filled)

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
        filled, _ = fill_missing(examples, means=self.means)
        features = filled.features
        if self.sparse:
            from scipy import sparse

            scaled = sparse.csr_matrix(features, dtype=np.float32, copy=True)
            scaled.data /= self.scale[scaled.indices]
            return scaled
        dense = features if isinstance(features, np.ndarray) else features.toarray()
        return ((dense - self.means) / self.scale).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """What is not a tensor."""
        return {"kind": self.kind, "sparse": self.sparse, "names": None if self.names is None else list(self.names)}

    def tensors(self) -> dict[str, Tensor]:
        """What is."""
        return {"means": torch.from_numpy(self.means), "scale": torch.from_numpy(self.scale)}

    @classmethod
    def from_parts(cls, data: dict[str, Any], tensors: dict[str, Tensor]) -> FeatureInputs:
        """From what ``to_json`` and ``tensors`` gave."""
        means, scale = tensors["means"].numpy(), tensors["scale"].numpy()
        if means.ndim != 1 or means.shape != scale.shape or not (scale > 0).all():
            raise ValueError("FeatureInputs: there must be one mean and one scale > 0 for each feature.")
        if data["names"] is not None and len(data["names"]) != len(means):
            raise ValueError(f"FeatureInputs: there must be {len(means)} names of features; got {len(data['names'])}.")
        return cls(means, scale, sparse=data["sparse"], names=data["names"])


class ImageInputs:
    """Images ``[N, C, H, W]``, each channel to mean 0 and deviation 1."""

    kind = "images"
    gives_sparse = False
    schema: ClassVar[Schema] = {"kind": TEXT}

    def __init__(self, means: Tensor, scale: Tensor) -> None:
        self.means, self.scale = means, scale

    @classmethod
    def fit(cls, examples: Examples, settings: TrainSettings) -> tuple[ImageInputs, Any]:
        """Means and scales of the training images, and these images prepared."""
        del settings
        images = _checked_images(examples.images)
        means, scale = images.mean(dim=(0, 2, 3)), images.std(dim=(0, 2, 3), correction=0)
        fitted = cls(means, torch.where(scale > 0, scale, 1.0))
        return fitted, fitted.rows(images)

    @property
    def width(self) -> int:
        """How many channels."""
        return len(self.means)

    def rows(self, inputs: Any) -> Tensor:
        """Prepared images of ``Examples`` or a tensor ``[N, C, H, W]``."""
        images = _checked_images(inputs.images if isinstance(inputs, Examples) else inputs)
        if images.shape[1] != self.width:
            raise ValueError(f"TrainedModel: the model reads images with {self.width} channels; got {images.shape[1]}.")
        return (images - self.means[:, None, None]) / self.scale[:, None, None]

    def to_json(self) -> dict[str, Any]:
        """What is not a tensor."""
        return {"kind": self.kind}

    def tensors(self) -> dict[str, Tensor]:
        """What is."""
        return {"means": self.means, "scale": self.scale}

    @classmethod
    def from_parts(cls, data: dict[str, Any], tensors: dict[str, Tensor]) -> ImageInputs:
        """From what ``to_json`` and ``tensors`` gave."""
        del data
        means, scale = tensors["means"], tensors["scale"]
        if means.ndim != 1 or means.shape != scale.shape or not bool((scale > 0).all()):
            raise ValueError("ImageInputs: there must be one mean and one scale > 0 for each channel.")
        return cls(means, scale)


Inputs = TextInputs | TokenInputs | FeatureInputs | ImageInputs
INPUTS: dict[str, type[Inputs]] = {each.kind: each for each in (TextInputs, TokenInputs, FeatureInputs, ImageInputs)}


def _side_by_side(counts: Sequence[Any]) -> Any:
    from scipy import sparse

    return counts[0] if len(counts) == 1 else sparse.hstack(counts, format="csr")


def _used(runs: Runs) -> Runs:
    """The same runs with only the symbols that are in one, renumbered."""
    width = max(len(runs.symbols), 1)
    single = runs.keys[0]
    ends = [single, *(keys % width for keys in runs.keys[1:])]
    kept = np.unique(np.concatenate(ends))
    place = np.full(width, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    keys = [place[single], *((keys // width) * max(len(kept), 1) + place[keys % width] for keys in runs.keys[1:])]
    return Runs([runs.symbols[symbol] for symbol in kept.tolist()], keys)


def _unlabelled(features: Any) -> Examples:
    if not hasattr(features, "shape") or len(features.shape) != 2:
        raise TypeError(f"TrainedModel: the model reads features; give Examples or [N, F]; got {type(features).__name__}.")
    labels = SparseLabels.from_lists([[]] * features.shape[0], num_labels=0)
    dense = isinstance(features, (np.ndarray, Tensor))
    rows = np.asarray(features, dtype=np.float32) if dense else features.tocsr().astype(np.float32)
    return Examples(labels, (), features=rows)


def _checked_images(images: Any) -> Tensor:
    if not isinstance(images, Tensor) or images.ndim != 4:
        raise TypeError("TrainedModel: the model reads images; give Examples with images or a tensor [N, C, H, W].")
    return images if images.is_floating_point() else images.float() / 255
