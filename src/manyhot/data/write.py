"""Writing examples as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from manyhot.data.examples import Examples
from manyhot.data.files.json_lines import write_json_lines
from manyhot.data.files.streams import PathLike


def write_examples(examples: Examples, path: PathLike) -> None:
    """Write JSON lines that ``read_examples`` reads back.

    A line has ``text`` or ``features``, ``labels`` (names; with soft labels an object of names and numbers), ``unknown``
    (names of unknown labels, if any) and ``id`` (if there are ids). Named features are an object, dense features without names
    a list, sparse features without names ``{"indices": [...], "values": [...]}``. A label that no row has is in no line: pass
    ``label_names`` to ``read_examples``.

    Args:
        examples: rows with texts or features.
        path: ends in ``.jsonl``, and in ``.gz``, ``.bz2`` or ``.xz`` to compress. The file is written atomically.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from manyhot import SparseLabels
        >>> path = Path(tempfile.mkdtemp()) / "pets.jsonl"
        >>> write_examples(Examples(SparseLabels.from_lists([[0]], num_labels=1), ("cat",), texts=["a cat"]), path)
        >>> path.read_text()
        '{"text": "a cat", "labels": ["cat"]}\\n'
    """
    write_json_lines("write_examples", path, _rows(examples))


def _rows(examples: Examples) -> Iterator[dict[str, Any]]:
    names = examples.label_names
    positive = examples.labels.lists()
    offsets, values = examples.labels.offsets.tolist(), examples.labels.values
    unknown = None if examples.unknown is None else examples.unknown.lists()
    for row in range(len(examples)):
        line: dict[str, Any] = {} if examples.ids is None else {"id": examples.ids[row]}
        if examples.texts is not None:
            line["text"] = examples.texts[row]
        elif examples.features is not None:
            line["features"] = _features(examples, row)
        else:
            raise ValueError("write_examples: images cannot be written as JSON lines. Save the tensor with safetensors.")
        listed = [names[place] for place in positive[row]]
        if values is None:
            line["labels"] = listed
        else:
            own = values[offsets[row] : offsets[row + 1]].numpy()
            line["labels"] = {name: _shortest(value) for name, value in zip(listed, own, strict=True)}
        if unknown is not None:
            line["unknown"] = [names[place] for place in unknown[row]]
        yield line


def _features(examples: Examples, row: int) -> Any:
    if isinstance(examples.features, np.ndarray):
        values = [None if value != value else value for value in examples.features[row].tolist()]
        return values if examples.feature_names is None else dict(zip(examples.feature_names, values, strict=True))
    start, stop = examples.features.indptr[row : row + 2]
    places = examples.features.indices[start:stop].tolist()
    values = [None if value != value else value for value in examples.features.data[start:stop].tolist()]
    if examples.feature_names is None:
        return {"indices": places, "values": values}
    return {examples.feature_names[place]: value for place, value in zip(places, values, strict=True)}


def _shortest(value: Any) -> float | int:
    """The shortest decimal number that is read back as this float32."""
    return int(value) if value == int(value) else float(np.format_float_positional(value, unique=True))
