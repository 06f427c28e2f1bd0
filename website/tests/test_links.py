"""Every link of the built site leads somewhere on it, and nothing is fetched from elsewhere."""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
# Other people's pages that the site may name. They are never fetched, only linked.
ELSEWHERE = ("https://arxiv.org/abs/", "https://squidfunk.github.io/mkdocs-material/")
PAGES = sorted(SITE.rglob("*.html"))


class Links(HTMLParser):
    """The links of a page, what it loads, and the places that links can point at."""

    def __init__(self):
        super().__init__()
        self.links, self.loads, self.places = [], [], set()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.places |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("img", "script", "iframe", "source", "video") and found.get("src"):
            self.loads.append(found["src"])
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loads.append(found["href"])


@cache
def read(path):
    links = Links()
    links.feed(path.read_text(encoding="utf-8"))
    return links


def target_of(page, link):
    """The file that a link of a page means."""
    path = SITE / unquote(link).lstrip("/") if link.startswith("/") else page.parent / unquote(link)
    path = path.resolve()
    return path / "index.html" if path.is_dir() else path


def test_there_is_a_site():
    assert len(PAGES) > 30


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(SITE)))
def test_every_link_leads_to_a_page_and_a_place_on_it(page):
    for link in read(page).links:
        if link.startswith(("https:", "http:")):
            assert link.startswith(ELSEWHERE), link
            continue
        if link.startswith(("javascript:", "data:")):
            continue
        path, place = urldefrag(link)
        target = target_of(page, path) if path else page
        assert target.is_file(), f"{link}: no such file"
        # A report makes its parts by script; its anchors are tried in its own tests.
        if place and target.suffix == ".html" and "report" not in target.name:
            assert unquote(place) in read(target).places or place == "__top", f"{link}: no such place"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(SITE)))
def test_a_page_loads_files_of_the_site_alone(page):
    for source in read(page).loads:
        if source.startswith("data:"):
            continue
        assert "://" not in source, source
        assert not source.startswith("//"), source
        assert target_of(page, source.partition("?")[0]).is_file(), source


def test_styles_load_nothing_from_elsewhere():
    for path in SITE.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", path.read_text(encoding="utf-8")), path
        assert "@import" not in path.read_text(encoding="utf-8"), path


def test_pictures_load_nothing_from_elsewhere():
    for path in SITE.rglob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?:href|src)=[\"'](?:https?:)?//|url\([\"']?(?:https?:)?//", text), path
