"""Every entry of a registry has a row on the page that lists its kind. Losses and metrics have tests of their own."""

import re
from pathlib import Path

import pytest

from manyhot.cli.commands import COMMANDS
from manyhot.data.formats.registry import formats
from manyhot.training.rows.bodies.registry import trained_bodies
from manyhot.training.rows.strategies import STRATEGIES

DOCS = Path(__file__).parents[1] / "docs"
LISTED = {
    "data.md": [*formats("labels"), *formats("spans")],
    "training.md": [*trained_bodies(), *STRATEGIES],
    "spans.md": formats("spans"),
    "command-line.md": COMMANDS,
}


def first_cells(page):
    """The names in code in the first cell of each row of the page's tables."""
    return re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (.+?) \|", (DOCS / page).read_text(), re.MULTILINE)))


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, names in LISTED.items() for name in names])
def test_every_entry_has_a_row_on_the_page_of_its_kind(page, name):
    assert any(cell.split()[0] == name for cell in first_cells(page)), f"docs/{page} has no row of {name}"
