"""ONNX of span models: the scores of every cell, for any number of texts and tokens; decoding stays outside."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from manyhot.cli.main import main
from manyhot.data.spans.jsonl import write_span_examples
from manyhot.export.span_graph import SpanGraph
from manyhot.training.spans.rows import StoredRows
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans
from training.spans.problems import SMALL, joined, people

KINDS = {
    "words": {},
    "two layers": {"layers": 2},
    "characters": {"tokens": "characters"},
    "typed": {"head": "global-pointer"},
    "without positions": {"rotary": False},
    "without parts of words": {"affixes": 0},
    "states alone": {"skip": False},
}


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    return train_spans(people(40), replace(SpanSettings(**SMALL), epochs=3, **KINDS[request.param]))


def stored(model, examples):
    return StoredRows(model.windows(examples).rows, num_types=3, device=torch.device("cpu"))


def test_the_graph_scores_as_the_network_does(model):
    graph, rows = SpanGraph(model), stored(model, people(9, seed=1))
    batch = rows.batch(np.arange(9))
    with torch.no_grad():
        torch.testing.assert_close(graph(*graph.inputs_of(batch)), model.network(batch).dense())


def test_an_attention_body_is_refused_with_the_reason():
    model = train_spans(people(20), replace(SpanSettings(**SMALL), epochs=1, body="transformer"))
    with pytest.raises(ValueError, match="'transformer' cannot be exported"):
        SpanGraph(model)


def test_onnxruntime_decides_as_the_model_for_any_number_of_texts_and_tokens(model, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed; make test-production installs it")
    from manyhot.export.onnx_file import open_session
    from manyhot.export.span_onnx import export_span_onnx

    parity = export_span_onnx(model, tmp_path, texts=people(12, seed=1))
    assert (parity.rows, parity.different) == (12, 0)
    told = json.loads((tmp_path / "model.json").read_text())
    assert (told["types"], told["threshold"]) == (list(model.type_names), model.settings.threshold)
    assert "Not in the graph" in told["decoding"]
    session, graph = open_session(str(tmp_path / "model.onnx")), SpanGraph(model)
    for examples in (people(1, seed=2), people(7, seed=3), joined(people(6, seed=4), 3)):
        rows = stored(model, examples)
        batch = rows.batch(np.arange(len(rows)))
        given = {port["name"]: each.numpy() for port, each in zip(told["inputs"], graph.inputs_of(batch), strict=True)}
        with torch.no_grad():
            wanted = model.network(batch).dense().numpy()
        np.testing.assert_allclose(session.run(None, given)[0], wanted, rtol=1e-4, atol=1e-5)


def test_export_on_the_command_line_compares_with_the_training_texts(tmp_path, capsys):
    write_span_examples(people(30), tmp_path / "train.jsonl")
    flags = ["--hidden", "8", "--layers", "1", "--head-size", "4", "--epochs", "1", "--no-report", "--quiet"]
    assert main(["train", "--task", "spans", str(tmp_path / "train.jsonl"), "--run", str(tmp_path / "run"), *flags]) == 0
    assert main(["export", str(tmp_path / "run"), "--to", "weights"]) == 2
    assert "exported --to onnx" in capsys.readouterr().err
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed; make test-production installs it")
    assert main(["export", str(tmp_path / "run"), "--folder", str(tmp_path / "onnx"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["different"]) == (30, 0)
    assert (tmp_path / "onnx" / "model.onnx").is_file()
