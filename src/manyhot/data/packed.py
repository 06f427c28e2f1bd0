"""Examples as messages of bytes, to send them to another process: arrays and JSON, nothing is pickled.

A message has at most about ``MESSAGE_BYTES`` bytes, so that neither process holds the rows twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import torch

from manyhot.data.examples import Examples, Source
from manyhot.data.files.problems import Problem
from manyhot.labels.sparse import SparseLabels

Array = np.ndarray[Any, Any]
LISTS = ("indices", "offsets", "values")
SPARSE = ("data", "indices", "indptr")
STRINGS = ("texts", "ids")
MESSAGE_BYTES = 1 << 20


def to_messages(parts: Sequence[Examples]) -> Iterator[bytes]:
    """Encode examples of texts or features; images are an error.

    A part is a header, then the bytes of its arrays, then its strings: their lengths in bytes, and the bytes.
    """
    for part in parts:
        arrays = {name: np.ascontiguousarray(each) for name, each in _arrays(part).items()}
        sizes = {name: [each.dtype.str, *each.shape] for name, each in arrays.items()}
        strings = {name: len(each) for name in STRINGS if (each := getattr(part, name)) is not None}
        yield json.dumps({**_about(part), "arrays": sizes, "strings": strings}).encode()
        for array in arrays.values():
            content = array.reshape(-1).view(np.uint8)
            for start in range(0, len(content), MESSAGE_BYTES):
                yield content[start : start + MESSAGE_BYTES].tobytes()
        for name in strings:
            yield from _coded_strings(getattr(part, name))


def from_messages(messages: Iterable[bytes]) -> Iterator[Examples]:
    """Decode the examples of ``to_messages``, in the same order."""
    left = iter(messages)
    for header in left:
        about = json.loads(header)
        arrays = {name: _array(left, dtype, shape) for name, (dtype, *shape) in about["arrays"].items()}
        strings = {name: _strings(left, count) for name, count in about["strings"].items()}
        yield _examples(arrays, strings, about)


def _coded_strings(strings: Sequence[str]) -> Iterator[bytes]:
    """Messages of the number of strings, the length of each in bytes, and the bytes."""
    waiting: list[bytes] = []
    size = 0
    for place, each in enumerate(strings, start=1):
        waiting.append(each.encode("utf-8", "surrogatepass"))
        size += len(waiting[-1]) + 8
        if size >= MESSAGE_BYTES or place == len(strings):
            yield np.asarray([len(waiting), *map(len, waiting)], dtype=np.int64).tobytes() + b"".join(waiting)
            waiting, size = [], 0


def _array(messages: Iterator[bytes], dtype: str, shape: Sequence[int]) -> Array:
    found = np.empty(shape, dtype=dtype)
    content, start = found.reshape(-1).view(np.uint8), 0
    while start < len(content):
        message = next(messages)
        content[start : start + len(message)] = np.frombuffer(message, dtype=np.uint8)
        start += len(message)
    return found


def _strings(messages: Iterator[bytes], count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        message = next(messages)
        own = int.from_bytes(message[:8], "little")
        start = 8 + 8 * own
        for size in np.frombuffer(message[8:start], dtype=np.int64).tolist():
            found.append(message[start : start + size].decode("utf-8", "surrogatepass"))
            start += size
    return found


def _arrays(part: Examples) -> dict[str, Array]:
    if part.images is not None:
        raise ValueError("to_messages: examples must have texts or features; got images.")
    found: dict[str, Array] = {}
    for what, lists in (("labels", part.labels), ("unknown", part.unknown)):
        for name in LISTS if lists is not None else ():
            each = getattr(lists, name)
            found |= {} if each is None else {f"{what}.{name}": each.numpy()}
    if isinstance(part.features, np.ndarray):
        found["features"] = part.features
    elif part.features is not None:
        found |= {f"features.{name}": getattr(part.features, name) for name in SPARSE}
    return found


def _about(part: Examples) -> dict[str, Any]:
    sources = []
    for source in part.source:
        fields = [source.path, source.format, _coded(source.chosen), [astuple(each) for each in source.problems]]
        sources.append([*fields, source.num_problems, list(source.remarks), dict(source.unused)])
    return {
        "label_names": list(part.label_names),
        "feature_names": None if part.feature_names is None else list(part.feature_names),
        "absent": part.absent,
        "unseen": dict(part.unseen),
        "source": sources,
        "width": part.num_features,
    }


def _examples(arrays: dict[str, Array], strings: dict[str, list[str]], about: dict[str, Any]) -> Examples:
    num_labels = len(about["label_names"])
    lists = {what: _lists(arrays, what, num_labels) for what in ("labels", "unknown")}
    assert lists["labels"] is not None
    features: Any = arrays.get("features")
    if "features.data" in arrays:
        from scipy.sparse import csr_matrix

        rows = len(arrays["features.indptr"]) - 1
        features = csr_matrix(tuple(arrays[f"features.{name}"] for name in SPARSE), shape=(rows, about["width"]))
    found = Examples(
        lists["labels"],
        tuple(about["label_names"]),
        texts=strings.get("texts"),
        features=features,
        unknown=lists["unknown"],
        feature_names=None if about["feature_names"] is None else tuple(about["feature_names"]),
        ids=strings.get("ids"),
        absent=about["absent"],
        unseen=about["unseen"],
    )
    return replace(found, source=tuple(map(_source, about["source"])))


def _lists(arrays: dict[str, Array], what: str, num_labels: int) -> SparseLabels | None:
    if f"{what}.offsets" not in arrays:
        return None
    indices, offsets = (torch.from_numpy(arrays[f"{what}.{name}"]) for name in LISTS[:2])
    values = arrays.get(f"{what}.values")
    return SparseLabels(
        indices, offsets, num_labels, values=None if values is None else torch.from_numpy(values), validate=False
    )


def _source(fields: Sequence[Any]) -> Source:
    path, format, chosen, problems, num_problems, remarks, unused = fields
    told = tuple(Problem(*each) for each in problems)
    return Source(path, format, _decoded(chosen), told, num_problems, tuple(remarks), unused)


def _coded(value: Any) -> Any:
    """A value for JSON in which tuples differ from lists."""
    if isinstance(value, Mapping):
        return {name: _coded(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return {"": [_coded(each) for each in value]}
    return [_coded(each) for each in value] if isinstance(value, list) else value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if isinstance(value, dict):
        return (
            tuple(map(_decoded, value[""])) if value.keys() == {""} else {name: _decoded(each) for name, each in value.items()}
        )
    return value
