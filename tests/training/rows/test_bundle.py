"""Bundles: what is saved is what is loaded, and what cannot be trusted is refused."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open

from manyhot.decisions.rule import DecisionRule
from manyhot.training.rows.bundle import load_model
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from manyhot.training.run.bundle_folder import BundleError
from manyhot.training.run.checkpoint import pack
from training.problems import feature_examples, image_examples, same_weights, text_examples

QUICK = TrainSettings(epochs=2, batch_size=32, hidden=8, learning_rate=0.02, threads=1)
MODELS = {
    "linear": (text_examples, TrainSettings(threads=1, calibrate="platt", ngrams=2, char_ngrams=3)),
    "bag": (text_examples, replace(QUICK, model="bag")),
    "mlp": (feature_examples, QUICK),
    "sparse": (lambda: feature_examples(as_sparse=True), replace(QUICK, model="mlp")),
    "conv": (image_examples, QUICK),
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request):
    make, settings = MODELS[request.param]
    return make(), train(make(), settings)


def test_a_model_that_is_loaded_gives_the_same_answers(model, tmp_path):
    examples, trained = model
    trained.save(tmp_path)
    loaded = load_model(tmp_path)
    assert same_weights(loaded, trained)
    assert torch.equal(loaded.logits(examples), trained.logits(examples))
    assert torch.equal(loaded.probabilities(examples), trained.probabilities(examples))
    assert loaded.predict(examples).lists() == trained.predict(examples).lists()
    assert loaded.describe() == json.loads(json.dumps(trained.describe()))
    assert (loaded.label_names, loaded.settings, loaded.link) == (trained.label_names, trained.settings, trained.link)


def test_a_model_in_a_notebook_is_one_line(model):
    examples, trained = model
    assert repr(trained).startswith(
        f"TrainedModel({trained.shape['body']} on {examples.kind}, {examples.num_labels} labels, loss "
    )


def test_saving_again_leaves_one_model(model, tmp_path):
    _, trained = model
    trained.save(tmp_path)
    trained.rule = DecisionRule(threshold=0.5)
    trained.save(tmp_path)
    assert load_model(tmp_path).rule == DecisionRule(threshold=0.5)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]


@pytest.fixture
def saved(tmp_path):
    train(feature_examples(), QUICK).save(tmp_path)
    return tmp_path


def edit(folder, **changes):
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite_weights(folder, change):
    name = json.loads((folder / "model.json").read_text())["weights"]
    with safe_open(folder / name, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    change(tensors)
    (folder / name).write_bytes(pack(tensors, {}))


def test_a_wrong_tensor_is_named(saved):
    rewrite_weights(saved, lambda tensors: tensors.update({"body.head.weight": torch.zeros(3, 3)}))
    with pytest.raises(BundleError, match=r"'head.weight' must be torch.float32 \[4, 40\]; got torch.float32 \[3, 3\]"):
        load_model(saved)


def test_a_missing_tensor_is_named(saved):
    rewrite_weights(saved, lambda tensors: tensors.pop("body.head.bias"))
    with pytest.raises(BundleError, match=r"'head.bias' must be .*; got none"):
        load_model(saved)


def test_a_surplus_tensor_is_refused(saved):
    rewrite_weights(saved, lambda tensors: tensors.update({"body.more": torch.zeros(1)}))
    with pytest.raises(BundleError, match="more"):
        load_model(saved)


@pytest.mark.parametrize("name", ["../weights.safetensors", "/etc/passwd", "sub/weights.safetensors"])
def test_weights_outside_the_folder_are_refused(saved, name):
    edit(saved, weights=name)
    with pytest.raises(BundleError, match="must lie in the model's folder"):
        load_model(saved)


def test_a_link_out_of_the_folder_is_refused(saved, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "weights.safetensors"
    outside.write_bytes(pack({}, {}))
    (saved / "weights-x.safetensors").symlink_to(outside)
    edit(saved, weights="weights-x.safetensors")
    with pytest.raises(BundleError, match="must lie in the model's folder"):
        load_model(saved)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": ["a", "b"]}, "must be 4 different names; got 2"),
        ({"labels": ["a", "a", "b", "c"]}, "different names"),
        ({"rule": {"threshold": [0.0, 1.0]}}, "must have 4 thresholds; got 2"),
        ({"link": "cubic"}, "link` must be one of"),
        ({"format": "other"}, "must have the format"),
        ({"settings": {"epoch": 3}}, "Did you mean 'epochs'"),
        ({"inputs": {"kind": "sounds"}}, "`inputs.kind` must be one of texts"),
        ({"shape": {}}, "does not hold a whole model"),
    ],
)
def test_a_bundle_that_does_not_fit_together_is_refused(saved, changes, words):
    edit(saved, **changes)
    with pytest.raises(BundleError, match=words):
        load_model(saved)


def test_weights_that_are_cut_off_are_refused(saved):
    path = next(saved.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(BundleError, match="is missing, cut off or changed"):
        load_model(saved)


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(BundleError, match=r"must hold a model.json"):
        load_model(tmp_path)


@pytest.mark.parametrize("wrong", [["text"], np.zeros((2, 5), dtype=np.float32), torch.zeros(2, 1, 4, 4)])
def test_inputs_the_model_does_not_read_are_named(wrong):
    model = train(feature_examples(60), QUICK)
    with pytest.raises((TypeError, ValueError), match="TrainedModel: the model reads"):
        model.logits(wrong)


def test_features_are_found_by_name():
    examples = replace(feature_examples(60), feature_names=tuple("stuvwxyz"))
    model = train(examples, QUICK)
    turned = replace(examples, features=examples.features[:, ::-1].copy(), feature_names=tuple("zyxwvuts"))
    assert torch.equal(model.logits(examples), model.logits(turned))


@pytest.mark.parametrize("model", ["mlp", "bag", "linear"])
def test_a_model_is_loaded_without_importing_a_compiler(model, tmp_path):
    examples = text_examples(30) if model == "bag" else feature_examples(30)
    train(examples, TrainSettings(model=model, epochs=1, tune="none", members=1)).save(tmp_path)
    program = "import sys; from manyhot import load_model; load_model(sys.argv[1]); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
