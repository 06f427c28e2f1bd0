"""Distributions as `python -m build` makes them, and clean environments to install them in."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILDER = ROOT / ".venv-release" / "bin" / "python"
# What a clean environment gets from this one in the place of a download: everything but manyhot and the installers.
OWN = ("manyhot", "_editable_impl_manyhot", "__editable__", "pip", "setuptools", "_distutils_hack", "distutils-precedence")


def environment(**changes):
    """The environment of a process that must not see this source tree."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "OMP_NUM_THREADS": "1", **changes}


def call(*words, cwd, expect=0, **changes):
    """Run a command and return what it printed."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=environment(**changes), capture_output=True, text=True, check=False
    )
    assert done.returncode == expect, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def tracked(target):
    """A clean copy of the tracked files: what a clone has."""
    archive = target / "tree.tar"
    names = call("git", "ls-files", cwd=ROOT).splitlines()
    listed = target / "names.txt"
    listed.write_text("\n".join(name for name in names if (ROOT / name).is_file()))
    call("tar", "--create", f"--file={archive}", f"--files-from={listed}", cwd=ROOT)
    tree = target / "tree"
    tree.mkdir()
    call("tar", "--extract", f"--file={archive}", cwd=tree)
    return tree


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The source distribution and the wheel, built in a clean copy with a compiler, and what was printed."""
    assert BUILDER.is_file(), "make test-release makes the environment that this needs"
    tree = tracked(tmp_path_factory.mktemp("built"))
    said = call(BUILDER, "-m", "build", "--no-isolation", cwd=tree)
    return tree / "dist", said


@pytest.fixture(scope="session")
def built_plain(tmp_path_factory):
    """The wheel where there is no C compiler, and what was printed."""
    tree = tracked(tmp_path_factory.mktemp("plain"))
    said = call(BUILDER, "-m", "build", "--no-isolation", "--wheel", cwd=tree, CC="no-such-compiler")
    return tree / "dist", said


@pytest.fixture(scope="session")
def install(tmp_path_factory):
    """Installs a wheel in a fresh environment of an interpreter; returns its Python."""

    def make(wheel, interpreter=sys.executable, dependencies=True):
        folder = tmp_path_factory.mktemp("environment")
        call(interpreter, "-m", "venv", folder, cwd=folder)
        python = folder / "bin" / "python"
        if dependencies:
            target = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
            for entry in Path(sysconfig.get_path("purelib")).iterdir():
                if not entry.name.startswith(OWN) and not (target / entry.name).exists():
                    (target / entry.name).symlink_to(entry)
        call(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
        return python

    return make


def interpreters():
    """Other Pythons that are installed here, by version."""
    found = {}
    for version in ("3.12", "3.13"):
        named = shutil.which(f"python{version}")
        places = [Path(named)] if named else []
        places += sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}*/bin/python"))
        for place in places:
            done = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
            if done.returncode == 0 and done.stdout.startswith(f"Python {version}"):
                found[version] = place
                break
    return found
