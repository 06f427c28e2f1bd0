import re

import pytest

from manyhot import Examples, SparseLabels, TrainSettings, evaluate, train
from manyhot.integrations.tracking import Tracking

TEXTS = ["salt the water", "slice the bread", "bread with salt", "boil the water"] * 10


def run(tracking, report):
    labels = SparseLabels.from_lists([[0], [1], [0, 1], []] * 10, num_labels=2)
    rows = Examples(labels, ("salt", "bread"), texts=TEXTS)
    settings = TrainSettings(epochs=3, metric="micro-F1", loss="zlpr")
    tracking.settings(settings.to_dict())
    model = train(rows, settings, progress=tracking)
    scores = evaluate(model, rows, ["micro-F1", "P@1"])
    tracking.finish(scores, report=report)
    return scores


def test_mlflow_gets_epochs_metrics_settings_and_the_report(tmp_path):
    import mlflow

    report = tmp_path / "report.html"
    report.write_text("<p>report</p>")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    mlflow.create_experiment("test", artifact_location=str(tmp_path / "artifacts"))
    mlflow.set_experiment("test")
    with mlflow.start_run() as active:
        scores = run(Tracking.mlflow(mlflow), report)
    found = mlflow.get_run(active.info.run_id).data
    assert found.metrics["test/P_at_1"] == pytest.approx(scores["P@1"])
    assert "loss" in found.metrics
    assert found.params["epochs"] == "3"
    client = mlflow.MlflowClient()
    assert len(client.get_metric_history(active.info.run_id, "loss")) >= 3
    assert [each.path for each in client.list_artifacts(active.info.run_id)] == ["report.html"]


def test_weights_and_biases_get_the_same(tmp_path, capfd):
    import wandb

    report = tmp_path / "report.html"
    report.write_text("<p>report</p>")
    with wandb.init(project="manyhot", dir=str(tmp_path), mode="offline") as active:
        scores = run(Tracking.wandb(active), report)
        assert active.config["epochs"] == 3
    assert re.search(rf"test/P@1\s+{scores['P@1']}", capfd.readouterr().err)
    assert list(tmp_path.rglob("files/**/report.html"))


def test_numbers_that_are_none_are_left_out():
    seen = []
    Tracking(lambda metrics, step: seen.append((step, metrics))).finish({"micro-F1": float("nan"), "P@1": 0.5})
    assert seen == [(1, {"test/P@1": 0.5})]


def test_a_report_that_is_not_there_is_named(tmp_path):
    tracking = Tracking(lambda *_: None, log_file=lambda *_: None)
    with pytest.raises(ValueError, match="must be a file or folder"):
        tracking.finish({}, report=tmp_path / "none.html")
