"""A linear or bag model as plain weights: safetensors and JSON, for software that only multiplies matrices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from manyhot._files import json_bytes, make_folder, write_whole
from manyhot.export.clear_rule import clear_rule
from manyhot.export.folding import affine_link, check_foldable
from manyhot.export.graph import check_exportable
from manyhot.export.onnx_file import Parity, compare_parts, refuse_difference
from manyhot.export.vectoriser import write_vectoriser
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.inputs.features import FeatureInputs
from manyhot.training.rows.inputs.texts import TextInputs

FORMAT = "manyhot-weights-1"
# Rows per batch of the comparison.
BATCH = 64


def export_weights(model: TrainedModel, folder: str | Path, *, rows: Any) -> Parity:
    """Write ``weights.safetensors`` and ``weights.json``: ``s = x first (second^T) + bias``, predicted if ``s > threshold``.

    Before anything is written, the products are computed with numpy for ``rows`` and compared with the model.

    Args:
        model: a model whose scores are linear in its inputs (linear, bag, wide), with a rule of thresholds.
        folder: where the files go; for texts ``vectoriser.json`` and its references beside them.
        rows: real rows to compare on: ``Examples`` or inputs of ``predict``.

    Returns:
        The result of the comparison.

    Raises:
        ValueError: if the body or the rule is not supported, or if the two differ; nothing is written then.
    """
    from safetensors.torch import save

    weights = _weights(model, rows)
    parity = compare_parts(model, rows, _products(model, weights, rows), batch_size=BATCH)
    refuse_difference(parity)
    described = {
        "format": FORMAT,
        "labels": list(model.label_names),
        "inputs": model.inputs.kind,
        "sparse": bool(getattr(model.inputs, "sparse", True)),
        "score": "(x first) second^T + bias" if "second" in weights else "x first + bias",
        "decision": "score > threshold",
        "probability": "sigmoid(slope * score + intercept)" if "slope" in weights else None,
    }
    folder = Path(folder)
    make_folder(folder)
    if isinstance(model.inputs, TextInputs):
        write_vectoriser(model.inputs, folder)
    write_whole(folder / "weights.safetensors", save(weights, metadata={"format": FORMAT}))
    write_whole(folder / "weights.json", json_bytes(described))
    return parity


def _weights(model: TrainedModel, rows: Any) -> dict[str, Tensor]:
    """The tensors of the file, or an error if the body or the rule does not have that form."""
    check_exportable(model)
    factors = model.factors()
    if factors is None:
        raise ValueError(
            "export: plain weights are for bodies that are linear in their inputs (linear, bag, wide);"
            f" got {model.shape['body']!r}. Export to onnx."
        )
    check_foldable("export", model.rule, model.num_labels)
    given = clear_rule(model.rule, model.iter_logits(rows, batch_size=BATCH)).threshold
    cuts = torch.tensor(given if isinstance(given, tuple) else (given,) * model.num_labels, dtype=torch.float64)
    tensors = {"first": factors.picked(slice(None)), "bias": factors.bias, "threshold": cuts}
    if factors.second is not None:
        tensors["second"] = factors.second
    if isinstance(model.inputs, FeatureInputs):
        tensors |= model.inputs.tensors()
    # Scores that only rank, a softmax and an isotonic calibration have no slope and intercept.
    with contextlib.suppress(ValueError):
        tensors["slope"], tensors["intercept"] = affine_link("export", model.calibration or model.link, model.num_labels)
    return {name: each.detach().cpu().contiguous().clone() for name, each in tensors.items()}


def _products(model: TrainedModel, weights: dict[str, Tensor], rows: Any) -> Iterator[dict[str, Tensor]]:
    """The outputs for the prepared rows, computed from the tensors of the file as ``weights.json`` describes."""
    prepared = model.inputs.rows(rows)
    arrays = {name: each.numpy() for name, each in weights.items()}
    for start in range(0, prepared.shape[0], BATCH):
        scores = prepared[start : start + BATCH] @ arrays["first"]
        if "second" in arrays:
            scores = scores @ arrays["second"].T
        scores = scores + arrays["bias"]
        found = {"logits": scores, "decisions": scores > arrays["threshold"]}
        if "slope" in arrays:
            found["probabilities"] = expit(arrays["slope"] * scores + arrays["intercept"])
        yield {name: torch.from_numpy(np.asarray(each)) for name, each in found.items()}
