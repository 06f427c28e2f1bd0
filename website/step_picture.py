"""docs/images/from-softmax.svg, four steps from softmax to ZLPR: ``python website/step_picture.py`` draws it anew."""

from __future__ import annotations

from pathlib import Path

from loss_pictures import NEGATIVE, POSITIVE, TEXT

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "from-softmax.svg"
PANEL, HEIGHT, TOP = 190, 230, 46
UP, DOWN = (2.2, 0.9), (-0.5, -1.2, -2.1)
# Title, scores of labels that are there, of labels that are not, and the boundary.
STEPS = (
    ("1. softmax", UP[:1], (*UP[1:], *DOWN), None),
    ("2. every pair", UP, DOWN, None),
    ("3. a boundary s0", UP, DOWN, "s0"),
    ("4. at zero: ZLPR", UP, DOWN, "0"),
)


def _y(score: float) -> float:
    return TOP + (2.6 - score) / 5.2 * (HEIGHT - TOP - 20)


def _panel(place: int) -> list[str]:
    title, positives, negatives, boundary = STEPS[place]
    left, right = place * PANEL + 45, place * PANEL + 145
    lines = [f'<text x="{place * PANEL + 95}" y="20" text-anchor="middle" font-weight="bold">{title}</text>']

    def compare(x1: float, y1: float, x2: float, y2: float, colour: str) -> None:
        lines.append(f'<path d="M{x1} {y1:.1f}L{x2} {y2:.1f}" stroke="{colour}" stroke-width="1" opacity="0.55"/>')

    if boundary is None:
        for up in positives:
            for down in negatives:
                compare(left, _y(up), right, _y(down), TEXT)
    else:
        middle = (left + right) / 2
        for scores, x, colour in ((positives, left, POSITIVE), (negatives, right, NEGATIVE)):
            for score in scores:
                compare(x, _y(score), middle, _y(0.2), colour)
        y = _y(0.2)
        lines.append(f'<path d="M{left - 25} {y:.1f}H{right + 25}" stroke="{TEXT}" stroke-width="1.5" stroke-dasharray="5 3"/>')
        lines.append(f'<text x="{right + 28}" y="{y + 4:.1f}">{boundary}</text>')
    for scores, x, colour in ((positives, left, POSITIVE), (negatives, right, NEGATIVE)):
        lines += [f'<circle cx="{x}" cy="{_y(score):.1f}" r="6" fill="{colour}"/>' for score in scores]
    return lines


def draw() -> str:
    """The four panels beside each other."""
    width = PANEL * len(STEPS)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif" font-size="13"'
        f' fill="{TEXT}" role="img">',
        "<title>Which scores are compared: one against all, every pair, each with a boundary, each with zero</title>",
        f'<text x="10" y="{HEIGHT - 4}" fill="{POSITIVE}">labels that are there</text>',
        f'<text x="150" y="{HEIGHT - 4}" fill="{NEGATIVE}">labels that are not</text>',
        f'<text x="290" y="{HEIGHT - 4}">a line is a comparison; up is a higher score</text>',
    ]
    for place in range(len(STEPS)):
        lines += _panel(place)
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
