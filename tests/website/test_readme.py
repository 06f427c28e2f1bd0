"""The README: one screen, and figures that stand on the pages they link."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
NUMBER = re.compile(r"\d[\d,]*\.?\d*")
ROWS = [line for line in README.splitlines() if line.startswith("|") and "benchmarks/results" in line]


def numbers(text):
    return [each.rstrip(".,").replace(",", "") for each in NUMBER.findall(text)]


def test_the_table_has_five_lines_and_the_page_one_screen():
    assert len(ROWS) == 5
    assert len(README.splitlines()) <= 70


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_figure_of_the_table_is_on_a_page_it_links(row):
    pages = re.findall(r"\((benchmarks/results/[\w.-]+)\)", row)
    known = [float(each) for page in pages for each in numbers((ROOT / page).read_text())]
    cells = re.sub(r"\(\[page\].*?\)\)", "", row).split("|")[2:4]
    for figure in numbers(" ".join(cells)):
        digits = len(figure.partition(".")[2])
        assert any(round(each, digits) == float(figure) for each in known), figure


def test_every_link_of_the_pages_outside_docs_leads_somewhere():
    for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for link in re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text()):
            assert link.startswith("https:") or (ROOT / link).exists(), f"{page}: {link}"
