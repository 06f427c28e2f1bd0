"""Version, changelog and citation are in step."""

import re
import tomllib
from pathlib import Path

import manyhot

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def numbers(version):
    return tuple(int(each) for each in version.split("."))


def test_the_package_has_the_version_of_the_project():
    assert manyhot.__version__ == VERSION


def test_the_changelog_opens_with_what_comes_next_and_has_releases_in_order():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = [numbers(heading.split()[0]) for heading in headings if heading != "Unreleased"]
    assert headings[0] == "Unreleased" or released[0] == numbers(VERSION)
    assert released == sorted(released, reverse=True)
    assert all(each <= numbers(VERSION) for each in released)


def test_the_install_page_names_the_version():
    assert f"manyhot-{VERSION}-" in (ROOT / "docs/install.md").read_text()
