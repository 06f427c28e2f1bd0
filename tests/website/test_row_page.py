"""The page "One row, by hand": what it shows in a real browser is what manyhot computes."""

import re
from pathlib import Path

import loss_pictures
import pytest
import torch

from manyhot import LOSSES, decide
from report.conftest import browser  # noqa: F401

DOCS = Path(__file__).parents[2] / "docs"
ROWS = {
    "as it opens": None,
    "hard": ([2.5, -0.5, 1.0, -2.0, -3.0, -4.0], [1, 1, 0, 0, 0, 0], 0.5),
    "soft": ([0.7, -1.25, 3.0, 0.05, -2.5, 5.0], [0.8, 0.3, 1.0, 0.0, 0.05, 0.5], -1.0),
    "extreme": ([-6.0, 6.0, 6.0, -6.0, 6.0, -6.0], [1, 0, 1, 0, 1, 0], 2.0),
    "nothing is there": ([1.0, -1.0, 0.5, 2.0, -2.0, 0.1], [0, 0, 0, 0, 0, 0], 0.0),
    "everything is there": ([1.0, -1.0, 0.5, 2.0, -2.0, 0.1], [1, 1, 1, 1, 1, 1], 0.0),
}


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):  # noqa: F811
    page = tmp_path_factory.mktemp("row") / "row.html"
    part = re.search(r"<div id=.*?</div>", (DOCS / "understand/row.md").read_text())[0]
    script = (DOCS / "javascripts/row.js").as_uri()
    page.write_text(f'<!doctype html><meta charset="utf-8">{part}<script src="{script}"></script>')
    browser.get(page.as_uri())
    return browser


def move(browser, name, value):  # noqa: F811
    browser.execute_script(
        "const i = document.querySelector(`[data-input=${arguments[0]}]`); i.value = arguments[1];"
        "i.dispatchEvent(new Event('input'));",
        name,
        value,
    )


def shown(browser):  # noqa: F811
    return browser.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('[data-loss]')].map((row) => [row.dataset.loss, {"
        "value: Number(row.querySelector('[data-value]').dataset.value),"
        "gradient: [...row.querySelectorAll('[data-gradient]')].map((each) => Number(each.dataset.gradient)),"
        "decided: [...row.querySelectorAll('[data-decided]')].map((each) => each.dataset.decided)}]))"
    )


def expected(name, scores, labels, threshold):
    info = LOSSES[name]
    settings = {**loss_pictures.settings_of(info), **({"threshold": threshold} if name == "tlpr" else {})}
    logits = torch.tensor([scores], dtype=torch.float64, requires_grad=True)
    value = info(logits, torch.tensor([labels], dtype=torch.float64), reduction="sum", **settings)
    value.backward()
    return value.item(), logits.grad[0].tolist()


def decided_by(name, scores, labels, threshold):
    logits = torch.tensor([scores])
    kind = LOSSES[name].decision
    if kind == "zero":
        return decide(logits)[0].tolist()
    if kind == "threshold":
        return decide(logits, threshold=torch.tensor(threshold))[0].tolist()
    number = 1 if kind == "argmax" else round(sum(labels))
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:number]
    return [place in order for place in range(len(scores))]


@pytest.mark.parametrize("row", ROWS)
def test_values_gradients_and_decisions_are_those_of_manyhot(opened, row):
    scores, labels, threshold = ROWS[row] or ([2.5, -0.5, 1.0, -2.0, -3.0, -4.0], [1, 1, 0, 0, 0, 0], 1.0)
    if ROWS[row]:
        for place, (score, label) in enumerate(zip(scores, labels, strict=True)):
            move(opened, f"score-{place}", score)
            move(opened, f"label-{place}", label)
        move(opened, "threshold", threshold)
    found = shown(opened)
    assert set(found) == set(LOSSES)
    for name, row_shown in found.items():
        value, gradient = expected(name, scores, labels, threshold)
        assert row_shown["value"] == pytest.approx(value, rel=1e-9, abs=1e-12), name
        # The page takes differences over 2e-5: at a kink (the margin of squared hinge) they lie half a step beside.
        assert row_shown["gradient"] == pytest.approx(gradient, rel=1e-5, abs=1e-5), name
        if LOSSES[name].decision == "tuned":
            assert set(row_shown["decided"]) == {"tune"}
        else:
            wanted = decided_by(name, scores, labels, threshold)
            assert row_shown["decided"] == [str(each).lower() for each in wanted], name


def test_the_page_says_true_pulls_about_a_row_of_zeros(opened):
    for place, label in enumerate([1, 1, 0, 0, 0, 0]):
        move(opened, f"score-{place}", 0)
        move(opened, f"label-{place}", label)
    found = shown(opened)
    assert [-sum(found["zlpr"]["gradient"][:2]), sum(found["zlpr"]["gradient"][2:])] == pytest.approx([0.67, 0.80], abs=0.005)
    assert [-sum(found["bce"]["gradient"][:2]), sum(found["bce"]["gradient"][2:])] == pytest.approx([1, 2], abs=1e-6)


def test_the_console_is_quiet(opened):
    assert not [entry for entry in opened.get_log("browser") if entry["level"] == "SEVERE"]
