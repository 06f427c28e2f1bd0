"""What `python -m build` gives: complete, installable without and with a compiler, typed from outside."""

import tarfile
import zipfile

import pytest

from release.conftest import call, interpreters

TRY = """
import warnings, torch
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import manyhot
    logits = torch.tensor([[4.0, -3.0, 2.0], [-5.0, -4.0, -6.0]], requires_grad=True)
    for _ in range(3):
        loss = manyhot.zlpr_loss(logits, torch.tensor([[1, 0, 1], [0, 0, 0]]))
        loss.backward()
own = [str(each.message) for each in caught if "manyhot" in str(each.message)]
print(manyhot.__version__, round(loss.item(), 4), manyhot.available_engines()["native"], len(own), manyhot.__file__, sep="|")
"""


def wheel_of(folder):
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_has_the_engine_the_types_and_nothing_else(built):
    folder, _ = built
    names = zipfile.ZipFile(wheel_of(folder)).namelist()
    assert any(name.endswith("engines/native/_native.so") for name in names)
    assert "manyhot/py.typed" in names
    assert "manyhot/__init__.pyi" in names
    assert all(name.startswith("manyhot") for name in names)
    assert wheel_of(folder).name.startswith("manyhot-")
    assert "-py3-none-linux" in wheel_of(folder).name or "-py3-none-macosx" in wheel_of(folder).name


def test_the_source_has_what_a_build_and_its_tests_need(built):
    folder, _ = built
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"hatch_build.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "mkdocs.yml"} <= names
    assert {"src/manyhot/engines/native/engine.c", "tests/conftest.py", "docs/index.md"} <= names
    assert not [name for name in names if name.endswith(".so")]


def test_without_a_compiler_a_pure_wheel_comes_out_and_says_so_once(built_plain):
    folder, said = built_plain
    assert wheel_of(folder).name.endswith("-py3-none-any.whl")
    assert said.count("manyhot is built without its native engine") == 1
    assert not [name for name in zipfile.ZipFile(wheel_of(folder)).namelist() if name.endswith(".so")]


def test_the_wheel_works_in_a_clean_environment(built, install, tmp_path):
    python = install(wheel_of(built[0]))
    version, loss, native, warned, file = call(python, "-c", TRY, cwd=tmp_path).strip().split("|")
    assert (loss, native, warned) == ("0.1093", "available", "0")
    assert str(python.parents[1]) in file
    assert call(python.parent / "manyhot", "--version", cwd=tmp_path).strip() == f"manyhot {version}"


def test_the_pure_wheel_works_by_the_plain_engine(built_plain, install, tmp_path):
    python = install(wheel_of(built_plain[0]))
    _, loss, native, warned, _ = call(python, "-c", TRY, cwd=tmp_path).strip().split("|")
    assert loss == "0.1093"
    assert native != "available"
    assert int(warned) <= 1


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_wheel_installs_and_compiles_on_other_pythons(built, install, tmp_path, version):
    found = interpreters()
    if version not in found:
        pytest.skip(f"no Python {version} here")
    python = install(wheel_of(built[0]), interpreter=found[version], dependencies=False)
    said = call(
        python, "-W", "error", "-c", "import manyhot; print(manyhot.__version__, len(dir(manyhot)) > 100)", cwd=tmp_path
    )
    assert said.split()[1] == "True"
    folder = call(python, "-c", "import manyhot; print(manyhot.__path__[0])", cwd=tmp_path).strip()
    call(python, "-W", "error", "-m", "compileall", "-q", "-f", folder, cwd=tmp_path)


def test_types_are_seen_from_outside(built, install, tmp_path):
    python = install(wheel_of(built[0]))
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "import manyhot\n"
        "from manyhot.losses import ZLPRLoss\n"
        "loss: torch.Tensor = manyhot.zlpr_loss(torch.zeros(2, 3), torch.zeros(2, 3), smoothing=0.1)\n"
        "module: torch.nn.Module = ZLPRLoss()\n"
        "engines: dict[str, str] = manyhot.available_engines()\n"
    )
    check = [python, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache"]
    assert "Success" in call(*check, program, cwd=tmp_path)
    program.write_text("import torch\nimport manyhot\nmanyhot.zlpr_loss(torch.zeros(2), torch.zeros(2), smooting=0.1)\n")
    assert 'Unexpected keyword argument "smooting"' in call(*check, program, cwd=tmp_path, expect=1)
