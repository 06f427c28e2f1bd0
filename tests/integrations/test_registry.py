import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from manyhot.integrations.registry import INTEGRATIONS, framework

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("entry", INTEGRATIONS.values(), ids=lambda entry: entry.name)
def test_every_integration_has_a_module_an_extra_a_page_and_a_test(entry):
    assert importlib.import_module(f"manyhot.integrations.{entry.name}").__doc__
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert entry.extra is None or entry.extra in extras
    assert (ROOT / f"docs/integrations/{entry.name}.md").is_file()
    assert (
        list((ROOT / "tests/integrations").glob(f"**/test_{entry.name}*.py"))
        or (ROOT / "tests/integrations" / entry.name).is_dir()
    )


PACKAGES = sorted(path.parent.name for path in (ROOT / "src/manyhot/integrations").glob("*/__init__.pyi"))


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_shows_its_public_names(name):
    package = importlib.import_module(f"manyhot.integrations.{name}")
    assert set(package.__all__) <= set(dir(package))
    for each in package.__all__:
        assert getattr(package, each).__doc__


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match=r"pip install 'manyhot\[jax\]'"):
        framework("jax")


def test_importing_manyhot_loads_no_framework():
    names = [entry.package for entry in INTEGRATIONS.values() if entry.package]
    script = f"import sys, manyhot; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
