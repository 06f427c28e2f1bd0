"""Which folders are collected.

Integrations need other people's packages, so only ``make test-integrations`` asks for them. Doctests of modules that need an
extra are collected where it is installed, which it is for ``make test-production``.
"""

from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent
INTEGRATIONS = [ROOT / "tests/integrations", ROOT / "docs/integrations", ROOT / "src/manyhot/integrations"]
EXTRAS = {ROOT / "src/manyhot/serve": "uvicorn"}


def pytest_addoption(parser):
    """``--integrations`` collects them."""
    parser.addoption("--integrations", action="store_true", help="collect the tests and pages of manyhot.integrations")


def pytest_ignore_collect(collection_path, config):
    """Without the option they are left out, whatever happens to be installed."""
    if not config.getoption("--integrations") and any(
        folder == collection_path or folder in collection_path.parents for folder in INTEGRATIONS
    ):
        return True
    missing = [folder for folder, package in EXTRAS.items() if find_spec(package) is None]
    if any(folder in collection_path.parents for folder in missing):
        return True
    return None
