"""ONNX: one graph that scores, calibrates and decides as the model does, or nothing at all."""

import copy
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from export.conftest import LINKS, MAKERS, RULES
from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.rule import decide
from manyhot.export.graph import ModelGraph, graph_inputs
from manyhot.training.rows.bodies.word_table import WordTable
from manyhot.training.rows.bundle import load_model
from training.problems import feature_examples
from training.rows.bodies.test_encoder import encoder  # noqa: F401 - a fixture

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed; make test-production installs it")
pytest.importorskip("onnxscript", reason="the extra `onnx` is not installed; make test-production installs it")

from manyhot.export.onnx_file import compare_onnx, export_onnx, onnx_bytes, open_session  # noqa: E402


@pytest.mark.parametrize("name", MAKERS)
def test_the_graph_decides_as_the_model_for_any_number_of_rows(trained, tmp_path, name):
    model, examples = trained[name]
    parity = export_onnx(model, tmp_path, rows=examples)
    assert (parity.rows, parity.different) == (len(examples), 0)
    session = open_session(str(tmp_path / "model.onnx"))
    assert [each.name for each in session.get_outputs()] == ["logits", "probabilities", "decisions"]
    told = json.loads((tmp_path / "model.json").read_text())
    assert [each["name"] for each in told["inputs"]] == [each.name for each in session.get_inputs()]
    assert tuple(told["labels"]) == model.label_names
    assert json.loads(session.get_modelmeta().custom_metadata_map["labels"]) == list(model.label_names)
    for size in (1, 2, 17):
        part = examples[:size]
        (batch,) = graph_inputs(model, part, batch_size=64)
        given = {each.name: value.numpy() for each, value in zip(session.get_inputs(), batch, strict=True)}
        logits, probs, decisions = session.run(None, given)
        np.testing.assert_allclose(logits, model.logits(part).numpy(), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(probs, model.probabilities(part).numpy(), atol=1e-5)
        assert (decisions == decide(model.logits(part), model.rule).numpy()).all()


def test_a_table_of_8_bits_is_exported(trained, tmp_path):
    model, examples = copy.copy(trained["wide"][0]), trained["wide"][1]
    model.body, first = copy.deepcopy(model.body), model.body.first
    with torch.device("meta"):
        small = WordTable(*first.weight.shape, moves=False, dtype=torch.int8)
    small.hold([first.weight])
    model.body.first = small
    parity = export_onnx(model, tmp_path, rows=examples)
    assert (parity.rows, parity.different) == (len(examples), 0)
    (batch,) = graph_inputs(model, examples[:5], batch_size=64)
    session = open_session(str(tmp_path / "model.onnx"))
    given = {each.name: value.numpy() for each, value in zip(session.get_inputs(), batch, strict=True)}
    np.testing.assert_allclose(session.run(None, given)[0], model.logits(examples[:5]).numpy(), rtol=1e-4, atol=1e-4)


def rewired(model, *, rule=None, link="hard"):
    """The same body with two labels' worth of rule, and another link."""
    changed = copy.copy(model)
    changed.rule = rule or model.rule
    changed.calibration = link if isinstance(link, Calibration) else None
    changed.link = None if isinstance(link, Calibration) else link
    return changed


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_in_the_graph(trained, rule):
    model, examples = trained["conv"]
    changed = rewired(model, rule=RULES[rule])
    graph = ModelGraph(changed)
    logits = torch.cat([model.logits(examples), torch.tensor([[0.0, 0.0], [float("nan"), 1.0], [-float("inf"), -2.0]])])
    assert torch.equal(graph.rule(logits), decide(logits, RULES[rule]))
    _, content = onnx_bytes(changed, examples)
    assert compare_onnx(changed, content, examples).different == 0


@pytest.mark.parametrize("link", LINKS)
def test_every_link_is_in_the_graph(trained, link):
    model, examples = trained["conv"]
    changed = rewired(model, link=LINKS[link])
    graph, content = onnx_bytes(changed, examples)
    parity = compare_onnx(changed, content, examples)
    assert graph.outputs == (["logits", "decisions"] if link == "ranks" else ["logits", "probabilities", "decisions"])
    assert parity.probabilities is None if link == "ranks" else parity.probabilities < 1e-5


def test_a_mismatch_writes_nothing(trained, tmp_path, monkeypatch):
    model, examples = trained["linear-features"]
    monkeypatch.setattr("manyhot.export.decision_graph.RuleGraph.forward", lambda self, logits: logits > self.cut + 1)
    with pytest.raises(ValueError, match=r"decisions differ.*Nothing was written"):
        export_onnx(model, tmp_path / "out", rows=examples)
    monkeypatch.undo()
    monkeypatch.setattr("manyhot.export.decision_graph.LinkGraph.forward", lambda _, logits: torch.sigmoid(logits + 0.01))
    with pytest.raises(ValueError, match=r"probabilities by 0\.\d+.*Nothing was written"):
        export_onnx(model, tmp_path / "out", rows=examples)
    assert not (tmp_path / "out").exists()


def test_missing_values_are_filled_inside_the_graph(trained):
    model, _ = trained["linear-features"]
    holes = feature_examples(40, seed=4)
    features = holes.features.copy()
    features[::3, 2] = np.nan
    _, content = onnx_bytes(model, features)
    assert compare_onnx(model, content, features).different == 0


def test_an_encoder_goes_out_with_its_tokeniser(encoder_model, tmp_path):
    model, examples = encoder_model
    parity = export_onnx(model, tmp_path, rows=examples)
    assert (parity.rows, parity.different) == (60, 0)
    assert json.loads((tmp_path / "tokenizer.json").read_text()) == model.inputs.tokenizer


def test_a_classifier_of_transformers_goes_out_whole(encoder_model, encoder, tmp_path):  # noqa: F811
    transformers = pytest.importorskip("transformers", reason="the extra `text` is not installed")
    from manyhot.integrations.huggingface import to_manyhot

    torch.manual_seed(0)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=3)
    model = to_manyhot(network.eval(), transformers.AutoTokenizer.from_pretrained(encoder), max_tokens=24)
    parity = export_onnx(model, tmp_path, rows=encoder_model[1].texts)
    assert (parity.rows, parity.different) == (60, 0)


@pytest.mark.parametrize("rows", [["salt"], ["salt", "bread", "salt"], [""]])
def test_one_row_and_texts_of_one_word_fix_no_size_of_the_graph(trained, tmp_path, rows):
    model, examples = trained["bag"]
    assert export_onnx(model, tmp_path, rows=rows).rows == len(rows)
    assert compare_onnx(model, (tmp_path / "model.onnx").read_bytes(), examples).different == 0


def test_no_rows_are_refused(trained, tmp_path):
    with pytest.raises(ValueError, match="at least one row"):
        export_onnx(trained["linear"][0], tmp_path / "out", rows=[])
    assert not (tmp_path / "out").exists()


def test_the_files_alone_are_enough(trained, tmp_path):
    model, examples = trained["linear"]
    export_onnx(model, tmp_path, rows=examples)
    script = (
        "import json, sys, onnxruntime, numpy as np; import vectoriser;"
        "d = vectoriser.load('vectoriser.json'); told = json.load(open('model.json'));"
        "rows = vectoriser.features(d, sys.argv[1]);"
        "columns = np.array([[c for c, _ in rows]], np.int64); values = np.array([[v for _, v in rows]], np.float32);"
        "found = onnxruntime.InferenceSession('model.onnx').run(['decisions'], {'columns': columns, 'values': values})[0][0];"
        "assert 'manyhot' not in sys.modules and 'torch' not in sys.modules;"
        "print(json.dumps([n for n, yes in zip(told['labels'], found) if yes]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, "salt and bread"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin"},
    )
    wanted = [model.label_names[label] for label in model.predict(["salt and bread"]).lists()[0]]
    assert sorted(json.loads(done.stdout)) == sorted(wanted)
    model.save(tmp_path / "bundle")
    assert load_model(tmp_path / "bundle").label_names == model.label_names
