"""Checkpoints: a damaged one is skipped, no hard links are needed, equal states give equal bytes."""

import os
import subprocess
import sys

import torch

from manyhot.training.run.checkpoint import Checkpoints, unpack

STATES = [({"weight": torch.full((50,), float(epoch))}, {"epoch": epoch}) for epoch in (1, 2, 3)]


def test_instead_of_a_damaged_checkpoint_the_previous_one_is_read(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for tensors, about in STATES[:2]:
        checkpoints.save("fit", tensors, about)
    path = tmp_path / "fit.safetensors"
    content = path.read_bytes()
    for damaged in (content[:-10], content[:5], b"", content[:-4] + b"\x00\x00\x00\x00"):
        path.unlink(missing_ok=True)
        path.write_bytes(damaged)
        tensors, about = checkpoints.load("fit")
        assert about == {"epoch": 1}
        assert torch.equal(tensors["weight"], torch.ones(50))
    assert checkpoints.load("other") is None


def test_a_damaged_checkpoint_never_replaces_the_previous_one(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for tensors, about in STATES[:2]:
        checkpoints.save("fit", tensors, about)
    (tmp_path / "fit.safetensors").write_bytes(b"cut off")
    checkpoints.load("fit")
    checkpoints.save("fit", *STATES[2])
    assert checkpoints.load("fit")[1] == {"epoch": 3}
    (tmp_path / "fit.safetensors").write_bytes(b"cut off")
    assert checkpoints.load("fit")[1] == {"epoch": 1}


def test_a_file_system_without_hard_links_is_good_enough(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    checkpoints = Checkpoints(tmp_path)
    for tensors, about in STATES:
        checkpoints.save("fit", tensors, about)
    assert checkpoints.load("fit")[1] == {"epoch": 3}


def test_a_header_that_is_no_json_object_is_a_damaged_file(tmp_path):
    from safetensors.torch import save

    for about in ("[1]", "{", "[" * 100_000):
        content = save({"weight": torch.ones(2)}, metadata={"about": about, "checksum": "0"})
        (tmp_path / "fit.safetensors").write_bytes(content)
        assert unpack(tmp_path / "fit.safetensors") is None


def test_equal_states_give_equal_bytes_in_every_process():
    script = (
        "import hashlib, torch; from manyhot.training.run.checkpoint import pack;"
        "print(hashlib.sha256(pack({c: torch.arange(3.0) for c in 'abcdefgh'}, {'x': 1})).hexdigest())"
    )
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True) for _ in range(3)]
    assert len({run.stdout for run in runs}) == 1
