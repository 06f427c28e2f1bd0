"""Soft labels train: from examples, by smoothing and from a teacher, on every body."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyhot.data.examples import Examples
from manyhot.data.read import read_examples
from manyhot.evaluation import evaluate
from manyhot.labels.sparse import SparseLabels
from manyhot.labels.split import stratified_split
from manyhot.report.run.measure import learning_curves
from manyhot.training.rows.choose import log_odds, starting_scores
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import feature_examples, image_examples, same_weights, text_examples

QUICK = TrainSettings(epochs=12, batch_size=32, hidden=32, learning_rate=0.02, threads=1)
BODIES = [
    pytest.param(text_examples, TrainSettings(threads=1, batch_size=16), id="linear-text"),
    pytest.param(text_examples, replace(QUICK, model="bag"), id="bag-text"),
    pytest.param(feature_examples, replace(QUICK, epochs=30), id="mlp-dense"),
    pytest.param(lambda **k: feature_examples(as_sparse=True, **k), replace(QUICK, model="mlp", epochs=30), id="mlp-sparse"),
    pytest.param(image_examples, replace(QUICK, epochs=6), id="conv"),
]


def softened(examples, low=0.1, high=0.9):
    """The same rows with labels of 0.9 and 0.1."""
    dense = examples.labels.dense(torch.float32)
    return replace(examples, labels=SparseLabels.from_dense(low + (high - low) * dense))


@pytest.mark.parametrize(("make", "settings"), BODIES)
def test_every_body_learns_from_soft_labels(make, settings):
    model = train(softened(make(seed=0)), settings)
    assert model.link == "soft"
    hard, soft = make(seed=1), softened(make(seed=1))
    found = evaluate(model, soft)
    assert found["micro-F1"] > 0.8
    assert found == evaluate(model, hard)
    # What it learns is 0.9 and 0.1, and it says so.
    probs = model.probabilities(hard)
    truth = hard.labels.dense()
    assert 0.6 < float(probs[truth].mean()) < 0.95
    assert 0.05 < float(probs[~truth].mean()) < 0.25


def test_the_values_of_soft_labels_count():
    model = [train(softened(feature_examples(), high=high), replace(QUICK, epochs=3)) for high in (0.9, 0.8)]
    assert not same_weights(*model)


def test_a_resumed_run_notes_other_soft_labels(tmp_path):
    settings = replace(QUICK, epochs=2)
    train(softened(feature_examples()), settings, run=tmp_path / "run")
    with pytest.raises(ValueError, match="the data changed"):
        train(softened(feature_examples(), high=0.8), settings, run=tmp_path / "run", resume=True)


def many_label_examples(rows=1500, labels=60, seed=0):
    """Texts whose words say their labels with some noise: the default body, many labels."""
    draw = np.random.default_rng(seed)
    truth = draw.random((rows, labels)) < 2 / labels
    texts = []
    for row in truth:
        said = [f"w{place}" for place in np.flatnonzero(row) if draw.random() < 0.9]
        said += [f"w{place}" for place in draw.integers(0, labels, 1)] if draw.random() < 0.3 else []
        texts.append(" ".join([*said, *(f"noise{n}" for n in draw.integers(0, 300, 8))]))
    return Examples(SparseLabels.from_dense(torch.from_numpy(truth)), tuple(map(str, range(labels))), texts=texts)


def test_smoothing_does_not_wreck_the_default_text_model():
    train_rows, test_rows = many_label_examples(), many_label_examples(seed=1)
    found = [
        evaluate(train(train_rows, TrainSettings(smoothing=share, threads=1)), test_rows, ["micro-F1", "AvgPrec"])
        for share in (0.0, 0.1)
    ]
    for metric in ("micro-F1", "AvgPrec"):
        assert found[1][metric] > found[0][metric] - 0.02


def test_biases_start_where_the_smoothed_labels_are():
    labels = SparseLabels.from_lists([[0], [0], [0, 1], [0]] * 25, num_labels=3)
    odds = log_odds(labels, None)
    assert torch.equal(starting_scores(TrainSettings(), labels, None, link="hard"), odds)
    start = starting_scores(TrainSettings(smoothing=0.2), labels, None, link="soft")
    torch.testing.assert_close((2 * start).sigmoid(), odds.sigmoid() * 0.8 + 0.1)
    start = starting_scores(TrainSettings(loss="bce", flip=0.2), labels, None, link="hard")
    torch.testing.assert_close(start.sigmoid(), odds.sigmoid() * 0.8 + 0.1)


def test_a_teacher_s_probabilities_become_the_labels(tmp_path):
    examples = text_examples()
    settings = TrainSettings(threads=1, batch_size=16)
    teacher = train(examples, settings)
    teacher.save(tmp_path / "teacher")
    # Labels that say nothing: all there is to learn comes from the teacher.
    empty = replace(examples, labels=SparseLabels.from_lists([[]] * len(examples), num_labels=6))
    folder = str(tmp_path / "teacher")
    student = train(empty, replace(settings, teacher=folder, teacher_share=1.0))
    assert student.link == "soft"
    test = text_examples(seed=1)
    assert evaluate(student, test, ["AvgPrec"])["AvgPrec"] > 0.9
    assert not same_weights(student, train(empty, replace(settings, teacher=folder, teacher_share=0.5)))
    assert (student.probabilities(test) - teacher.probabilities(test)).abs().mean() < 0.05


def test_a_teacher_must_know_the_labels_and_give_probabilities(tmp_path):
    train(feature_examples(), replace(QUICK, epochs=1, loss="pairwise")).save(tmp_path / "ranks")
    with pytest.raises(ValueError, match="`teacher` must give probabilities"):
        train(feature_examples(), replace(QUICK, teacher=str(tmp_path / "ranks")))
    other = replace(feature_examples(), label_names=tuple("abcx"))
    train(other, replace(QUICK, epochs=1)).save(tmp_path / "other")
    with pytest.raises(ValueError, match="`teacher` must know all labels of the examples"):
        train(feature_examples(), replace(QUICK, teacher=str(tmp_path / "other")))
    with pytest.raises(ValueError, match="`teacher_share` must go with `teacher`"):
        TrainSettings(teacher_share=0.2)


def test_a_run_with_another_teacher_is_not_resumed(tmp_path):
    examples, settings = feature_examples(), replace(QUICK, epochs=1)
    train(examples, settings).save(tmp_path / "teacher")
    taught = replace(settings, teacher=str(tmp_path / "teacher"))
    train(examples, taught, run=tmp_path / "run")
    train(examples, replace(settings, seed=1)).save(tmp_path / "teacher")
    with pytest.raises(ValueError, match="the data changed"):
        train(examples, taught, run=tmp_path / "run", resume=True)


def wide_examples(rows=500, seed=0):
    """Dense features with labels that a few of them say, and noise: large steps do not settle on soft labels."""
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(rows, 40)).astype(np.float32)
    weights = np.random.default_rng(9).normal(size=(40, 8))
    truth = features @ weights + 4 * draw.normal(size=(rows, 8)) > 6
    return Examples(SparseLabels.from_dense(torch.from_numpy(truth)), tuple("abcdefgh"), features=features)


@pytest.mark.parametrize("given", [{"smoothing": 0.1}, {"mixup": 0.4}, {"flip": 0.1}, {}], ids=str)
def test_soft_labels_are_fitted_with_the_step_that_is_best_on_held_out_rows(given, tmp_path):
    told = []
    settings = TrainSettings(epochs=8, hidden=16, threads=1, members=1, **given)
    model = train(wide_examples(), settings, run=tmp_path / "run", progress=told.append)
    fits = {event.extra["fit"]: event.extra["learning_rate"] for event in told if event.kind == "epoch"}
    chosen = [event.extra["final"] for event in told if "final" in event.extra]
    curves = {curve["fit"] for curve in learning_curves(tmp_path / "run" / "metrics.jsonl")}
    assert "final" in curves
    if not given:
        assert (list(fits), chosen) == (["final"], [])
        return
    assert list(fits) == ["step-1", "step-0.33", "step-0.1"]
    assert curves == {"final", *fits} - set(chosen)
    assert model.about["learning_rate"] == pytest.approx(fits[chosen[0]])
    assert fits["step-0.33"] == pytest.approx(fits["step-1"] / 3)


def test_the_first_of_several_fits_chooses_the_step_for_all():
    told = []
    settings = TrainSettings(epochs=3, hidden=8, threads=1, members=3, smoothing=0.1)
    train(wide_examples(), settings, progress=told.append)
    fits = list(dict.fromkeys(event.extra["fit"] for event in told if event.kind == "epoch"))
    assert fits == ["step-1", "step-0.33", "step-0.1", "member-1", "final"]
    assert sum("is best on held-out rows" in event.message for event in told) == 1


def test_a_learning_rate_that_is_given_is_the_only_one():
    told = []
    settings = TrainSettings(epochs=2, hidden=8, members=1, smoothing=0.1, learning_rate=0.01)
    train(wide_examples(), settings, progress=told.append)
    assert {event.extra["fit"] for event in told if event.kind == "epoch"} == {"final"}


@pytest.mark.slow
def test_smoothing_costs_an_mlp_less_than_a_point_on_scenes(data_folder):
    folder = data_folder / "scene"
    rows = read_examples(folder / "scene-train.arff.gz", label_file=folder / "scene.xml")
    gains = []
    for seed in range(4):
        kept, held = stratified_split(rows.labels, test_size=1 / 3, seed=seed)
        models = [
            train(rows[kept.numpy()], TrainSettings(smoothing=share, seed=seed, threads=1, members=1)) for share in (0.0, 0.1)
        ]
        hard, smoothed = (evaluate(model, rows[held.numpy()], ["micro-F1"])["micro-F1"] for model in models)
        gains.append(smoothed - hard)
    assert np.mean(gains) > -0.01
