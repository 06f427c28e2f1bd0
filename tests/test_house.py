"""The house in order: imports go down the ladder, public names are frozen, importing is cheap."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import api_page
import manyhot
import public_names
from manyhot._doors import read_stub

SOURCE = Path(manyhot.__file__).parent

# From the ground up. A rung holds rooms, or parts of rooms ("decisions.tune"); the longest name that fits a module is its
# rung's. A module imports from its own rung's room or from lower rungs.
LADDER = [
    ["_suggest"],
    ["_checks", "_cores", "_doors", "_files", "_sparse"],
    ["labels"],
    ["engines"],
    ["losses"],
    ["scores"],
    ["heads"],
    ["decisions.calibration"],
    ["decisions.calibrate"],
    ["decisions"],
    ["metrics"],
    ["decisions.tuning"],
    ["decisions.tune"],
    ["data"],
    ["explain"],
    ["training.run"],
    ["training"],
    ["predictor"],
    ["evaluation"],
    ["curation"],
    ["comparison"],
    ["report"],
    ["export"],
    ["serve"],
    ["targets"],
    ["_classifier_file"],
    ["estimator"],
    ["integrations"],
    ["cli"],
    ["__main__"],
]
RUNG = {room: height for height, rooms in enumerate(LADDER) for room in rooms}


def rung_of(module: str) -> str:
    """The longest entry of the ladder that is the module or a package around it."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in RUNG:
            return ".".join(parts[:length])
    raise AssertionError(f"{module} has no rung: add its room to LADDER")


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the ladder"
            found = [node.module or ""]
            if (SOURCE.parent / Path(*found[0].split("."))).is_dir():
                found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        else:
            continue
        modules |= {name.removeprefix("manyhot.") for name in found if name.startswith("manyhot.")}
    return modules


MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
# A package's __init__ is its door: it exports what the package holds, whatever rung the parts are on.
ROOMS = [path for path in MODULES if path.name != "__init__.py"]


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_the_ladder(path):
    own = rung_of(module_of(path))
    for module in imported_modules(path):
        other = rung_of(module)
        assert other == own or RUNG[other] < RUNG[own], f"{path.name} in {own} imports {module}, which is not below it"


def test_no_room_without_a_name():
    nameless = {"utils", "util", "helpers", "helper", "common", "misc", "base"}
    assert not [path for path in MODULES if path.stem in nameless or path.parent.name in nameless]


def test_the_top_has_every_name_of_the_packages_it_shows_whole():
    assert read_stub(public_names.STUB) == public_names.top_names(), "run python tests/public_names.py"


def test_public_names_are_frozen():
    frozen = public_names.FROZEN.read_text().split()
    assert sorted(manyhot.__all__) == sorted(frozen), "a public name changed: run python tests/public_names.py; CHANGELOG"
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


# Packages of integrations need other people's packages; tests/integrations looks at them.
PACKAGES = sorted(
    path.parent for path in SOURCE.rglob("__init__.pyi") if path.parent != SOURCE and "integrations" not in path.parts
)


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_every_package_shows_its_public_names(folder):
    package = importlib.import_module(".".join(("manyhot", *folder.relative_to(SOURCE).parts)))
    assert package.__all__
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_the_page_of_public_names_lists_each_in_its_package():
    text = api_page.PAGE.read_text()
    sections = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    for package in ["manyhot", *api_page.packages()]:
        wanted = api_page.own_names() if package == "manyhot" else api_page.names_of(package)
        listed = re.findall(r"^\| \[`(\w+)`\]", sections.get(package, ""), re.MULTILINE)
        assert listed == wanted, f"docs/api.md, {package}: run python tests/public_names.py"


def test_every_public_name_is_on_the_page_of_its_subject():
    for path, text in api_page.group_pages().items():
        assert path.read_text() == text, f"{path.name}: run python tests/public_names.py"


def test_the_top_shows_every_name_and_every_room():
    shown = set(dir(manyhot))
    assert set(manyhot.__all__) <= shown
    assert {"losses", "metrics", "data", "training", "decisions"} <= shown
    assert manyhot.losses.zlpr_loss is manyhot.zlpr_loss
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = manyhot.nothing


def test_importing_loads_nothing_but_itself():
    script = "import sys, manyhot; print('torch' in sys.modules, 'numpy' in sys.modules, manyhot.__version__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == ["False", "False"]


def test_using_a_loss_loads_torch_and_nothing_optional():
    optional = ["sklearn", "scipy", "torchmetrics", "triton", "transformers", "pyarrow", "matplotlib", "typer", "pandas"]
    script = (
        "import sys, torch; before = set(sys.modules); import manyhot; manyhot.zlpr_loss;"
        f"print([m for m in {optional} if m in set(sys.modules) - before])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# A concern that is one thing and a little longer says so here.
LONG_FILES: set[str] = set()
# Kernels that are one derivation and longer than the others.
LONG_KERNELS = {"row_kernel", "packed_kernel"}
MOST_LINES = 300
MOST_STATEMENT_LINES = 40
MOST_KERNEL_LINES = 90


def statement_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function's body, without its signature and its docstring."""
    first = function.body[0]
    has_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    body = function.body[1:] if has_text else function.body
    return function.end_lineno - body[0].lineno + 1 if body else 0


def is_kernel(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("triton.jit" in ast.unparse(decorator) for decorator in function.decorator_list)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_stay_short(path):
    name, text = path.relative_to(SOURCE).as_posix(), path.read_text()
    lines = len(text.splitlines())
    if name in LONG_FILES:
        assert lines > MOST_LINES, f"{name} is short by now: take it off LONG_FILES"
    else:
        assert lines <= MOST_LINES, f"{name} has {lines} lines: which concept in it has no file of its own?"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name not in LONG_KERNELS:
            found, most = statement_lines(node), MOST_KERNEL_LINES if is_kernel(node) else MOST_STATEMENT_LINES
            assert found <= most, f"{name}: {node.name} has {found} lines: a part of it wants a name"


# Names that stay inside the module or the folder that they are from. Integrations mirror names of the losses on purpose.
SHARED_NAMES = {"Block", "Call", "Job", "Plan", "Rows", "Source"}


def test_one_name_is_one_thing():
    homes: dict[str, set[str]] = {}
    for path in ROOMS:
        if "integrations" not in path.parts:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, set()).add(path.relative_to(SOURCE).as_posix())
    repeated = {name: sorted(places) for name, places in homes.items() if len(places) > 1 and name not in SHARED_NAMES}
    assert not repeated, f"{repeated}: say in the name what each is"
