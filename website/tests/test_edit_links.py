"""Every page's edit link leads to the file that the page is made from."""

from pathlib import Path

import pytest
from mkdocs.config import load_config
from mkdocs.structure.files import get_files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://code.example/manyhot"
MADE = {"measured/index.md"}  # a list that no file holds


def pages():
    """The pages of the site as MkDocs knows them before it renders them."""
    config = load_config(str(ROOT / "mkdocs.yml"), plugins=["search"])
    config = config.plugins.on_config(config)
    files = config.plugins.on_files(get_files(config), config=config)
    return [Page(None, file, config) for file in files.documentation_pages()]


@pytest.fixture
def repository(monkeypatch):
    monkeypatch.setenv("MANYHOT_REPOSITORY", REPOSITORY)


def test_every_edit_link_names_a_file_of_the_repository(repository):
    found = {page.file.src_uri: page.edit_url for page in pages() if page.file.src_uri not in MADE}
    assert {"index.md", "losses/zlpr.md", "changelog.md", "measured/loss-cpu-2026-11-15.md"} <= set(found)
    for name, link in found.items():
        start, path = link[: len(f"{REPOSITORY}/edit/main/")], link[len(f"{REPOSITORY}/edit/main/") :]
        assert start == f"{REPOSITORY}/edit/main/", name
        assert (ROOT / path).read_text(encoding="utf-8"), name
    assert found["changelog.md"] == f"{REPOSITORY}/edit/main/CHANGELOG.md"


def test_without_an_address_there_are_no_edit_links(monkeypatch):
    monkeypatch.delenv("MANYHOT_REPOSITORY", raising=False)
    assert {page.edit_url for page in pages()} == {None}
