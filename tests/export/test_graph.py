"""Which models become a graph, and which are refused with a reason."""

import copy

import pytest
import torch

from manyhot.engines.native import tree as native
from manyhot.export.graph import ModelGraph
from manyhot.export.huggingface_folder import export_huggingface
from manyhot.export.plain_weights import export_weights
from manyhot.training.rows.bodies.registry import BODIES
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import title_examples


@pytest.mark.skipif(not native.available()[0], reason="trees are fitted by the native engine")
def test_a_label_tree_is_refused_by_every_target_with_the_reason(tmp_path):
    examples = title_examples()
    model = train(examples, TrainSettings(model="tree", epochs=2, threads=1))
    for export in (
        lambda: ModelGraph(model),
        *(lambda write=write: write(model, tmp_path / "out", rows=examples) for write in (export_weights, export_huggingface)),
    ):
        with pytest.raises(ValueError, match=r"'tree' cannot be exported: each row takes its own path.*Use manyhot serve"):
            export()
    assert not (tmp_path / "out").exists()


def test_a_head_in_bfloat16_is_refused_with_the_reason(trained):
    model = copy.copy(trained["wide"][0])
    model.body = copy.deepcopy(model.body)
    model.body.head.weight = torch.nn.Parameter(model.body.head.weight.bfloat16())
    with pytest.raises(ValueError, match=r"numbers in torch.bfloat16, which onnxruntime does not multiply on a CPU"):
        ModelGraph(model)


def test_every_body_is_exported_or_says_why_not(trained):
    tried = {model.shape["body"] for model, _ in trained.values()} | {"encoder", "classifier"}
    assert {name for name, body in BODIES.items() if not body.no_export} == tried
    for model, _ in trained.values():
        assert ModelGraph(model).outputs[-1] == "decisions"
