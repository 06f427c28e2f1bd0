"""Models that earlier versions saved: ``old_models`` holds what they wrote, with short weights as numbers."""

import json
from pathlib import Path

import pytest
import torch

from manyhot import load_model
from manyhot.training.run.checkpoint import pack
from manyhot.training.spans.bundle import load_span_model

OLD_MODELS = Path(__file__).parent / "old_models"


@pytest.fixture
def saved(tmp_path):
    """Writes the folder of one of the old models; weights without numbers are drawn."""

    def write(name):
        kept = json.loads((OLD_MODELS / f"{name}.json").read_text())
        generator = torch.Generator().manual_seed(0)
        tensors = {
            key: torch.tensor(each["values"], dtype=getattr(torch, each["type"])).reshape(each["shape"])
            if "values" in each
            else 0.1 * torch.randn(each["shape"], generator=generator)
            for key, each in kept["tensors"].items()
        }
        (tmp_path / kept["model"]["weights"]).write_bytes(pack(tensors, {"format": kept["model"]["format"]}))
        (tmp_path / "model.json").write_text(json.dumps(kept["model"]))
        return tmp_path

    return write


def test_a_text_model_of_the_first_version_predicts_as_it_did(saved):
    model = load_model(saved("linear-text"))
    assert model.predict(["the dog", "the cat", "nothing"]).lists()[:2] == [[1], [0]]
    assert model.label_names == ("cat", "dog")


def test_a_table_model_of_the_first_version_predicts_as_it_did(saved):
    model = load_model(saved("mlp-table"))
    rows = torch.tensor([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])
    was = torch.tensor([[0.8957, -0.8646], [-0.4400, 0.3896]])
    assert torch.allclose(model.logits(rows), was, atol=1e-3)
    assert model.settings.model == "mlp"
    assert model.inputs.names == ("p", "q", "r")


def test_a_span_model_of_the_first_version_loads(saved):
    model = load_span_model(saved("spans"))
    assert (model.settings.affixes, model.settings.skip) == (0, False)
    found = model.predict(["Ada met Bob"])
    assert len(found) == 1
    assert all(span.type == "PER" for span in found[0])


def test_a_loaded_model_of_the_first_version_can_be_saved_again(saved, tmp_path):
    model = load_model(saved("linear-text"))
    model.save(tmp_path / "again")
    again = load_model(tmp_path / "again")
    assert torch.equal(again.logits(["the dog"]), model.logits(["the dog"]))
