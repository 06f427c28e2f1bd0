"""Labels divided among processes: the weights are those of one process, to rounding, and a run goes on with any number."""

import shutil
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from manyhot import evaluate, load_model
from manyhot.heads.mesh import LabelMesh
from manyhot.training.rows.bodies.wide import BodyElsewhere, WideBody
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from manyhot.training.rows.wide import phase as wide_phase
from manyhot.training.run.processes import ProcessesError, process_mesh
from scores.scale_page import formulas
from training.problems import same_weights, title_examples
from training.run.process_runs import in_processes, train_until_epoch

# On the CPU: a machine may have fewer GPUs than a test has processes.
WIDE = TrainSettings(
    loss="zlpr", model="wide", learning_rate=0.1, hidden=16, epochs=5, batch_size=32, threads=1, dropout=0.1, device="cpu"
)
# Sums over labels in another order, in float32, over 50 steps.
BOUND = {"rtol": 1e-4, "atol": 1e-5}
METRICS = ("micro-F1", "P@3", "PSP@3")


def examples():
    """41 labels: shards of 21 and 20, or 11, 11, 11 and 8."""
    return title_examples(300, num_labels=41)


def divided(count, **changed):
    return replace(WIDE, label_shards=count, **changed)


def held_bytes(bodies):
    """Bytes of the tables of this process, with the state of AdaGrad."""
    tables = [each for body in bodies for each in (body.first.weight, body.first.squares)]
    heads = [each.to_local() for body in bodies for each in body.head.state_dict().values() if isinstance(each, DTensor)]
    return sum(each.numel() * each.element_size() for each in (*tables, *heads))


def train_and_compare(rank, folder, settings, options):
    """Train in a run folder; the word vectors must be the same on all processes bit by bit, and the first has the model."""
    parts = []

    def noted(body):
        parts.append(body.first.weight.detach().clone())
        assert len(body.head.weight.to_local()) < 41
        return assembled(body)

    def counted(bodies):
        width, memory = bodies[0].first.weight.shape[0], formulas()["wide_memory"]
        if rank == 0:
            assert held_bytes(bodies) == memory(41, width, settings.hidden, dist.get_world_size(), width=4)
        return finished(bodies)

    assembled, wide_phase.assembled = wide_phase.assembled, noted
    finished, wide_phase.finished = wide_phase.finished, counted
    model = train(examples(), settings, run=folder / "run", **options)
    every = [torch.empty_like(parts[0]) for _ in range(dist.get_world_size())]
    dist.all_gather(every, parts[0])
    assert all(torch.equal(each, every[0]) for each in every)
    if rank == 0:
        assert model.predict(examples()[:5]).lists() == load_model(folder / "run").predict(examples()[:5]).lists()
        return
    assert isinstance(model.body, BodyElsewhere)
    for use in (lambda: model.predict(examples()[:5]), lambda: model.save(folder / "other")):
        with pytest.raises(ProcessesError, match="must be used in the first process"):
            use()


CASES = {
    "plain": ({}, False),
    # Decoupled softmax.
    "usual loss": ({"loss": "auto"}, False),
    "weighted": ({"propensity_weights": True, "smoothing": 0.05}, False),
    "learned threshold": ({"learn_threshold": True}, True),
}


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", list(CASES))
def test_divided_labels_give_the_weights_of_one_process(name, count, tmp_path):
    changed, validated = CASES[name]
    options = {"validation": examples()[:50]} if validated else {}
    alone = train(examples(), replace(WIDE, **changed), **options)
    assert in_processes(train_and_compare, tmp_path, divided(count, **changed), options, count=count) == [0] * count
    model = load_model(tmp_path / "run")
    mine, other = model.body.state_dict(), alone.body.state_dict()
    assert mine.keys() == other.keys()
    assert model.shape == alone.shape
    for key, each in other.items():
        torch.testing.assert_close(mine[key], each, **BOUND)
    assert model.rule.threshold == pytest.approx(alone.rule.threshold, abs=1e-4)
    assert evaluate(model, examples(), METRICS) == pytest.approx(evaluate(alone, examples(), METRICS), abs=1e-3)


def test_a_run_that_ends_early_goes_on_with_one_and_with_three_processes(tmp_path):
    settings = divided(2, checkpoint_seconds=0.0)
    assert in_processes(train_until_epoch, tmp_path / "whole", examples(), settings, -1) == [0, 0]
    assert in_processes(train_until_epoch, tmp_path / "broken", examples(), settings, 3) == [7, 7]
    whole = load_model(tmp_path / "whole")
    for count in (1, 2, 3):
        run = shutil.copytree(tmp_path / "broken", tmp_path / f"by{count}")
        own = replace(settings, label_shards=count)
        assert in_processes(train_until_epoch, run, examples(), own, -1, count=count) == [0] * count
        model = load_model(run)
        assert not (run / "checkpoints" / "final.safetensors").exists(), "each process saves its part"
        for key, each in whole.body.state_dict().items():
            torch.testing.assert_close(model.body.state_dict()[key], each, **BOUND)
        if count == 2:
            assert same_weights(model, whole)
    with pytest.raises(ValueError, match="`label_shards` was 2, now 0"):
        train(examples(), replace(settings, label_shards=0), run=tmp_path / "broken", resume=True)


def check_first_weights(rank, hidden, labels, kind):
    torch.manual_seed(3)
    alone = WideBody(7, labels, hidden=hidden, head=kind, dropout=0.0, moves=True)
    after = torch.get_rng_state()
    torch.manual_seed(3)
    body = WideBody(7, labels, hidden=hidden, head=kind, dropout=0.0, moves=True, mesh=process_mesh("cpu"))
    shard = LabelMesh(process_mesh("cpu"), labels)
    assert torch.equal(body.first.weight, alone.first.weight)
    assert torch.equal(body.head.weight.to_local(), shard.own(alone.head.weight))
    assert torch.equal(torch.get_rng_state(), after)


@pytest.mark.parametrize(("hidden", "labels", "kind"), [(5, 9001, "float32"), (3, 3, "float32"), (7, 12291, "bfloat16")])
def test_the_first_weights_are_those_of_a_body_with_all_labels_bit_by_bit(hidden, labels, kind):
    assert in_processes(check_first_weights, hidden, labels, kind, count=2) == [0, 0]
