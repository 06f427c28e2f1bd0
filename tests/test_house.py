"""The house in order: imports go down the ladder, public names are frozen, importing is cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import manyhot

SOURCE = Path(manyhot.__file__).parent

# From the ground up. A room imports from its own rung's room or from lower rungs.
LADDER = [
    ["_checks", "_files"],
    ["labels"],
    ["kernels"],
    ["losses"],
    ["scores"],
    ["heads"],
    ["calibrate"],
    ["links", "decide", "decode_spans"],
    ["metrics"],
    ["cuts"],
    ["tune"],
    ["data"],
    ["train"],
    ["evaluate"],
    ["compare"],
    ["report"],
    ["estimator"],
    ["cli"],
]
RUNG = {room: height for height, rooms in enumerate(LADDER) for room in rooms}


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the ladder"
            names = [node.module or ""]
            if node.module == "manyhot":
                names = [f"manyhot.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("manyhot.")}
    return rooms


MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_the_ladder(path):
    own = room_of(path)
    assert own in RUNG, f"{own} has no rung: add it to LADDER"
    for room in imported_rooms(path) - {own}:
        assert RUNG[room] < RUNG[own], f"{path.name} in {own} imports {room}, which is not below it"


def test_no_room_without_a_name():
    nameless = {"utils", "util", "helpers", "helper", "common", "misc", "base"}
    assert not [path for path in MODULES if path.stem in nameless or path.parent.name in nameless]


def test_public_names_are_frozen():
    frozen = (Path(__file__).parent / "public_names.txt").read_text().split()
    assert sorted(manyhot.__all__) == sorted(frozen), "a public name changed: say so in CHANGELOG.md and public_names.txt"
    for name in manyhot.__all__:
        assert getattr(manyhot, name) is not None


@pytest.mark.parametrize("name", [n for n in manyhot.__all__ if callable(getattr(manyhot, n))])
def test_public_names_are_documented_with_an_example(name):
    thing = getattr(manyhot, name)
    assert thing.__doc__, name
    documented_by_others = {"LossInfo", "LazyScores", "DigitScenes", "MetricInfo", "Inspection", "TrainedModel"}
    documented_by_others |= {"Span", "CharacterSpan", "DataError", "TextSpan", "FoundSpan", "TrainedSpanModel"}
    if name not in documented_by_others:
        assert ">>>" in thing.__doc__, f"{name} has no example that runs"


def test_importing_loads_torch_and_nothing_optional():
    optional = ["sklearn", "scipy", "torchmetrics", "triton", "transformers", "pyarrow", "matplotlib", "typer", "pandas"]
    script = (
        "import sys, torch; before = set(sys.modules); import manyhot;"
        f"print([m for m in {optional} if m in set(sys.modules) - before])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
