"""The page of each loss: all sections, facts as the catalog has them, a picture of the gradient that it really has."""

import re

import loss_pages
import loss_pictures
import pytest
import torch

from manyhot import LOSSES


def page_of(name):
    return (loss_pages.PAGES / f"{name}.md").read_text()


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_has_a_page_with_all_sections_filled(name):
    text = page_of(name)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == list(loss_pages.SECTIONS)
    for section in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
        assert len(re.sub(r"<!--.*?-->", "", section).split()) >= 2


@pytest.mark.parametrize("name", LOSSES)
def test_facts_on_the_page_are_those_of_the_catalog(name):
    text = page_of(name)
    assert sorted(re.findall(r"<!-- made: (\w+) -->", text)) == sorted(loss_pages.PARTS)
    assert loss_pages.fill(text, LOSSES[name]) == text, "run python website/loss_pages.py"


def test_the_page_of_a_new_loss_begins_with_all_sections_and_the_parts_that_are_known():
    text = loss_pages.fill(loss_pages.begun(LOSSES["bce"]), LOSSES["bce"])
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == list(loss_pages.SECTIONS)
    for part in loss_pages.PARTS.values():
        assert part(LOSSES["bce"]) in text


def test_no_page_is_left_of_a_loss_that_is_gone():
    assert {path.stem for path in loss_pages.PAGES.glob("*.md")} == set(LOSSES)


def numbers(svg):
    return [float(each) for each in re.findall(r"-?\d+\.?\d*", svg)]


@pytest.mark.parametrize("name", LOSSES)
def test_the_picture_shows_the_gradient_of_the_loss(name):
    kept = (loss_pictures.FOLDER / f"{name}.svg").read_text()
    # Coordinates are rounded to a tenth: another machine may round the last digit the other way.
    assert numbers(kept) == pytest.approx(numbers(loss_pictures.draw(LOSSES[name])), abs=0.11), "run website/loss_pictures.py"


def test_the_sides_of_zlpr_pull_with_less_than_one_in_the_picture():
    pulls = loss_pictures.pulls(LOSSES["zlpr"], loss_pictures.SCORES[None], loss_pictures.labels_of(LOSSES["zlpr"]))[0]
    assert 0 < pulls[: loss_pictures.POSITIVES].sum() < 1
    assert -1 < pulls[loss_pictures.POSITIVES :].sum() < 0
    bce = loss_pictures.pulls(LOSSES["bce"], loss_pictures.SCORES[None], loss_pictures.labels_of(LOSSES["bce"]))[0]
    torch.testing.assert_close(bce[3:].sum(), -torch.sigmoid(loss_pictures.SCORES[3:]).sum())


def test_the_page_which_loss_when_leads_to_every_loss_and_names_real_flags():
    text = (loss_pages.ROOT / "docs" / "which-loss.md").read_text()
    assert set(re.findall(r"\(losses/(\w+)\.md\)", text)) == set(LOSSES)
    flags = (loss_pages.ROOT / "docs" / "commands.md").read_text().partition("## manyhot train")[2].partition("\n## ")[0]
    for flag in re.findall(r"`(--[a-z-]+)", text):
        assert f"`{flag}`" in flags, flag
