"""Kernels kept on disk: what is read is what was compiled, and a damaged or unwritable file costs a compilation, no more."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl

import manyhot
from manyhot import zlpr_loss
from manyhot.engines.triton import calls, half, reductions, replay
from manyhot.engines.triton.launch import launcher, loading
from manyhot.engines.triton.launch.described import Map
from manyhot.engines.triton.launch.gate import GATE
from manyhot.engines.triton.launch.launcher import Launcher
from manyhot.engines.triton.launch.loading import Machine, read, write
from manyhot.losses.core import repeats

HERE = Path(__file__).parent
PACKAGE = Path(manyhot.__file__).parent
KERNEL = Machine("toy_kernel", b"\x7fELF\n\x00code", 4, 128, ["*bf16", "i32", "constexpr"], True, [Map(3, 128, 64)])


def run_loaded(how, folder):
    command = [sys.executable, "-W", "ignore", str(HERE / "loaded.py"), how]
    env = os.environ | {"TRITON_CACHE_DIR": str(folder)}
    env.pop("TRITON_INTERPRET", None)
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.mark.slow
def test_kernels_are_compiled_once_for_all_processes(tmp_path):
    """The second process compiles nothing, and has the same machine code with the same parameters."""
    first = run_loaded("compile", tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[-1] == "4"
    assert [line.split()[-1] for line in first.stdout.splitlines()[1:8:2]] == ["True"] * 4, "they start early on Hopper"
    second = run_loaded("read", tmp_path)
    assert second.returncode == 0, second.stderr
    assert second.stdout == first.stdout


def test_a_kernel_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "new" / ("digest" + loading.SUFFIX)
    assert read(path) is None
    write(path, KERNEL)
    assert read(path) == KERNEL
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "no json", "no field", "wrong field", "folder"])
def test_a_damaged_file_is_not_read(tmp_path, damage):
    path = tmp_path / ("digest" + loading.SUFFIX)
    write(path, KERNEL)
    whole = path.read_bytes()
    damaged = {
        "cut": whole[:-1],
        "changed": whole[:-1] + b"x",
        "empty": b"",
        "no json": b"\xff" + whole,
        "no field": whole.replace(b'"warps"', b'"ward"'),
        "wrong field": whole.replace(b'"warps": 4', b'"warps": []'),
    }
    path.unlink()
    if damage == "folder":
        path.mkdir()
    else:
        path.write_bytes(damaged[damage])
    assert read(path) is None


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    write(tmp_path / "file" / ("digest" + loading.SUFFIX), KERNEL)
    assert (tmp_path / "file").read_text() == ""


def test_files_are_told_apart_by_all_that_code_depends_on(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("triton.__version__", "3.6.0")
    places = {loading._place(identity) for identity in (((9, 0), "a"), ((8, 0), "a"), ((9, 0), "b"))}
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    places.add(loading._place(((9, 0), "a")))
    monkeypatch.delenv("TRITON_DEFAULT_FP_FUSION")
    monkeypatch.setattr(loading, "_sources", lambda: "others")
    places.add(loading._place(((9, 0), "a")))
    monkeypatch.setattr("triton.__version__", "3.7.0")
    places.add(loading._place(((9, 0), "a")))
    assert len(places) == 6
    assert all(place.parent == tmp_path / "manyhot" for place in places)
    monkeypatch.setattr("triton.__version__", "3.7.0+git1234")
    assert loading._place(((9, 0), "a")) is None


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_labels", [77, 700, 20_001])
def test_tritons_launcher_is_not_needed(tmp_path, monkeypatch, num_labels, dtype):
    """Kernels are compiled, then read from disk as by another process, and give the same bits."""

    def fail(*_):
        raise AssertionError("Triton was asked to launch")

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Launcher, "_launch_with_triton", fail)
    x = torch.randn(33, num_labels, device="cuda").to(dtype).requires_grad_()
    labels = torch.rand(33, num_labels, device="cuda") < 0.1
    found = []
    for _ in range(2):
        for cache in (launcher._LAUNCHERS, replay.REPLAYS, half._STARTS, half._WRITERS, repeats.KNOWN):
            cache.clear()
        for cached in (calls._layout, reductions._totals, reductions._scale):
            cached.cache_clear()
        value = zlpr_loss(x, labels)
        found.append((value, *torch.autograd.grad(value, x)))
        monkeypatch.setattr(Launcher, "_compile", fail)
    assert not GATE.failure
    assert len(list(tmp_path.rglob("*" + loading.SUFFIX))) > 0
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
    (wanted,) = torch.autograd.grad(zlpr_loss(x, labels, engine="torch"), x)
    torch.testing.assert_close(found[0][1], wanted, rtol=2e-2 if dtype != torch.float32 else 1e-4, atol=1e-6)


def test_generated_instructions_are_part_of_tritons_cache_key():
    """A function that looks up instructions in a dictionary names their digest: Triton hashes constants, not dictionaries."""
    from triton.runtime.jit import ConstexprFunction

    found = {}
    for name in (PACKAGE / "engines").rglob("*.py"):
        text = name.read_text()
        if "constexpr_function" in text:
            module = importlib.import_module("manyhot." + ".".join(name.relative_to(PACKAGE).with_suffix("").parts))
            found |= {
                f"{module.__name__}.{key}": each for key, each in vars(module).items() if isinstance(each, ConstexprFunction)
            }
    assert len(found) > 3
    for name, function in found.items():
        assert function.cache_key
        values = [value for value, _ in function.used_global_vals.values()]
        if any(isinstance(value, dict) for value in values):
            assert any(isinstance(value, tl.constexpr) and len(str(value.value)) == 64 for value in values), name
