"""The picture of each loss's gradient, docs/images/losses/NAME.svg: ``python website/loss_pictures.py`` draws them anew."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from manyhot import LOSSES, LossInfo

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images" / "losses"
POSITIVE, NEGATIVE, TEXT = "#00897b", "#ef6c00", "#808080"  # readable on white and on black
# The row of the right half: 3 labels of 20 are there, and one of them scores too low.
SCORES = torch.tensor([3.0, 1.5, -0.5, 1.2, 0.4, 0.0, -0.3, *(-0.8 - 0.25 * torch.arange(13)).tolist()], dtype=torch.float64)
POSITIVES = 3
SWEEP = torch.linspace(-6, 6, 121, dtype=torch.float64)
WIDTH, HEIGHT, TOP, BOTTOM = 760, 250, 34, 40


def settings_of(info: LossInfo) -> dict[str, object]:
    """What makes the pictures comparable: sums over labels, a row by itself, a threshold that can be seen."""
    if info.takes("label_reduction"):
        return {"label_reduction": "sum"}
    return {"threshold": 1.0} if info.name == "tlpr" else {"batch_weight": 0.0} if info.name == "two_way" else {}


def pulls(info: LossInfo, scores: Tensor, labels: Tensor) -> Tensor:
    """Minus the gradient of the loss: which way, and how hard, a step pulls at each score."""
    scores = scores.clone().requires_grad_()
    info(scores, labels, reduction="sum", **settings_of(info)).backward()
    assert scores.grad is not None
    return -scores.grad


def labels_of(info: LossInfo) -> Tensor:
    """The labels of the row; one for softmax, which is for one label per row."""
    return (torch.arange(len(SCORES)) < (1 if info.one_label else POSITIVES))[None]


def sweep(info: LossInfo, place: int) -> Tensor:
    """The pull at one score while it moves and the others stay."""
    labels = labels_of(info)
    found = []
    for score in SWEEP:
        row = SCORES.clone()[None]
        row[0, place] = score
        found.append(pulls(info, row, labels)[0, place])
    return torch.stack(found)


def draw(info: LossInfo) -> str:
    """The whole picture."""
    row = pulls(info, SCORES[None], labels_of(info))[0]
    positive, negative = sweep(info, 0), sweep(info, 3)
    reach = max(1.05 * float(max(positive.abs().max(), negative.abs().max(), row.abs().max())), 1e-9)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
        f' fill="{TEXT}" role="img">',
        f"<title>The gradient of {info.title}</title>",
        *_curves(positive, negative, reach),
        *_bars(row, labels_of(info)[0], reach),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _height(value: float, reach: float) -> float:
    return round((HEIGHT - TOP - BOTTOM) * (1 - (value + reach) / (2 * reach)) + TOP, 1)


def _frame(left: int, right: int, reach: float, title: str) -> list[str]:
    zero = _height(0.0, reach)
    lines = [f'<text x="{left}" y="16" font-weight="bold">{title}</text>']
    lines.append(f'<path d="M{left} {zero}H{right}" stroke="{TEXT}" stroke-width="0.8" fill="none"/>')
    ends = (reach / 1.05, -reach / 1.05)
    return [
        *lines,
        *(f'<text x="{left - 6}" y="{_height(end, reach) + 4}" text-anchor="end">{end:+.2g}</text>' for end in ends),
    ]


def _curves(positive: Tensor, negative: Tensor, reach: float) -> list[str]:
    left, right = 50, 340

    def across(score: float) -> float:
        return round(left + (right - left) * (score + 6) / 12, 1)

    lines = _frame(left, right, reach, "Pull at one score while it moves")
    lines.append(f'<path d="M{across(0)} {TOP}V{HEIGHT - BOTTOM}" stroke="{TEXT}" stroke-dasharray="2 3" fill="none"/>')
    for values, colour in ((positive, POSITIVE), (negative, NEGATIVE)):
        steps = " ".join(f"{across(s)},{_height(v, reach)}" for s, v in zip(SWEEP.tolist(), values.tolist(), strict=True))
        lines.append(f'<polyline points="{steps}" fill="none" stroke="{colour}" stroke-width="2.2"/>')
    for score in (-6, 0, 6):
        lines.append(f'<text x="{across(score)}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{score}</text>')
    lines.append(f'<text x="{left}" y="{HEIGHT - 6}" fill="{POSITIVE}">a label that is there</text>')
    lines.append(f'<text x="{left + 150}" y="{HEIGHT - 6}" fill="{NEGATIVE}">a label that is not</text>')
    return lines


def _bars(row: Tensor, labels: Tensor, reach: float) -> list[str]:
    left, right = 410, WIDTH - 10
    step, zero = (right - left) / len(row), _height(0.0, reach)
    lines = _frame(left, right, reach, f"Pull at each of {len(row)} labels of a row")
    for place, (pull, held) in enumerate(zip(row.tolist(), labels.tolist(), strict=True)):
        end, x = _height(pull, reach), round(left + step * place + 1.5, 1)
        colour = POSITIVE if held else NEGATIVE
        width, height = round(step - 3, 1), round(abs(end - zero), 1)
        lines.append(f'<rect x="{x}" y="{min(end, zero)}" width="{width}" height="{height}" fill="{colour}"/>')
    up, down = float(row[labels].sum()), float(row[~labels].sum())
    lines.append(f'<text x="{left}" y="{HEIGHT - 6}" fill="{POSITIVE}">in total {up:+.2f}</text>')
    lines.append(f'<text x="{left + 150}" y="{HEIGHT - 6}" fill="{NEGATIVE}">in total {down:+.2f}</text>')
    return lines


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, info in LOSSES.items():
        (FOLDER / f"{name}.svg").write_text(draw(info), encoding="utf-8")
