"""Every kernel compiles for every generation of devices and fits there; ``python offline.py CAPABILITY`` tries more shapes."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton.engine import interpreted

CALLS = ("64x20 bfloat16 hard", "64x4096 float16 hard", "512x20001 float32 lists", "64x131072 float16 lists again")
CALLS += ("64x4271 bfloat16 dice", "64x4271 float32 rdrop", "64x4271 bfloat16 focal lists")
CALLS += ("bits", "factor", "long rows", "segments", "rows", "ranks", "typed spans", "shared spans", "linear, terms kept")
CALLS += ("tiles, sums", "tiles, terms", "tiles, gradient")
CALLS += (
    "linear, nothing kept",
    "update",
    "best labels",
    "counts",
    "counts, dense",
    "listing",
    "lowest score",
    "common cut",
    "column best",
    "segments of labels",
    "table",
    "bag",
)
# What takes most registers and shared memory, for generations between two others that try everything.
LARGEST = ("64x4096 float16 hard", "512x20001 float32 lists", "64x4271 float32 rdrop", "typed spans", "shared spans")
KERNELS = Path(triton_engine.__file__).parent
OFFLINE = Path(__file__).with_name("offline.py")


def kernels():
    """The names of all kernels of the engines: what is compiled by itself is called so."""
    nodes = (node for path in KERNELS.rglob("*.py") for node in ast.walk(ast.parse(path.read_text())))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel")]
    return {node.name for node in functions if "triton.jit" in map(_name, node.decorator_list)}


def _name(decorator):
    return ast.unparse(decorator).split("(")[0]


def compiled(capability, calls, folder):
    """What the kernels of the calls take, by line."""
    env = os.environ | {"TRITON_CACHE_DIR": str(folder), "TRITON_DEFAULT_FP_FUSION": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(OFFLINE.parents[2]), *sys.path])
    done = subprocess.run([sys.executable, OFFLINE, str(capability), *calls], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return {
        line: {key: int(value) for key, value in (part.split("=") for part in line.split() if "=" in part)}
        for line in done.stdout.splitlines()
    }


@pytest.mark.slow
@pytest.mark.skipif(interpreted(), reason="this is the interpreter")
@pytest.mark.parametrize("capability", [80, 86, 89, 90, 100, 120])
def test_the_kernels_compile_for_a_device_that_is_not_there_and_fit(capability, tmp_path):
    pytest.importorskip("triton")
    from engines.triton.offline import LIMITS

    everything = capability in (80, 90, 120)
    found = compiled(capability, CALLS if everything else LARGEST, tmp_path)
    tried = {line.split(" registers=")[0].split()[-1] for line in found}
    assert tried == kernels() if everything else tried < kernels()
    threads, registers, shared = LIMITS[capability]
    for line, taken in found.items():
        assert taken["threads"] <= threads, line
        assert taken["threads"] * taken["registers"] <= registers, line
        assert taken["shared"] <= shared, line
        assert taken["local"] == 0, line
        assert taken["stack"] <= 128, line  # spilled registers, in the part for extreme scores


@pytest.mark.slow
@pytest.mark.skipif(interpreted(), reason="this is the interpreter")
@pytest.mark.parametrize("form", ["bfloat16 hard", "float32 lists"])
def test_shapes_that_differ_only_in_the_number_of_rows_share_a_kernel(form, tmp_path):
    pytest.importorskip("triton")
    for num_labels, rows in ((20, (1, 64, 101, 70_001)), (4096, (64, 101))):
        found = compiled(90, [f"{count}x{num_labels} {form}" for count in rows], tmp_path)
        assert len(found) == len(rows)
        assert len({taken["kernel"] for taken in found.values()}) == 1
