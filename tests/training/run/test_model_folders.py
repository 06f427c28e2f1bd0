"""Model folders are not trusted: every field that is missing, unknown, ill-typed or out of range is one clear line."""

import copy
import json
import os
import random
import shutil

import pytest
import torch

from manyhot import SpanSettings, TrainSettings, load_model, load_span_model, train, train_spans
from manyhot.cli.main import main
from manyhot.training.run.bundle_folder import BundleError
from manyhot.training.run.checkpoint import pack, unpack
from training.problems import feature_examples, image_examples, text_examples
from training.spans.problems import people

MODELS = {
    "linear": (lambda: text_examples(60), TrainSettings(epochs=1)),
    "bag": (lambda: text_examples(60), TrainSettings(model="bag", epochs=1, hidden=4)),
    "mlp": (lambda: feature_examples(60), TrainSettings(epochs=1, hidden=4, learning_rate=0.01)),
    "conv": (lambda: image_examples(30), TrainSettings(epochs=1, hidden=8, learning_rate=0.01)),
}
BAD = [None, True, -1, 0, 0.5, 10**30, "x", "", [], {}, [None], {"a": 1}]


@pytest.fixture(scope="module", params=[*MODELS, "spans"])
def saved(request, tmp_path_factory):
    """``(folder of a model, the function that loads it)``."""
    folder = tmp_path_factory.mktemp("models") / request.param
    if request.param == "spans":
        settings = SpanSettings(hidden=8, head_size=8, epochs=1, validation=0.0)
        train_spans(people(12), settings).save(folder)
        return folder, load_span_model
    make, settings = MODELS[request.param]
    train(make(), settings).save(folder)
    return folder, load_model


def with_description(folder, tmp_path, content):
    copied = tmp_path / "model"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(folder, copied)
    (copied / "model.json").write_text(content)
    return copied


def changes(data, draw):
    """Descriptions that each differ from ``data`` in one field."""
    places = [(data, name) for name in data] + [(data[part], name) for part in ("shape", "inputs") for name in data[part]]
    for table, name in places:
        kept = table[name]
        for value in draw.sample(BAD, 5):
            if type(value) is type(kept):
                continue
            table[name] = value
            yield f"{name} = {value!r}", copy.deepcopy(data)
        del table[name]
        yield f"no {name}", copy.deepcopy(data)
        table[name] = kept
    for part in (data, data["shape"], data["inputs"]):
        part["surprise"] = 1
        yield "an unknown field", copy.deepcopy(data)
        del part["surprise"]


# Fields that older models do not have, and values that are as good as the field's own.
HARMLESS = {"no documents", "no reading", "calibration = None", "link = None", "no activation", "names = None"}
# Older span models have no link, and no dropout is a dropout like any other.
HARMLESS |= {"no link", "dropout = 0"}


def test_every_changed_field_is_one_line(saved, tmp_path):
    folder, load = saved
    data, taken, told = json.loads((folder / "model.json").read_text()), [], []
    for what, changed in changes(data, random.Random(0)):
        copied = with_description(folder, tmp_path, json.dumps(changed))
        try:
            load(copied)
        except BundleError as error:
            told.append(str(error))
        else:
            taken.append(what)
    assert told
    assert not [line for line in told if "\n" in line]
    assert not [what for what in taken if what not in HARMLESS and not what.startswith(("reading", "about"))]


@pytest.mark.parametrize(
    "content",
    ["[" * 100_000 + "]" * 100_000, '{"format": 1e999}', '{"format": NaN}', "{", "", "[]", "9" * 5000, '{"a": -Infinity}'],
    ids=["deep", "infinite", "nan", "cut off", "empty", "list", "long number", "minus infinity"],
)
def test_a_description_that_is_no_json_of_finite_numbers_is_one_line(saved, tmp_path, content, capsys):
    folder, load = saved
    copied = with_description(folder, tmp_path, content)
    with pytest.raises(BundleError):
        load(copied)
    (tmp_path / "texts.jsonl").write_text('{"text": "Ada"}\n')
    assert main(["predict", str(copied), str(tmp_path / "texts.jsonl")]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "Traceback" not in told


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(saved, tmp_path, value):
    folder, load = saved
    copied = with_description(folder, tmp_path, (folder / "model.json").read_text())
    path = copied / json.loads((copied / "model.json").read_text())["weights"]
    tensors, about = unpack(path)
    name = next(name for name, each in tensors.items() if each.is_floating_point() and each.numel())
    tensors = {key: each.clone() for key, each in tensors.items()}
    tensors[name].view(-1)[0] = value
    path.write_bytes(pack(tensors, about))
    with pytest.raises(BundleError, match="must be finite numbers"):
        load(copied)


def test_a_tensor_that_the_model_does_not_have_is_refused(saved, tmp_path):
    folder, load = saved
    copied = with_description(folder, tmp_path, (folder / "model.json").read_text())
    path = copied / json.loads((copied / "model.json").read_text())["weights"]
    tensors, about = unpack(path)
    first = next(name for name in tensors if not name.startswith("inputs."))
    path.write_bytes(pack({**tensors, f"{first}.more": torch.zeros(1)}, about))
    with pytest.raises(BundleError, match="there must be no tensor"):
        load(copied)


def test_loading_leaves_the_callers_random_state_alone(saved):
    folder, load = saved
    before = torch.get_rng_state()
    load(folder)
    assert torch.equal(before, torch.get_rng_state())


def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(saved, tmp_path):
    folder, load = saved
    for name in ("model.json", next(path.name for path in folder.glob("*.safetensors"))):
        copied = tmp_path / name / "model"
        shutil.copytree(folder, copied)
        (copied / name).unlink()
        os.mkfifo(copied / name)
        with pytest.raises((BundleError, FileNotFoundError)):
            load(copied)
