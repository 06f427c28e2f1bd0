"""Export of a span model to ONNX, compared with the model before it is written; decoding is not part of the graph."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import manyhot
from manyhot._files import json_bytes, make_folder, write_whole
from manyhot.data.spans.examples import SpanExamples
from manyhot.export.onnx_file import DESCRIPTION, FILE, Parity, need_packages, open_session, quiet, refuse_difference
from manyhot.export.span_graph import SpanGraph
from manyhot.training.spans.bundle import TrainedSpanModel
from manyhot.training.spans.rows import StoredRows

FORMAT = "manyhot-onnx-spans-1"
OPSET = 17
DECODING = (
    "Not in the graph. A cell (type, first token, last token) of `scores` is a candidate if it is above `threshold`."
    " Candidates are visited from the highest score to the lowest: `flat` keeps one that shares no token with those kept,"
    " `nested` keeps one that crosses none of them, `all` keeps every one. Texts longer than `max_tokens` are split into"
    " windows that overlap by `overlap` tokens; a span found in two windows keeps its higher score."
)


def export_span_onnx(model: TrainedSpanModel, folder: str | Path, *, texts: SpanExamples) -> Parity:
    """Write a span model as ``model.onnx``, with ``model.json``: vocabularies, types, threshold, and how to decode.

    The graph maps token features to ``scores [texts, types, tokens, tokens]``; the numbers of texts and tokens are dynamic.
    Before anything is written, onnxruntime runs it on ``texts``: a cell that lies on the other side of the
    threshold, or scores beyond the tolerance, raise an error.

    Args:
        model: a span model with the body words or characters.
        folder: where the files go.
        texts: real texts to compare on, with or without spans.

    Returns:
        The result of the comparison, over windows and cells.

    Raises:
        ValueError: if they differ, or if the body cannot be exported; nothing is written then.
    """
    need_packages("onnx", "onnxruntime")
    graph = SpanGraph(model)
    windows = model.windows(texts)
    stored = StoredRows(windows.rows, num_types=len(model.type_names), device=torch.device("cpu"))
    content = _traced(graph, stored)
    parity = _compared(model, graph, content, stored)
    refuse_difference(parity)
    folder = Path(folder)
    make_folder(folder)
    write_whole(folder / DESCRIPTION, json_bytes(_described(model, graph, parity)))
    write_whole(folder / FILE, content)
    return parity


def _traced(graph: SpanGraph, stored: StoredRows) -> bytes:
    """The ONNX file, by the tracing exporter: it supports an LSTM with a dynamic number of steps."""
    sizes: dict[str, dict[int, str]] = {
        port.name: {axis: name for axis, name in enumerate(port.axes) if name} for port in graph.ports
    }
    sizes["scores"] = {0: "texts", 2: "tokens", 3: "tokens"}
    out = io.BytesIO()
    with quiet(), torch.no_grad():
        torch.onnx.export(
            graph,
            graph.inputs_of(stored.batch(np.arange(min(len(stored), 3)))),
            out,  # type: ignore[arg-type]
            input_names=list(sizes)[:-1],
            output_names=["scores"],
            dynamic_axes=sizes,
            opset_version=OPSET,
            dynamo=False,
        )
    return out.getvalue()


def _compared(model: TrainedSpanModel, graph: SpanGraph, content: bytes, stored: StoredRows, *, batch_size: int = 16) -> Parity:
    session = open_session(content)
    cells, different, far = 0, 0, 0.0
    order = np.argsort(stored.lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        batch = stored.batch(order[start : start + batch_size])
        given = {port.name: each.numpy() for port, each in zip(graph.ports, graph.inputs_of(batch), strict=True)}
        found = torch.from_numpy(session.run(None, given)[0])
        with torch.inference_mode():
            scores = model.network(batch)
            wanted, counts = scores.dense(), scores.where().expand(scores.shape)
        cells += int(counts.sum())
        limit = model.settings.threshold
        different += int(((found > limit) != (wanted > limit)).sum())
        off = (found[counts] - wanted[counts]).abs() / wanted[counts].abs().clamp(min=1)
        far = max(far, float(off.max()) if off.numel() else 0.0)
    return Parity(len(stored), cells, different, far, None)


def _described(model: TrainedSpanModel, graph: SpanGraph, parity: Parity) -> dict[str, Any]:
    chosen = model.settings
    return {
        "format": FORMAT,
        "file": FILE,
        "inputs": [{"name": port.name, "axes": list(port.axes), "meaning": port.meaning} for port in graph.ports],
        "outputs": ["scores"],
        "types": list(model.type_names),
        "before": json.loads(json.dumps(model.inputs.to_json())),
        "threshold": chosen.threshold,
        "decode": chosen.decode,
        "max_tokens": chosen.max_tokens,
        "overlap": chosen.overlap,
        "link": model.link,
        "decoding": DECODING,
        "compared": {"windows": parity.rows, "cells": parity.decisions, "different": parity.different},
        "manyhot": manyhot.__version__,
    }
