"""The description of a saved model, ``model.json``: its fields, its documents, and the body it describes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyhot._files import json_bytes, make_folder, remove_drafts, write_whole, writing
from manyhot.data.reading import Reading
from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.links import LINKS
from manyhot.decisions.rule import DecisionRule
from manyhot.training.rows.bodies.registry import get_body, make_body
from manyhot.training.rows.inputs.registry import INPUTS, Inputs
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.strategies import ReadBody, reader_of
from manyhot.training.run.bundle_folder import (
    DESCRIPTION,
    BundleError,
    check_tensors,
    inside,
    read_weights,
    remove_others,
)
from manyhot.training.run.checkpoint import bytes_of, checksum, on_cpu, packed_parts
from manyhot.training.run.schema import (
    TABLE,
    TEXT,
    TRUTH,
    Kind,
    Schema,
    check_schema,
    choice,
    listed,
    number,
    parse_json,
    shown,
    whole,
)
from manyhot.training.run.shapes_only import shapes_only

FORMAT = "manyhot-model-1"
# Placeholder in a header that is written before its checksum is known.
UNCHECKED = "0" * 8
# Bytes that one thread hashes at a time.
PIECE_BYTES = 32 << 20
# The tensor of label counts among the weights.
COUNTS = "labels.counts"
# Large parts of model.json that are stored in files of their own, and the entry they belong to.
DOCUMENTS = {"config": "shape", "tokenizer": "inputs"}
MODEL_SCHEMA: Schema = {
    "format": TEXT,
    "weights": TEXT,
    "documents": Kind(
        "an object of file names", lambda found: isinstance(found, dict) and set(found) <= set(DOCUMENTS)
    ).or_missing(),
    "shape": TABLE,
    "inputs": TABLE,
    "labels": listed(TEXT),
    "link": choice(*LINKS).or_none(),
    "rule": TABLE,
    "calibration": TABLE.or_none(),
    "settings": TABLE,
    "about": TABLE,
    "reading": TABLE.or_missing(),
}
SHAPE_SCHEMA: Schema = {
    "body": TEXT,
    "width": whole(1),
    "num_labels": whole(1),
    "hidden": whole(1).or_missing(),
    "dropout": number(0, 1).or_missing(),
    "sparse": TRUTH.or_missing(),
    "activation": choice("relu", "none").or_missing(),
    "config": TABLE.or_missing(),
    "head": choice("float32", "bfloat16").or_missing(),
    "table": choice("float32", "float16", "int8").or_missing(),
    "padding": whole(0).or_missing(),
    "strategy": TEXT.or_missing(),
    "read_labels": whole(1).or_missing(),
    "trees": Kind("a list", lambda found: isinstance(found, list)).or_missing(),
    "beam": whole(1).or_missing(),
    "power": number(0, 1).or_missing(),
    "slope": number(0, 100).or_missing(),
}


def write_bundle(folder: Path, tensors: dict[str, Tensor], described: dict[str, Any]) -> None:
    """Write the files of a model, ``model.json`` last, and remove those of the model that was there before."""
    make_folder(folder)
    remove_drafts(folder)
    whole = on_cpu(tensors)
    about = {"format": FORMAT}
    # For gigabytes, digest, checksum and writing take a second each; all of them release the GIL.
    with ThreadPoolExecutor() as pool:
        check = pool.submit(checksum, whole)
        digests = pool.map(content_digest, _pieces(whole))
        header, *parts = packed_parts(whole, about, UNCHECKED)
        weights = f"weights-{content_digest(*(each.encode() for each in digests), header)}.safetensors"
        with writing(folder / weights) as file:
            for part in (header, *parts):
                file.write(part)
            file.seek(0)
            file.write(packed_parts(whole, about, check.result())[0])
    documents = write_documents(folder, described)
    description = {**about, "weights": weights, "documents": documents, **described}
    write_whole(folder / DESCRIPTION, json_bytes(description))
    for pattern in ("weights-*.safetensors", *(f"{name}-*.json" for name in DOCUMENTS)):
        remove_others(folder, pattern, (weights, *documents.values()))


def _pieces(tensors: dict[str, Tensor]) -> Iterator[memoryview]:
    """The bytes of the tensors, ``PIECE_BYTES`` at a time."""
    for each in tensors.values():
        content = bytes_of(each)
        for start in range(0, len(content), PIECE_BYTES):
            yield content[start : start + PIECE_BYTES]


def read_parts(folder: Path, data: dict[str, Any]) -> dict[str, Any]:
    """The arguments of ``TrainedModel`` from a description and the files it names, checked."""
    check_schema("model", data, MODEL_SCHEMA)
    shape, inputs_data = read_documents(folder, data)
    names = tuple(data["labels"])
    check_schema("shape", shape, SHAPE_SCHEMA)
    tensors = read_weights("load_model", folder, data["weights"])
    inputs = read_inputs(inputs_data, tensors_below("inputs.", tensors))
    settings = TrainSettings.from_dict(data["settings"])
    check_together(shape, inputs, names, settings)
    body = body_with(shape, tensors_below("body.", tensors))
    rule = DecisionRule.from_json(data["rule"])
    if isinstance(rule.threshold, tuple) and len(rule.threshold) != len(names):
        raise BundleError(f"load_model: the rule must have {len(names)} thresholds; got {len(rule.threshold)}.")
    if rule.sets is not None and rule.sets.num_labels > len(names):
        raise BundleError(f"load_model: the rule must have sets of {len(names)} labels; got label {rule.sets.num_labels - 1}.")
    return {
        "body": body,
        "shape": shape,
        "inputs": inputs,
        "label_names": names,
        "settings": settings,
        "link": data["link"],
        "rule": rule,
        "calibration": None if data["calibration"] is None else Calibration.from_json(data["calibration"]),
        "about": dict(data["about"]),
        "reading": Reading.from_json(data.get("reading", {})),
        "label_counts": _counts_of(tensors, len(names)),
    }


def _counts_of(tensors: dict[str, Tensor], num_labels: int) -> Tensor | None:
    """The label counts of a bundle; None for bundles that were saved without them."""
    counts = tensors.get(COUNTS)
    if counts is not None and (counts.dtype != torch.int64 or counts.shape != (num_labels,) or bool((counts < 0).any())):
        raise BundleError(f"load_model: {COUNTS!r} must be a count >= 0 for each of {num_labels} labels.")
    return counts


def check_together(shape: dict[str, Any], inputs: Inputs, names: tuple[str, ...], settings: TrainSettings) -> None:
    """Check that the parts of a description belong to the same model."""
    who, entry = "load_model", get_body(shape["body"])
    missing = [name for name in ("hidden", "dropout", "sparse") if entry.trains and name not in shape]
    if missing:
        raise BundleError(f"{who}: `shape` must have the field {missing[0]!r}; it is missing.")
    num_labels = shape.get("read_labels", shape["num_labels"])
    if num_labels != len(names) or len(set(names)) != len(names):
        raise BundleError(f"{who}: `labels` must be {num_labels} different names; got {len(names)}.")
    if shape["width"] != inputs.width:
        raise BundleError(f"{who}: the inputs must have width {shape['width']}; got {inputs.width}.")
    if inputs.kind not in ((entry.inputs,) if entry.inputs else entry.reads):
        raise BundleError(f"{who}: the body {entry.name!r} must read {' or '.join(entry.reads)}; got {inputs.kind}.")
    if entry.trains and settings.model != entry.name:
        raise BundleError(f"{who}: `shape.body` must be the model of the settings, {settings.model!r}; got {entry.name!r}.")
    if shape.get("sparse", False) != inputs.gives_sparse:
        raise BundleError(f"{who}: `shape.sparse` must be {inputs.gives_sparse} for these inputs; got {shape.get('sparse')}.")


def body_with(shape: dict[str, Any], own: dict[str, Tensor]) -> nn.Module:
    """The body that ``shape`` describes with these weights, after their names and sizes were checked."""
    with shapes_only():
        body = _made(shape)
    check_tensors("load_model", body.state_dict(), own)
    if get_body(shape["body"]).unsaved_buffers:
        # Some buffers are computed at construction and not saved. Construction draws random numbers; the global state is kept.
        with torch.random.fork_rng(devices=[]):
            body = _made(shape)
    body.load_state_dict(own, assign=True)
    return body


def _made(shape: dict[str, Any]) -> nn.Module:
    """The body that ``shape`` describes, with the reader of its strategy."""
    body = make_body(shape)
    reader = reader_of(shape)
    return body if reader is None else ReadBody(body, reader)


def write_documents(folder: Path, parts: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Move the large entries of ``parts`` into files of their own; returns their names, which ``model.json`` lists."""
    documents = {}
    for name, owner in DOCUMENTS.items():
        if name in parts[owner]:
            content = json_bytes(parts[owner].pop(name))
            documents[name] = f"{name}-{content_digest(content)}.json"
            write_whole(folder / documents[name], content)
    return documents


def read_documents(folder: Path, data: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """``shape`` and ``inputs`` of a description, with the entries that are files of their own."""
    parts = {"shape": dict(data["shape"]), "inputs": dict(data["inputs"])}
    for name, file in data.get("documents", {}).items():
        parts[DOCUMENTS[name]][name] = _read_document(folder, file)
    return parts["shape"], parts["inputs"]


def read_inputs(data: dict[str, Any], tensors: dict[str, Tensor]) -> Inputs:
    """The fitted inputs that ``data`` describes."""
    kind = INPUTS[data["kind"]] if data.get("kind") in INPUTS else None
    if kind is None:
        raise BundleError(f"load_model: `inputs.kind` must be one of {', '.join(INPUTS)}; got {shown(data.get('kind'))}.")
    check_schema("inputs", data, kind.schema)
    return kind.from_parts(data, tensors)


def _read_document(folder: Path, name: Any) -> Any:
    path = inside("load_model", folder, name, "documents")
    content = path.read_bytes() if path.is_file() else b""
    if not path.stem.endswith(f"-{content_digest(content)}"):
        raise BundleError(f"load_model: {str(path)!r} is missing, cut off or changed. Save the model again.")
    return parse_json(content.decode())


def tensors_below(prefix: str, named: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with ``prefix``, without it."""
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}


def content_digest(*parts: bytes | memoryview) -> str:
    """Twelve hexadecimal digits that name a file after its content."""
    import hashlib

    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:12]
