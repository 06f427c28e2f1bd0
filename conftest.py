"""Which folders are collected: integrations need other people's packages, so only ``make test-integrations`` asks for them."""

from pathlib import Path

ROOT = Path(__file__).parent
INTEGRATIONS = [ROOT / "tests/integrations", ROOT / "docs/integrations", ROOT / "src/manyhot/integrations"]


def pytest_addoption(parser):
    """``--integrations`` collects them."""
    parser.addoption("--integrations", action="store_true", help="collect the tests and pages of manyhot.integrations")


def pytest_ignore_collect(collection_path, config):
    """Without the option they are left out, whatever happens to be installed."""
    if not config.getoption("--integrations") and any(
        folder == collection_path or folder in collection_path.parents for folder in INTEGRATIONS
    ):
        return True
    return None
