"""The walk of a loss on CUDA goes one way: each stage imports from the stages below it alone."""

import ast
from pathlib import Path

import manyhot.engines.triton as triton_package

FOLDER = Path(triton_package.__file__).parent
# From the engine down to the driver.
STAGES = [
    ["engine"],
    ["labelwise", "pairs"],
    ["reductions"],
    ["replay"],
    ["calls"],
    ["plans"],
    ["launch.launcher"],
    ["launch.loading"],
    ["launch.modules"],
    ["launch.gate"],
    ["launch.direct"],
]
HEIGHT = {name: len(STAGES) - place for place, names in enumerate(STAGES) for name in names}
PREFIX = "manyhot.engines.triton."


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PREFIX.rstrip(".")):
            module = node.module.removeprefix(PREFIX.rstrip(".")).lstrip(".")
            yield from ([module] if module in HEIGHT else [f"{module}.{alias.name}".lstrip(".") for alias in node.names])


def test_each_stage_imports_from_those_below_it():
    for name, height in HEIGHT.items():
        for other in imported(FOLDER / (name.replace(".", "/") + ".py")):
            assert other not in HEIGHT or HEIGHT[other] < height, f"{name} imports {other}, which is not below it"


def test_internals_of_triton_and_the_driver_stay_in_launch():
    private = ("triton.runtime", "triton.knobs", "ctypes", "libcuda", "triton.compiler")
    for path in FOLDER.rglob("*.py"):
        if path.parent.name != "launch":
            text = path.read_text()
            assert not [word for word in private if f"import {word}" in text or f"from {word}" in text or f'"{word}' in text], (
                path
            )
