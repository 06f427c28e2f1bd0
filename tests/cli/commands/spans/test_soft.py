"""Soft labels of spans on the command line."""

from manyhot.data.spans.write import write_span_examples
from training.spans.test_soft import unsure

FLAGS = ["--hidden", 12, "--layers", 1, "--head-size", 8, "--batch-size", 8, "--learning-rate", 6e-3, "--dropout", 0]


def test_soft_spans_are_inspected_trained_measured_and_predicted(run, tmp_path):
    path = tmp_path / "soft.jsonl"
    write_span_examples(unsure(), path)
    told = run("inspect", "--task", "spans", path, "--json").json()
    assert told["soft_labels"] == 128
    assert any("above 0.5" in remark for remark in told["remarks"])
    done = run(
        "train", "--task", "spans", path, "--run", tmp_path / "run", "--epochs", 20, "--quiet", "--test", path, "--json", *FLAGS
    )
    assert done.code == 0, done.err
    assert done.json()["model"]["link"] == "soft"
    assert done.json()["test"]["spans"] == 64
    assert done.json()["test"]["scores"]["F1"] > 0.9
    found = run("predict", tmp_path / "run", "--input", "Ada Lovelace schrieb es.", "--probabilities", "--json").json()
    assert 0.5 < found["spans"][0]["probability"] < 0.9
