"""Examples as bytes, to send them to another process: arrays and JSON, nothing that runs when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load, save

from manyhot.data.examples import Examples, Source
from manyhot.data.files.problems import Problem
from manyhot.labels.sparse import SparseLabels

Array = np.ndarray[Any, Any]
LISTS = ("indices", "offsets", "values")
SPARSE = ("data", "indices", "indptr")


def to_bytes(parts: Sequence[Examples]) -> bytes:
    """Examples of texts or features; images are refused."""
    arrays: dict[str, Array] = {}
    about = []
    for place, part in enumerate(parts):
        arrays |= {f"{place}.{name}": np.ascontiguousarray(each) for name, each in _arrays(part).items()}
        about.append(_about(part))
    content = json.dumps(about).encode()
    return len(content).to_bytes(8, "little") + content + save(arrays)


def from_bytes(content: bytes) -> list[Examples]:
    """What ``to_bytes`` was given."""
    end = 8 + int.from_bytes(content[:8], "little")
    arrays = load(content[end:])
    found = []
    for place, about in enumerate(json.loads(content[8:end])):
        start = f"{place}."
        own = {name.removeprefix(start): each for name, each in arrays.items() if name.startswith(start)}
        found.append(_examples(own, about))
    return found


def _arrays(part: Examples) -> dict[str, Array]:
    if part.images is not None:
        raise ValueError("to_bytes: examples must have texts or features; got images.")
    found: dict[str, Array] = {}
    for what, lists in (("labels", part.labels), ("unknown", part.unknown)):
        for name in LISTS if lists is not None else ():
            each = getattr(lists, name)
            found |= {} if each is None else {f"{what}.{name}": each.numpy()}
    for what, strings in (("texts", part.texts), ("ids", part.ids)):
        if strings is not None:
            encoded = [each.encode("utf-8", "surrogatepass") for each in strings]
            found[f"{what}.bytes"] = np.frombuffer(b"".join(encoded), dtype=np.uint8)
            found[f"{what}.lengths"] = np.asarray([len(each) for each in encoded], dtype=np.int64)
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


def _examples(arrays: dict[str, Array], about: dict[str, Any]) -> Examples:
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
        texts=_strings(arrays, "texts"),
        features=features,
        unknown=lists["unknown"],
        feature_names=None if about["feature_names"] is None else tuple(about["feature_names"]),
        ids=_strings(arrays, "ids"),
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


def _strings(arrays: dict[str, Array], what: str) -> list[str] | None:
    if f"{what}.lengths" not in arrays:
        return None
    content, ends = arrays[f"{what}.bytes"].tobytes(), np.cumsum(arrays[f"{what}.lengths"]).tolist()
    return [content[start:end].decode("utf-8", "surrogatepass") for start, end in zip([0, *ends], ends, strict=False)]


def _source(fields: Sequence[Any]) -> Source:
    path, format, chosen, problems, num_problems, remarks, unused = fields
    told = tuple(Problem(*each) for each in problems)
    return Source(path, format, _decoded(chosen), told, num_problems, tuple(remarks), unused)


def _coded(value: Any) -> Any:
    """For JSON, with tuples told from lists."""
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
