"""A model as one ONNX file, compared with the model itself before it is written."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import manyhot
from manyhot._files import json_bytes, make_folder, write_whole
from manyhot.decisions.rule import decide
from manyhot.export.clear_rule import clear_rule
from manyhot.export.graph import ModelGraph, check_exportable, graph_inputs
from manyhot.export.vectoriser import write_vectoriser
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.inputs.texts import TextInputs
from manyhot.training.rows.inputs.tokens import TokenInputs

FILE, DESCRIPTION = "model.onnx", "model.json"
FORMAT = "manyhot-onnx-1"
# A protobuf file has at most 2 GiB; the operations of the graph need a part of it.
LARGEST_FILE = (2 << 30) - (16 << 20)
# Tolerance for logits and probabilities: onnxruntime sums products in another order.
LOGIT_TOLERANCE, PROBABILITY_TOLERANCE = 1e-3, 1e-4


class Parity(NamedTuple):
    """The comparison of an export with the model.

    Attributes:
        rows: the number of compared rows.
        decisions: the number of compared decisions, rows times labels.
        different: the number of decisions that differ.
        logits: the largest difference between logits, relative to ``max(1, |logit|)``.
        probabilities: the largest difference between probabilities; None if scores only rank.
    """

    rows: int
    decisions: int
    different: int
    logits: float
    probabilities: float | None


def export_onnx(model: TrainedModel, folder: str | Path, *, rows: Any) -> Parity:
    """Write a model as ``model.onnx``, with ``model.json`` and, for texts, the vectoriser or tokeniser.

    The graph has the outputs ``logits``, ``probabilities`` (unless scores only rank) and ``decisions``: calibration, link,
    thresholds and limits on the number of labels are part of it. The number of rows is dynamic. Before anything is written,
    onnxruntime runs the graph on ``rows``: a decision that differs, or values beyond the tolerance, raise an error.

    Args:
        model: the model.
        folder: where the files go.
        rows: real rows to compare on: ``Examples`` or inputs of ``predict``.

    Returns:
        The result of the comparison.

    Raises:
        ValueError: if they differ; nothing is written then.
    """
    graph, content = onnx_bytes(model, rows)
    parity = compare_onnx(model, content, rows)
    refuse_difference(parity)
    folder = Path(folder)
    make_folder(folder)
    if isinstance(model.inputs, TextInputs):
        write_vectoriser(model.inputs, folder)
    elif isinstance(model.inputs, TokenInputs):
        write_whole(folder / "tokenizer.json", json_bytes(model.inputs.tokenizer))
    write_whole(folder / DESCRIPTION, json_bytes(_described(model, graph, parity)))
    write_whole(folder / FILE, content)
    return parity


def onnx_bytes(model: TrainedModel, rows: Any) -> tuple[ModelGraph, bytes]:
    """The graph of a model and its ONNX file, traced on some of ``rows``."""
    need_packages("onnx", "onnxscript", "onnxruntime")
    check_exportable(model)
    graph = ModelGraph(model, clear_rule(model.rule, model.iter_logits(rows, batch_size=64)))
    size = sum(each.numel() * each.element_size() for each in graph.state_dict().values())
    if size > LARGEST_FILE:
        raise ValueError(
            f"export: the weights of this model have {size / 1e9:.1f} GB; an ONNX file has at most 2.1 GB. Use manyhot serve."
        )
    example = next(graph_inputs(model, rows[:3], batch_size=3), None)
    if example is None:
        raise ValueError("export: there must be at least one row to compare the export on; got none.")
    example = tuple(_doubled(each, port.axes) for each, port in zip(example, graph.ports, strict=True))
    sizes: dict[str, Any] = {}
    shapes = []
    for port in graph.ports:
        names = [name for name in port.axes if name]
        sizes.update({name: torch.export.Dim.DYNAMIC for name in names if name not in sizes})
        shapes.append({axis: sizes[name] for axis, name in enumerate(port.axes) if name})
    with quiet(), torch.no_grad():
        program: Any = torch.onnx.export(
            graph,
            example,
            input_names=[port.name for port in graph.ports],
            output_names=graph.outputs,
            dynamic_shapes=(tuple(shapes),),
            dynamo=True,
            optimize=True,
            verbose=False,
        )
    proto = program.model_proto
    for key, value in (("format", FORMAT), ("labels", json.dumps(list(model.label_names), ensure_ascii=False))):
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    return graph, proto.SerializeToString()


def _doubled(each: Tensor, axes: tuple[str | None, ...]) -> Tensor:
    """Repeat each dynamic axis of size 1 in an example: the exporter would fix it at that size."""
    for axis, name in enumerate(axes):
        if name and each.shape[axis] == 1:
            each = torch.cat([each, each], dim=axis)
    return each


def compare_onnx(model: TrainedModel, content: bytes, rows: Any, *, batch_size: int = 64) -> Parity:
    """Run an ONNX file with onnxruntime on ``rows`` and compare the outputs with the model."""
    session = open_session(content)
    names = [each.name for each in session.get_outputs()]

    def answers() -> Iterator[dict[str, Tensor]]:
        for batch in graph_inputs(model, rows, batch_size=batch_size):
            given = {port.name: each.numpy() for port, each in zip(session.get_inputs(), batch, strict=True)}
            found = session.run(None, given)
            yield {name: torch.from_numpy(np.asarray(value)) for name, value in zip(names, found, strict=True)}

    return compare_parts(model, rows, answers(), batch_size=batch_size)


def compare_parts(model: TrainedModel, rows: Any, answers: Iterable[dict[str, Tensor]], *, batch_size: int) -> Parity:
    """Compare the outputs of an export with the model batch by batch, without keeping those of all rows in memory.

    Args:
        model: the model.
        rows: real rows.
        answers: ``logits``, ``decisions`` and, unless scores only rank, ``probabilities`` of each batch of ``rows``.
        batch_size: the number of rows in a batch.
    """
    compared, different, off, apart = 0, 0, 0.0, None
    for logits, got in zip(model.iter_logits(rows, batch_size=batch_size), answers, strict=True):
        compared += len(logits)
        different += int((got["decisions"] != decide(logits, model.rule)).sum())
        off = max(off, float(((got["logits"] - logits).abs() / logits.abs().clamp(min=1)).nan_to_num(0.0).max()))
        if "probabilities" in got:
            gap = (got["probabilities"] - model.to_probabilities(logits)).abs().nan_to_num(0.0)
            apart = max(apart or 0.0, float(gap.max()))
    return Parity(compared, compared * model.num_labels, different, off, apart)


def open_session(content: bytes | str, *, threads: int = 1) -> Any:
    """An ONNX file, as bytes or by its path, ready to run on the CPU."""
    need_packages("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def refuse_difference(parity: Parity) -> None:
    """Raise an error if the export differs from the model."""
    if parity.different:
        raise ValueError(
            f"export: {parity.different} of {parity.decisions:,} decisions differ between the model and its export."
            " Nothing was written. If scores are within rounding error of a threshold, tune it again: manyhot tune MODEL FILE"
        )
    far = parity.logits > LOGIT_TOLERANCE or (parity.probabilities or 0) > PROBABILITY_TOLERANCE
    if far:
        raise ValueError(
            f"export: logits differ by {parity.logits:.2g} and probabilities by {parity.probabilities or 0:.2g} between the"
            " model and its export. Nothing was written."
        )


def _described(model: TrainedModel, graph: ModelGraph, parity: Parity) -> dict[str, Any]:
    inputs = [{"name": port.name, "axes": list(port.axes), "meaning": port.meaning} for port in graph.ports]
    before = {"texts": "vectoriser.json", "tokens": "tokenizer.json"}.get(model.inputs.kind)
    return {
        "format": FORMAT,
        "file": FILE,
        "inputs": inputs,
        "outputs": graph.outputs,
        "before": before,
        "max_tokens": getattr(model.inputs, "max_tokens", None),
        "labels": list(model.label_names),
        "rule": graph.decision.to_json(),
        "compared": {"rows": parity.rows, "decisions": parity.decisions, "different": parity.different},
        "manyhot": manyhot.__version__,
    }


def need_packages(*packages: str) -> None:
    """Raise an error if a package of the extra ``onnx`` is missing; it says how to install the package."""
    from importlib.util import find_spec

    for package in packages:
        if find_spec(package) is None:
            raise ValueError(f"export: ONNX needs the package {package}. Install it with: pip install manyhot[onnx]")


@contextlib.contextmanager
def quiet() -> Any:
    """Silences the exporter, which prints progress and warns about its own deprecations."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
