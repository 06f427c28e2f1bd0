"""Files that are read while kernels are compiled: the first rows show which body will be trained."""

import json
from dataclasses import replace

import pytest
import torch

from manyhot.cli.io import warmed_reading
from manyhot.cli.io.blocks import ROWS, first_block
from manyhot.cli.io.warmed_reading import read_warming
from manyhot.training.rows import choose
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.wide import warming
from manyhot.training.run import device


def written(path, rows, labels):
    lines = [json.dumps({"text": f"title {row}", "labels": [f"l{row % labels}"]}) for row in range(rows)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def warmed(monkeypatch):
    """The models that kernels are compiled for, on a machine that seems to have a GPU."""
    found = []
    for module in (device, choose):
        monkeypatch.setattr(module, "choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(warming, "warm_early", lambda settings: found.append(settings.model))
    monkeypatch.setattr(warmed_reading, "LEAST_BYTES", 100)
    return found


def test_the_first_rows_of_a_file_have_their_labels(tmp_path):
    found = first_block(written(tmp_path / "a.jsonl", ROWS + 10, 7), {})
    assert (len(found), found.num_labels, found.kind) == (ROWS, 7, "texts")
    (tmp_path / "a.csv").write_text("text,labels\nsalt,a\nbread,b\n")
    assert first_block(str(tmp_path / "a.csv"), {}) is None  # a row of a CSV file may have several lines


@pytest.mark.parametrize(("labels", "model"), [(99, "auto"), (100, "wide")])
def test_very_many_labels_in_the_first_rows_start_the_compilation(tmp_path, warmed, labels, model, monkeypatch):
    wide = replace(get_body("wide"), automatic_labels=100)
    monkeypatch.setattr(choose, "bodies_for", lambda _: [wide])
    assert read_warming(TrainSettings(), [written(tmp_path / "a.jsonl", 300, labels)]).num_labels == labels
    assert warmed == [model]


def test_a_small_file_is_not_looked_at(tmp_path, warmed, monkeypatch):
    monkeypatch.setattr(warmed_reading, "LEAST_BYTES", 1 << 20)
    monkeypatch.setattr(warmed_reading, "first_block", None)
    read_warming(TrainSettings(), [written(tmp_path / "a.jsonl", 300, 100)])
    assert warmed == ["auto"]


@pytest.mark.parametrize("given", [{"model": "wide"}, {"model": "linear"}])
def test_a_model_that_is_given_is_not_guessed(tmp_path, warmed, given):
    read_warming(TrainSettings(**given), [written(tmp_path / "a.jsonl", 50, 5)])
    assert warmed == [given["model"]]


def test_a_file_that_cannot_be_read_is_the_error_of_reading(tmp_path, warmed):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": 3}\n' * 50)
    with pytest.raises(ValueError, match=r"bad\.jsonl"):
        read_warming(TrainSettings(), [str(path)])
    assert warmed == ["auto"]
