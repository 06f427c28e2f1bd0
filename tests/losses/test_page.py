"""The page of losses: every loss of the catalog is on it, with a formula that holds and a test that exists."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import manyhot
from manyhot import LOSSES, TrainSettings, bce_loss, dice_loss, lsep_loss, pairwise_loss, zlpr_loss

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "losses.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in PAGE.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_has_a_row_with_its_function_module_options_and_test(name):
    info = LOSSES[name]
    rows = [row for row in ROWS if len(row) == 6 and re.match(rf"`{name}`", row[3])]
    assert len(rows) == 1
    _, formula, code, flag, decision, _ = rows[0]
    assert formula
    assert f"`{info.function.__name__}" in code
    assert f"`{info.module.__name__}`" in code
    assert re.findall(r"`(\w+)`", flag) == [name, *(option.name for option in info.options)]
    assert decision == {"zero": "s > 0", "threshold": "s > s0", "top-k": "top k"}.get(info.decision, info.decision)


def test_every_test_on_the_page_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) >= len(LOSSES)
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(), test


def test_every_function_on_the_page_is_public():
    for row in ROWS:
        for word in re.findall(r"`([a-z_]+_(?:loss|labels|from|threshold)|[A-Z]\w+Loss)\b", row[2] if len(row) > 2 else ""):
            assert hasattr(manyhot, word), word


def test_every_row_names_a_test_and_what_exists():
    rows = [row for row in ROWS if len(row) in (5, 6) and row[0] not in ("loss", "tool")]
    assert len(rows) >= len(LOSSES) + 8
    known = {*dir(manyhot), *inspect.signature(zlpr_loss).parameters}
    for row in rows:
        assert re.fullmatch(r"`tests/[\w/]+\.py::\w+`", row[-1]), row[0]
        names = [re.match(r"\w+", code)[0] for code in re.findall(r"`([^`]+)`", row[2])]
        assert set(names) <= known, row[0]
        assert names or row[2] == "every loss"


def test_every_flag_on_the_page_is_one_of_train():
    flags = {f"--{each.name.replace('_', '-')}" for each in fields(TrainSettings)}
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert {"--loss", "--loss-option", "--smoothing", "--flip", "--row-threshold", "--teacher"} <= named
    assert named <= flags


def problem(seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(5, 8, generator=generator, dtype=torch.float64)
    return logits, torch.rand(5, 8, generator=generator) < 0.4


def test_pairwise_with_scale_and_margin_is_the_unified_circle_form():
    logits, labels = problem()
    for row, truth in zip(logits, labels, strict=True):
        pairs = 3.0 * (row[~truth][:, None] - row[truth][None] + 0.25)
        expected = torch.log1p(pairs.exp().sum())
        torch.testing.assert_close(pairwise_loss(row, truth, scale=3.0, margin=0.25), expected)


def test_lsep_over_all_pairs_is_the_pairwise_loss():
    logits, labels = problem()
    torch.testing.assert_close(lsep_loss(logits, labels, max_pairs=None), pairwise_loss(logits, labels))


@pytest.mark.parametrize("squared", [False, True])
def test_dice_is_its_formula(squared):
    logits, labels = problem()
    p, t = torch.sigmoid(logits), labels.double()
    power = 2 if squared else 1
    expected = 1 - (2 * (p * t).sum(-1) + 0.5) / ((p**power).sum(-1) + (t**power).sum(-1) + 0.5)
    torch.testing.assert_close(dice_loss(logits, labels, squared=squared, epsilon=0.5, reduction="none"), expected)


def cut_off(x, order):
    """The log of the elementary symmetric polynomials of e^x up to an order, added up."""
    terms = [torch.ones((), dtype=x.dtype)] + [torch.zeros((), dtype=x.dtype)] * len(x)
    for each in x.exp():
        terms = [terms[0]] + [terms[k] + each * terms[k - 1] for k in range(1, len(terms))]
    return torch.stack(terms[: order + 1]).sum().log()


@pytest.mark.parametrize("seed", range(5))
def test_zlpr_is_the_first_order_of_bce_and_orders_rise_from_one_to_the_other(seed):
    logits, labels = problem(seed)
    for row, truth in zip(logits, labels, strict=True):
        orders = torch.stack([cut_off(-row[truth], k) + cut_off(row[~truth], k) for k in range(1, 9)])
        torch.testing.assert_close(orders[0], zlpr_loss(row, truth))
        torch.testing.assert_close(orders[-1], bce_loss(row, truth, label_reduction="sum"))
        assert (orders.diff() >= 0).all()
