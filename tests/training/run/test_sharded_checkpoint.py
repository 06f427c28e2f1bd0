"""Checkpoints that several processes write: any number of processes reads them, and damaged ones are skipped."""

import json

import pytest
import torch
from torch.distributed.tensor import DTensor

from manyhot._files import StorageError
from manyhot.heads.mesh import LabelMesh, local
from manyhot.training.run.processes import Processes, process_mesh
from manyhot.training.run.sharded_checkpoint import ShardedCheckpoints
from training.run.process_runs import in_processes

NUM_LABELS = 5


def whole_state(number):
    """What all processes have together: a table by labels, a word of each label, and what is the same everywhere."""
    table = torch.arange(NUM_LABELS * 3.0).reshape(NUM_LABELS, 3) + 100 * number
    return {
        "table": table.to(torch.bfloat16),
        "bias": table[:, 0].clone(),
        "step": torch.tensor(number),
        "random": torch.arange(7, dtype=torch.uint8),
        "nothing": torch.zeros(0, 2),
    }


def divided(state):
    """The same with what belongs to labels divided, where processes are joined."""
    mesh = process_mesh("cpu")
    if mesh is None:
        return state
    labels = LabelMesh(mesh, NUM_LABELS)
    return {
        name: labels.distribute(labels.own(each).clone()) if name in ("table", "bias") else each for name, each in state.items()
    }


def save_twice(rank, folder):
    checkpoints = ShardedCheckpoints(folder, Processes.current())
    for number in (1, 2):
        checkpoints.save("fit", divided(whole_state(number)), {"number": number})


def check_loaded(rank, folder, number):
    wanted = divided(whole_state(number))
    tensors, about = ShardedCheckpoints(folder, Processes.current()).load(
        "fit", lambda: {name: torch.zeros_like(each) for name, each in wanted.items()}
    )
    assert about == {"number": number}
    assert tensors.keys() == wanted.keys()
    for name, each in wanted.items():
        assert isinstance(tensors[name], DTensor) == isinstance(each, DTensor)
        assert torch.equal(local(tensors[name]), local(each)), name


@pytest.fixture(scope="module")
def by_four(tmp_path_factory):
    """Saved by four processes, of which the last one has no label."""
    folder = tmp_path_factory.mktemp("saved")
    assert in_processes(save_twice, folder, count=4) == [0] * 4
    return folder


def copied(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.mark.parametrize("count", [2, 3, 4])
def test_what_four_processes_saved_is_loaded_by_another_number(count, by_four):
    assert in_processes(check_loaded, by_four, 2, count=count) == [0] * count


def test_one_process_loads_it_and_what_one_saves_is_loaded_by_two(by_four, tmp_path):
    check_loaded(0, by_four, 2)
    save_twice(0, tmp_path)
    assert in_processes(check_loaded, tmp_path, 2) == [0, 0]


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "index", "no index"])
def test_instead_of_a_damaged_state_the_previous_one_is_loaded(damage, by_four, tmp_path):
    folder = copied(by_four, tmp_path)
    path = folder / ("fit.index.json" if "index" in damage else "fit.1.1.safetensors")
    content = path.read_bytes()
    if damage in ("gone", "no index"):
        path.unlink()
    else:
        path.write_bytes(content[:-5] if damage in ("cut", "index") else content[:-1] + bytes([content[-1] ^ 1]))
    assert in_processes(check_loaded, folder, 1) == [0, 0]
    checkpoints = ShardedCheckpoints(folder, Processes())
    checkpoints.save("fit", whole_state(3), {"number": 3})
    check_loaded(0, folder, 3)
    (folder / "fit.2.0.safetensors").unlink()
    check_loaded(0, folder, 1)


def test_files_that_no_state_needs_are_removed(tmp_path):
    checkpoints = ShardedCheckpoints(tmp_path, Processes())
    for number in range(5):
        checkpoints.save("fit", whole_state(number), {"number": number})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "fit.3.0.safetensors", "fit.4.0.safetensors", "fit.index.json", "fit.previous.index.json"
    ]  # fmt: skip
    assert json.loads((tmp_path / "fit.index.json").read_text())["tensors"]["table"]["dtype"] == "bfloat16"


def test_without_a_state_nothing_is_loaded_and_a_tensor_of_another_shape_is_read_whole(tmp_path):
    checkpoints = ShardedCheckpoints(tmp_path, Processes())
    assert checkpoints.load("fit") is None
    checkpoints.save("fit", whole_state(1), {})
    tensors, _ = checkpoints.load("fit", lambda: {"bias": torch.zeros(2)})
    assert torch.equal(tensors["bias"], whole_state(1)["bias"])


def test_a_folder_that_cannot_be_written_is_an_error_with_its_name(tmp_path):
    with pytest.raises(StorageError, match="gone"):
        ShardedCheckpoints(tmp_path / "gone", Processes()).save("fit", whole_state(1), {})
