"""What cannot be trained on is refused with one line, from Python and from the command line, and leaves no folder."""

import json

import numpy as np
import pytest
import torch
from scipy import sparse

from manyhot import Examples, TrainSettings, train
from manyhot.cli.main import main
from manyhot.training.rows.targets.objective import Objective
from manyhot.training.run.checkpoint import Checkpoints
from training.problems import RUNS, feature_examples, image_examples, text_examples

QUICK = TrainSettings(epochs=2, hidden=8, learning_rate=0.01, threads=1)


def with_features(examples, features):
    return Examples(examples.labels, examples.label_names, features=features)


def infinite(as_sparse, value):
    examples = feature_examples(40)
    features = examples.features.copy()
    features[7, 3] = value
    return with_features(examples, sparse.csr_matrix(features) if as_sparse else features)


@pytest.mark.parametrize("as_sparse", [True, False])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_features_are_refused_with_their_row(as_sparse, value):
    with pytest.raises(ValueError, match=r"`train_examples` must have finite features; row 7"):
        train(infinite(as_sparse, value), QUICK)
    with pytest.raises(ValueError, match=r"`validation` must have finite features; row 7"):
        train(feature_examples(40, as_sparse=as_sparse), QUICK, validation=infinite(as_sparse, value))


@pytest.mark.parametrize("value", [np.inf, 1e39])
def test_a_model_refuses_infinite_features_with_their_row(value):
    model = train(feature_examples(40), QUICK)
    features = feature_examples(40).features.astype(np.float64)
    features[7, 3] = value
    with pytest.raises(ValueError, match=r"TrainedModel: `inputs` must have finite features; row 7"):
        model.predict(features)


def test_arguments_of_another_type_are_named():
    examples = text_examples(20)
    with pytest.raises(TypeError, match="train: `settings` must be TrainSettings; got dict"):
        train(examples, {"epochs": 1})
    with pytest.raises(TypeError, match="train: `sample_weight` must be a tensor, one value per row; got list"):
        train(examples, QUICK, sample_weight=[1.0] * 20)
    names = (examples.label_names[1], *examples.label_names[1:])
    with pytest.raises(ValueError, match="`train_examples` must have label names that differ"):
        train(Examples(examples.labels, names, texts=examples.texts), QUICK)


def test_texts_may_come_from_an_iterator():
    model = train(text_examples(40), TrainSettings(epochs=1, threads=1))
    texts = text_examples(4).texts
    assert model.predict(iter(texts)).lists() == model.predict(texts).lists()
    assert len(model.predict(iter(texts))) == 4


def test_images_that_are_not_finite_are_refused():
    examples = image_examples(20)
    images = examples.images.clone()
    images[3, 0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"finite images; row 3"):
        train(Examples(examples.labels, examples.label_names, images=images), QUICK)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -1.0])
def test_weights_of_rows_that_are_no_weights_are_refused(weight):
    weights = torch.ones(40)
    weights[5] = weight
    with pytest.raises(ValueError, match=r"`sample_weight` must be finite numbers >= 0"):
        train(feature_examples(40), QUICK, sample_weight=weights)


def rows_file(path, examples):
    rows = zip(examples.texts, examples.label_sets(), strict=True)
    path.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows))
    return str(path)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--device", "gpu"], "--device must be auto, cpu, cuda"),
        (["--device", "cuda:99"], "--device must be"),
        (["--learning-rate", "1e308"], "--learning-rate must be a number > 0 and <= 1e+06; got 1e+308"),
        (["--model", "conv"], "for texts; got 'conv'"),
    ],
)
def test_a_run_that_is_refused_is_one_line_and_leaves_no_folder(flags, words, tmp_path, capsys):
    file = rows_file(tmp_path / "rows.jsonl", text_examples(60))
    assert main(["train", file, "--run", str(tmp_path / "runs" / "mine"), "--quiet", *flags]) in (1, 2)
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert words in told
    assert not (tmp_path / "runs").exists()


def test_a_loss_that_diverges_ends_training_with_the_reason(monkeypatch):
    monkeypatch.setattr(Objective, "forward", lambda _, body, batch, *__: body(batch).sum() * float("inf"))
    with pytest.raises(ValueError, match=r"the loss must stay a finite number; it is .* in epoch 1 .* Choose a smaller"):
        train(feature_examples(60), QUICK)


def test_a_checkpoint_of_other_shapes_is_named_and_nothing_is_lost(tmp_path, capsys):
    file, run = rows_file(tmp_path / "rows.jsonl", text_examples(60)), tmp_path / "run"
    assert main(["train", file, "--loss", "zlpr", "--run", str(run), "--quiet", "--no-report"]) == 0
    checkpoints = Checkpoints(run / "checkpoints")
    tensors, about = checkpoints.load("final")
    checkpoints.save("final", {**tensors, "part.body.head.bias": torch.zeros(2)}, about)
    for path in (run / "model").iterdir():
        path.unlink()
    (run / "model").rmdir()
    assert main(["train", "--resume", str(run), "--quiet"]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "the checkpoint 'final' must be one of this run" in told
    assert "'part.body.head.bias' must be torch.float32 [6]; got torch.float32 [2]" in told
    assert (run / "checkpoints" / "final.safetensors").is_file()


@pytest.mark.parametrize("kind", list(RUNS))
def test_a_checkpoint_that_lacks_its_state_is_named(kind, tmp_path):
    make, settings = RUNS[kind]

    class StoppedError(Exception):
        pass

    def stop(event):
        if event.kind == "epoch":
            raise StoppedError

    with pytest.raises(StoppedError):
        train(make(60), settings, run=tmp_path / "run", progress=stop)
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    for path in list(checkpoints.folder.glob("*.safetensors")):
        tensors, about = checkpoints.load(path.stem.removesuffix(".previous"))
        checkpoints.save(path.stem, tensors, {"going": about.get("going", True)})
    with pytest.raises(ValueError, match="must be one of this run: its state cannot be read"):
        train(make(60), settings, run=tmp_path / "run", resume=True)
