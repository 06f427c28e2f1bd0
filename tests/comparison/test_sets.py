"""Data sets of a grid: texts whose seeds draw their own training rows have their own words."""

import json

import pytest
import torch

from comparison.problems import SMALL
from manyhot.comparison.attempt import run_job
from manyhot.comparison.grid import LoadedSets
from manyhot.comparison.job import Job
from manyhot.comparison.methods import parse_methods
from manyhot.comparison.plan import Plan
from manyhot.comparison.sets import load_set, pair_files
from manyhot.comparison.settings import CompareSettings
from training.problems import text_examples


@pytest.fixture
def text_file(tmp_path):
    examples = text_examples(120)
    rows = [{"text": text, "labels": names} for text, names in zip(examples.texts, examples.label_sets(), strict=True)]
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_tables_of_other_vocabularies_stand_beside_each_other(text_file):
    (files,) = pair_files([str(text_file)], {})
    found = load_set(files, range(3), CompareSettings(**SMALL))
    assert len(set(found.widths)) > 1
    for place, width in enumerate(found.widths):
        (alone,) = load_set(files, [place], CompareSettings(**SMALL)).inputs
        assert found.facts(place)["num_features"] == width == alone.shape[1]
        assert torch.equal(found.inputs[place, :, :width], alone)
        assert not found.inputs[place, :, width:].any()


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_a_seed_on_texts_gives_the_same_alone_and_beside_others(text_file, model):
    settings = CompareSettings(**SMALL)
    methods = tuple(parse_methods(["zlpr+rdrop"]))
    plan = Plan(tuple(pair_files([str(text_file)], {})), (model,), methods, 3, settings)
    together = run_job(Job("texts", model, methods[0], (0, 1, 2)), plan, LoadedSets(plan), "cpu")
    assert not any("error" in record for record in together)
    alone = Plan(plan.sets, plan.models, methods, 1, settings)
    (first,) = run_job(Job("texts", model, methods[0], (0,)), alone, LoadedSets(alone), "cpu")
    for rule in ("natural", "tuned"):
        assert first["metrics"][rule] == pytest.approx(together[0]["metrics"][rule], abs=1e-4)
