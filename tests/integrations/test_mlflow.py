import mlflow
import numpy as np
import pandas
import pytest
import torch

from manyhot import Examples, SparseLabels, TrainSettings, digit_scenes, load_model, train
from manyhot.data.spans.examples import SpanExamples, TextSpan
from manyhot.integrations.mlflow import log_bundle
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans

TEXTS = ["salt the water", "slice the bread", "bread with salt", "boil the water"] * 10
LABELS = SparseLabels.from_lists([[0], [1], [0, 1], []] * 10, num_labels=2)
SMALL = TrainSettings(epochs=3, learning_rate=0.1)


@pytest.fixture
def logged(tmp_path):
    """Logs a run folder and loads it back as MLflow serves it."""
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    number = mlflow.create_experiment("test", artifact_location=str(tmp_path / "artifacts"))

    def log_and_load(folder):
        with mlflow.start_run(experiment_id=number):
            info = log_bundle(folder)
        assert not list((tmp_path / "artifacts").rglob("*.pkl")), "nothing is pickled"
        return mlflow.pyfunc.load_model(info.model_uri)

    return log_and_load


def labels_of(model, rows):
    """What the bundle itself predicts, the best label first."""
    logits = model.logits(rows)
    listed = model.predict(rows).lists()
    order = [sorted(own, key=lambda label, row=row: -float(logits[row, label])) for row, own in enumerate(listed)]
    return [[model.label_names[label] for label in own] for own in order]


def test_texts_are_answered_as_the_bundle_predicts(tmp_path, logged):
    train(Examples(LABELS, ("salt", "bread"), texts=TEXTS), TrainSettings(epochs=5), run=tmp_path / "run")
    model, bundle = logged(tmp_path / "run"), load_model(tmp_path / "run")
    wanted = labels_of(bundle, TEXTS[:4])
    for rows in (TEXTS[:4], np.array(TEXTS[:4]), pandas.DataFrame({"anything": TEXTS[:4]}), {"text": TEXTS[:4]}):
        answers = model.predict(rows)
        assert [answer["labels"] for answer in answers] == wanted
    probabilities = bundle.probabilities(TEXTS[:1])[0]
    assert answers[0]["probabilities"] == pytest.approx([float(probabilities[0])])
    assert model.predict([]) == []
    with pytest.raises(ValueError, match="must have one column"):
        model.predict(pandas.DataFrame({"a": ["x"], "b": ["y"]}))


def test_tables_are_answered_by_column_name(tmp_path, logged):
    X = np.random.default_rng(0).normal(size=(120, 3)).astype("f")
    labels = SparseLabels.from_dense(torch.tensor(np.stack([X[:, 0] > 0, X[:, 1] > 0], axis=1)))
    rows = Examples(labels, ("u", "v"), features=X, feature_names=("a", "b", "c"))
    train(rows, SMALL, run=tmp_path / "run")
    model, bundle = logged(tmp_path / "run"), load_model(tmp_path / "run")
    asked = X[:5].copy()
    asked[0, 2] = np.nan
    wanted = labels_of(bundle, asked)
    frame = pandas.DataFrame(asked, columns=list("abc"))
    for given in (frame, frame[["c", "a", "b"]], asked, asked.tolist(), frame.to_dict("list")):
        assert [answer["labels"] for answer in model.predict(given)] == wanted
    with pytest.raises(ValueError, match="must name features of the model"):
        model.predict(frame.rename(columns={"a": "z"}))


def test_images_and_spans_are_answered(tmp_path, logged):
    scenes = digit_scenes(60)
    shown = (scenes.images.clamp(0, 1) * 255).round()
    names = tuple(map(str, range(10)))
    train(Examples(SparseLabels.from_dense(scenes.labels), names, images=shown / 255), SMALL, run=tmp_path / "images")
    model, bundle = logged(tmp_path / "images"), load_model(tmp_path / "images")
    answers = model.predict(shown[:3].int().tolist())
    assert [answer["labels"] for answer in answers] == labels_of(bundle, shown[:3] / 255)

    texts = [f"{name} met Ada" for name in ("Bob", "Eve", "Kim", "Lou", "Sue")] * 6
    spans = [[TextSpan("PER", 0, 3), TextSpan("PER", 8, 11)]] * 30
    small = SpanSettings(epochs=2, layers=1, hidden=4, head_size=4, validation=0.2)
    own = train_spans(SpanExamples(texts, spans), small, run=tmp_path / "spans")
    answers = logged(tmp_path / "spans").predict(texts[:4])
    wanted = [[(span.type, span.start, span.end) for span in row] for row in own.predict(texts[:4])]
    assert [[(each["type"], each["start"], each["end"]) for each in answer["spans"]] for answer in answers] == wanted
