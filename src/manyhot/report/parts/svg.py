"""Charts as inline SVG: axes, lines, points and bars with the colours of the page, so that they follow its theme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from manyhot.report.parts.markup import Markup, element, join

MINUS = "\u2212"
DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 2")


class Plot:
    """A drawing with one pair of axes.

    Args:
        width: the width of the drawing, in units of about a pixel.
        height: the height of the drawing.
        x: the range of the horizontal axis.
        y: the range of the vertical axis.
        margins: left, right, top and bottom, for the text around the axes.
        log_x: whether the horizontal axis is logarithmic.
    """

    def __init__(
        self,
        width: int,
        height: int,
        *,
        x: tuple[float, float] = (0, 1),
        y: tuple[float, float] = (0, 1),
        margins: tuple[int, int, int, int] = (46, 12, 12, 40),
        log_x: bool = False,
    ) -> None:
        self.width, self.height, self.x, self.y, self.log_x = width, height, x, y, log_x
        self.left, right, self.top, bottom = margins
        self.right, self.bottom = width - right, height - bottom
        self.parts: list[Markup] = []

    def at_x(self, value: float) -> float:
        """The horizontal position of a value."""
        low, high = self.x
        if self.log_x:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.left + (value - low) / ((high - low) or 1) * (self.right - self.left)

    def at_y(self, value: float) -> float:
        """The vertical position of a value."""
        low, high = self.y
        return self.bottom - (value - low) / ((high - low) or 1) * (self.bottom - self.top)

    def add(self, name: str, *children: Any, **attributes: Any) -> None:
        """Add an SVG element."""
        self.parts.append(element(name, *children, **attributes))

    def text(self, x: float, y: float, words: Any, **attributes: Any) -> None:
        """Add text at a position."""
        self.parts.append(element("text", words, x=float(x), y=float(y), **attributes))

    def axes(
        self,
        x_title: str,
        y_title: str,
        *,
        x_ticks: Sequence[float] | None = None,
        y_ticks: Sequence[float] | None = None,
        grid: bool = True,
    ) -> None:
        """Draw the axes with ticks and titles, and grid lines at the vertical ticks."""
        for value in nice_ticks(*self.y) if y_ticks is None else y_ticks:
            place = self.at_y(value)
            if grid:
                self.add("line", x1=float(self.left), x2=float(self.right), y1=place, y2=place, class_="grid")
            self.text(self.left - 6, place + 3.5, tick_text(value), text_anchor="end", class_="tick")
        for value in nice_ticks(*self.x) if x_ticks is None else x_ticks:
            place = self.at_x(value)
            self.add("line", x1=place, x2=place, y1=float(self.bottom), y2=self.bottom + 4.0, class_="axis")
            self.text(place, self.bottom + 16, tick_text(value), text_anchor="middle", class_="tick")
        self.add("line", x1=float(self.left), x2=float(self.right), y1=float(self.bottom), y2=float(self.bottom), class_="axis")
        self.text((self.left + self.right) / 2, self.height - 6, x_title, text_anchor="middle", class_="axis-title")
        middle = (self.top + self.bottom) / 2
        turned = f"rotate(-90 12 {middle:.1f})"
        self.text(12, middle, y_title, text_anchor="middle", class_="axis-title", transform=turned)

    def line(self, xs: Sequence[float], ys: Sequence[float | None], *, series: int, class_: str = "", **more: Any) -> None:
        """Draw a line through the points that are not None."""
        points = [(self.at_x(x), self.at_y(y)) for x, y in zip(xs, ys, strict=True) if y is not None]
        if points:
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            dash = DASHES[(series - 1) % len(DASHES)] if class_ != "solid" else ""
            self.add("path", d=path, class_=f"line s{series} {class_}".strip(), stroke_dasharray=dash or None, **more)

    def mark(self, x: float, y: float, *, series: int, shape: str = "circle", size: float = 3.5, words: str = "") -> None:
        """Draw a point with a tooltip."""
        place_x, place_y = self.at_x(x), self.at_y(y)
        told = element("title", words) if words else None
        if shape == "circle":
            self.add("circle", told, cx=place_x, cy=place_y, r=size, class_=f"mark s{series}")
        elif shape == "square":
            corner = (place_x - size, place_y - size)
            self.add("rect", told, x=corner[0], y=corner[1], width=2 * size, height=2 * size, class_=f"mark s{series}")
        else:
            half = 1.4 * size
            path = f"M{place_x:.1f} {place_y - half:.1f}l{half:.1f} {half:.1f}l{-half:.1f} {half:.1f}l{-half:.1f} {-half:.1f}z"
            self.add("path", told, d=path, class_=f"mark s{series}")

    def drawing(self, title: str, description: str, **attributes: Any) -> Markup:
        """The SVG, with its title and description for screen readers."""
        return element(
            "svg",
            join(self.parts),
            viewBox=f"0 0 {self.width} {self.height}",
            role="img",
            aria_label=f"{title}. {description}",
            style=f"max-width:{self.width * 1.25:.0f}px",
            **attributes,
        )


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from ``low`` to ``high``.

    Example:
        >>> nice_ticks(0, 1), nice_ticks(3, 48)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [10.0, 20.0, 30.0, 40.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 10) for place in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within the range; if there are few, also 2 and 5 times each."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if len(powers) > 4 else (1, 2, 5)
    return [
        10.0**power * factor for power in powers for factor in factors if low * 0.999 <= 10.0**power * factor <= high * 1.001
    ]


def tick_text(value: float) -> str:
    r"""A number as text, with up to six digits and no trailing zeros.

    Example:
        >>> tick_text(0.2), tick_text(-1000.0) == "\u22121,000"
        ('0.2', True)
    """
    text = f"{value:,.6g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return text.replace("-", MINUS)


def legend(entries: Sequence[tuple[int, str, Markup | str]]) -> Markup:
    """The legend below a chart from ``(series, shape, text)``; the shape is a line, a bar, a square or a circle."""
    items = []
    for series, shape, words in entries:
        if shape == "line":
            dash = DASHES[(series - 1) % len(DASHES)] or None
            drawn = element("path", d="M1 6H27", class_=f"line s{series}", stroke_dasharray=dash)
        elif shape == "square":
            drawn = element("rect", x=10, y=2, width=8, height=8, class_=f"mark s{series}")
        elif shape == "bar":
            drawn = element("rect", x=6, y=0, width=16, height=12, class_=f"bar s{series}")
        else:
            drawn = element("circle", cx=14, cy=6, r=4, class_=f"mark s{series}")
        swatch = element("svg", drawn, viewBox="0 0 28 12", class_="swatch", aria_hidden="true")
        items.append(element("li", swatch, element("span", words)))
    return element("ul", items, class_="legend")
