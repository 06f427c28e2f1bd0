"""A linear or bag model as plain weights: safetensors and JSON, for software that only multiplies matrices."""

from __future__ import annotations

from pathlib import Path

import torch

from manyhot._files import json_bytes, make_folder, write_whole
from manyhot.export.folding import affine_link, check_foldable
from manyhot.export.onnx_file import Parity
from manyhot.export.vectoriser import write_vectoriser
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.inputs.features import FeatureInputs
from manyhot.training.rows.inputs.texts import TextInputs

FORMAT = "manyhot-weights-1"


def export_weights(model: TrainedModel, folder: str | Path) -> Parity:
    """Write ``weights.safetensors`` and ``weights.json``: ``s = x first (second^T) + bias``, a label holds where s > threshold.

    Args:
        model: a model whose scores are linear in its inputs (linear, bag), with a rule of thresholds.
        folder: where the files go; for texts ``vectoriser.json`` and its references beside them.
    """
    from safetensors.torch import save

    factors = model.factors()
    if factors is None:
        raise ValueError(
            f"export: plain weights are for bodies that are linear in their inputs (linear, bag); got {model.shape['body']!r}."
            " Export to onnx."
        )
    check_foldable("export", model.rule)
    given = model.rule.threshold
    cuts = torch.tensor(given if isinstance(given, tuple) else (given,) * model.num_labels, dtype=torch.float64)
    tensors = {"first": factors.first, "bias": factors.bias, "threshold": cuts}
    if factors.second is not None:
        tensors["second"] = factors.second
    if isinstance(model.inputs, FeatureInputs):
        tensors |= model.inputs.tensors()
    link = model.calibration or model.link
    try:
        slope, intercept = affine_link("export", link, model.num_labels)
        tensors |= {"slope": slope, "intercept": intercept}
    except ValueError:
        # Scores that only rank, a softmax and an isotonic calibration have no slope and intercept.
        slope = None
    described = {
        "format": FORMAT,
        "labels": list(model.label_names),
        "inputs": model.inputs.kind,
        "sparse": bool(getattr(model.inputs, "sparse", True)),
        "score": "x first + bias" if factors.second is None else "(x first) second^T + bias",
        "decision": "score > threshold",
        "probability": None if slope is None else "sigmoid(slope * score + intercept)",
    }
    folder = Path(folder)
    make_folder(folder)
    if isinstance(model.inputs, TextInputs):
        write_vectoriser(model.inputs, folder)
    plain = {name: each.detach().cpu().contiguous().clone() for name, each in tensors.items()}
    write_whole(folder / "weights.safetensors", save(plain, metadata={"format": FORMAT}))
    write_whole(folder / "weights.json", json_bytes(described))
    return Parity(0, 0, 0, 0.0, None)
