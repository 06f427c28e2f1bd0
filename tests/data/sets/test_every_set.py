"""As a new user would: ``manyhot inspect`` and ``manyhot train`` on every real set with nothing but its file."""

import json

import pytest
import torch
from typer.testing import CliRunner

from manyhot.cli.main import app

# set: training file, test file, and a micro-F1 on test rows well below what was reached: it tells a broken run, not a good one
SMALL = {
    "flags": ("flags-train.arff.gz", "flags-test.arff.gz", 0.6),
    "emotions": ("emotions-train.arff.gz", "emotions-test.arff.gz", 0.55),
    "scene": ("scene-train.arff.gz", "scene-test.arff.gz", 0.6),
    "yeast": ("yeast-train.arff.gz", "yeast-test.arff.gz", 0.55),
    "birds": ("birds-train.arff.gz", "birds-test.arff.gz", 0.2),
    "medical": ("medical-train.arff.gz", "medical-test.arff.gz", 0.6),
    "enron": ("enron-train.arff.gz", "enron-test.arff.gz", 0.45),
}
# set: file, kind of input, rows, labels in it
INSPECTED = {
    "flags": ("flags-train.arff.gz", "features", 129, 7),
    "emotions": ("emotions-train.arff.gz", "features", 391, 6),
    "scene": ("scene-train.arff.gz", "features", 1211, 6),
    "yeast": ("yeast-train.arff.gz", "features", 1500, 14),
    "birds": ("birds-train.arff.gz", "features", 322, 19),
    "medical": ("medical-train.arff.gz", "features", 333, 45),
    "enron": ("enron-train.arff.gz", "features", 1123, 53),
    "bibtex": ("bibtex-test.arff.gz", "features", 2515, 159),
    "cal500": ("cal500.arff.gz", "features", 502, 174),
    "corel5k": ("Corel5k-train-sparse.arff.gz", "features", 4500, 374),
    "delicious": ("delicious-test.arff.gz", "features", 3185, 983),
    "cooking_stackexchange": ("cooking.stackexchange.txt.gz", "texts", 15404, 736),
    "goemotions": ("train.tsv.gz", "texts", 43410, 28),
    "eurlex57k": ("dev.jsonl.xz", "texts", 6000, None),
}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def answer(*arguments):
    ended = CliRunner().invoke(app, [str(each) for each in arguments])
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout)


@pytest.mark.parametrize("name", INSPECTED)
def test_inspect_understands_the_file_alone(data_folder, name):
    file, kind, rows, labels = INSPECTED[name]
    found = answer("inspect", data_folder / name / file, "--json")
    assert (found["kind"], found["rows"]) == (kind, rows)
    assert found["labels"]["labels"] == labels or labels is None
    assert [each["num_problems"] for each in found["files"]] == [0]


@pytest.mark.parametrize("name", SMALL)
def test_train_ends_in_a_model_that_has_learned(data_folder, tmp_path, name):
    train, test, least = SMALL[name]
    folder = data_folder / name
    found = answer("train", folder / train, "--test", folder / test, "--run", tmp_path / "run", "--json")
    assert found["test"]["micro-F1"] > least
    assert found["test"]["empty"] < 0.6
