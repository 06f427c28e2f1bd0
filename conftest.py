"""Which folders are collected.

Integrations need other people's packages, so only ``make test-integrations`` asks for them. Doctests of modules that need an
extra are collected where it is installed, which it is for ``make test-production``; so are the tests with
Ray and Spark, for ``make test-distributed``.
"""

import contextlib
import importlib
import io
import os
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent
INTEGRATIONS = [
    *(ROOT / "tests/integrations", ROOT / "docs/integrations", ROOT / "src/manyhot/integrations"),
    *(ROOT / "docs/coming-from/huggingface.md", ROOT / "docs/coming-from/spacy.md"),
]
EXTRAS = {ROOT / "src/manyhot/serve": "uvicorn", ROOT / "tests/distributed": "ray"}

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "JAX_PLATFORMS": "cpu",
    "KERAS_BACKEND": "torch",
    "WANDB_MODE": "offline",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
}


def pytest_addoption(parser):
    """``--integrations`` collects them; ``--release`` the tests of the distributions."""
    parser.addoption("--integrations", action="store_true", help="collect the tests and pages of manyhot.integrations")
    parser.addoption("--release", action="store_true", help="collect the tests of the distributions (make test-release)")


def pytest_configure(config):
    """No network, one CPU with four devices for JAX, and a Keras backend that is installed."""
    if config.getoption("--integrations"):
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        # Other packages warn about each other; manyhot's own warnings are errors as everywhere.
        for line in ("default", "error:::manyhot"):
            config.addinivalue_line("filterwarnings", line)
        # It prints a line when it is first imported, which a page would have to expect or not, by the order of the tests.
        with contextlib.redirect_stdout(io.StringIO()):
            importlib.import_module("transformers.integrations.integration_utils")


def pytest_ignore_collect(collection_path, config):
    """Without the option they are left out, whatever happens to be installed."""
    if not config.getoption("--integrations") and any(
        folder == collection_path or folder in collection_path.parents for folder in INTEGRATIONS
    ):
        return True
    if not config.getoption("--release") and collection_path == ROOT / "tests/release":
        return True
    missing = [folder for folder, package in EXTRAS.items() if find_spec(package) is None]
    if any(folder in collection_path.parents for folder in missing):
        return True
    return None
