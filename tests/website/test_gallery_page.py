"""The gallery: figures as they were measured, commands of the script, reports that are there and load nothing."""

import re

import gallery
import gallery_page
import pytest

SHOWN = re.findall(r"<!-- made: (\w+) -->", gallery_page.PAGE.read_text())


def test_the_page_has_the_figures_that_were_measured():
    text = gallery_page.PAGE.read_text()
    assert gallery_page.fill(text) == text, "run python website/gallery_page.py"
    assert len(SHOWN) >= 7
    assert set(SHOWN) == set(gallery_page.figures())


@pytest.mark.parametrize("name", SHOWN)
def test_figures_come_from_the_commands_of_the_script(name):
    assert gallery_page.figures()[name]["commands"] == list(gallery.SHOWS[name].commands)


@pytest.mark.parametrize("name", SHOWN)
def test_every_run_shows_a_picture_of_its_report(name):
    assert f"![A part of the report of this run](../images/gallery/{name}.png)" in gallery_page.part(name)
    picture = (gallery_page.SHELF.parent / "images" / "gallery" / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 250_000


@pytest.mark.parametrize("name", SHOWN)
def test_reports_are_small_and_quote_rows_only_where_the_licence_allows_it(name):
    report = (gallery_page.SHELF / name / "report.html").read_text()
    assert len(report) < 1_500_000
    assert gallery.SHOWS[name].title in report
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users)/", report), "a path of the machine it was made on"
    if not gallery.SHOWS[name].quotes:
        assert "Worst examples</h2>" not in report
        assert "Labels that look wrong</h2>" not in report
        assert 'class="text"' not in report
