"""Choose which tests are collected, and in which order the GPU tests run.

Integrations need other packages, so only ``make test-integrations`` collects them. Doctests of modules that need an extra are
collected if it is installed, as in ``make test-production``; so are the tests with Ray and Spark, in ``make test-distributed``.
"""

import contextlib
import importlib
import io
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
INTEGRATIONS = [
    *(ROOT / "tests/integrations", ROOT / "docs/integrations", ROOT / "src/manyhot/integrations"),
    *(ROOT / "docs/coming-from/huggingface.md", ROOT / "docs/coming-from/spacy.md"),
]
EXTRAS = {ROOT / "src/manyhot/serve": "uvicorn", ROOT / "tests/distributed": "ray"}

# A file with tests for a CUDA device has the mark ``gpu``, or a test with the fixture ``place``, which runs on every device.
ON_GPU = re.compile(r"mark\.gpu|def test\w*\([^)]*\bplace\b")

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "JAX_PLATFORMS": "cpu",
    "KERAS_BACKEND": "torch",
    "WANDB_MODE": "offline",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
}


def pytest_addoption(parser):
    """Add ``--integrations`` and ``--release``, which collect tests that are left out otherwise."""
    parser.addoption("--integrations", action="store_true", help="collect the tests and pages of manyhot.integrations")
    parser.addoption("--release", action="store_true", help="collect the tests of the distributions (make test-release)")


def pytest_configure(config):
    """For integrations: no network, four CPU devices for JAX, and an installed Keras backend."""
    if config.getoption("--integrations"):
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        # Other packages warn about each other; manyhot's own warnings are errors as everywhere.
        for line in ("default", "error:::manyhot"):
            config.addinivalue_line("filterwarnings", line)
        # Its first import prints a line, which would appear in the output of whichever page comes first.
        with contextlib.redirect_stdout(io.StringIO()):
            importlib.import_module("transformers.integrations.integration_utils")


def pytest_sessionstart(session):
    """Tests that run in several processes print nothing but dots until the end."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal and session.config.getoption("numprocesses", None):
        session.config.pluginmanager.register(NamesFailures(terminal))


class NamesFailures:
    """Names a failure when it happens, so that an interrupted run has named those it found."""

    def __init__(self, terminal):
        self.terminal = terminal

    def pytest_runtest_logreport(self, report):
        """Called for every phase of every test."""
        if report.failed:
            self.terminal.write_line(f"\nFAILED {report.nodeid} ({report.when})")


def pytest_ignore_collect(collection_path, config):
    """Leave out tests whose option is not given, whatever is installed, and tests whose package is not installed."""
    if not config.getoption("--integrations") and any(
        folder == collection_path or folder in collection_path.parents for folder in INTEGRATIONS
    ):
        return True
    if not config.getoption("--release") and collection_path == ROOT / "tests/release":
        return True
    # For GPU tests, skip files without any: collecting and importing all tests would take more than a tenth of make test-gpu.
    if config.option.markexpr == "gpu" and collection_path.suffix == ".py" and collection_path.name != "conftest.py":
        return not ON_GPU.search(collection_path.read_text()) or None
    missing = [folder for folder, package in EXTRAS.items() if find_spec(package) is None]
    if any(folder in collection_path.parents for folder in missing):
        return True
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """In ``make test-gpu`` every process starts with its share of the slow tests, so that none of them runs last.

    Each process first gets a contiguous block of tests, and takes tests from others when it is done (``--dist worksteal``).
    """
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    if config.option.markexpr == "gpu" and count > 1:
        slow = [item for item in items if is_slow(item)]
        items[:] = dealt(items, sorted(slow, key=seconds, reverse=True), count)


def is_slow(item):
    """Whether a GPU test is marked slow, or draws its examples: each of those can need a kernel that is compiled first."""
    return item.get_closest_marker("slow") is not None or getattr(item.obj, "is_hypothesis_test", False)


def seconds(item):
    """About how long a slow test takes: the argument of its mark, if there is one."""
    mark = item.get_closest_marker("slow")
    return mark.args[0] if mark and mark.args else 10


def dealt(items, slow, count):
    """The items in ``count`` blocks of nearly equal length; each block starts with every ``count``-th slow item."""
    chosen = set(map(id, slow))
    others, order = (item for item in items if id(item) not in chosen), []
    for place in range(count):
        size = (len(items) - len(order)) // (count - place)
        own = slow[place::count]
        order += own + [item for _, item in zip(range(size - len(own)), others, strict=False)]
    return order + list(others)
