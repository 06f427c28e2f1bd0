"""HTML and SVG as nested calls. All text is escaped, and markup is created only here."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from typing import Any

# Characters that HTML does not allow, and lone surrogates, which cannot be encoded.
NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
EMPTY_ELEMENTS = {"meta", "br", "img", "input", "hr", "link"}


class Markup(str):
    """Text that is already markup. Created only by ``element``, ``join`` and ``data_block``."""

    __slots__ = ()


def escape(text: Any) -> Markup:
    """Escape text for a page or an attribute.

    Example:
        >>> escape('<b title="x">')
        '&lt;b title=&quot;x&quot;&gt;'
    """
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(NOT_TEXT.sub("\ufffd", str(text)), quote=True))


def join(*children: Any) -> Markup:
    """Join children in order: markup stays unchanged, text is escaped, None is skipped, lists are flattened."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Iterable) and not isinstance(child, str):
            parts.append(join(*child))
        else:
            parts.append(escape(child))
    return Markup("".join(parts))


def element(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An HTML or SVG element. ``class_`` and ``for_`` are the attributes class and for; other underscores become dashes.

    Args:
        name: the name of the element.
        *children: as in ``join``.
        **attributes: None and False are omitted; True is an attribute without a value.

    Example:
        >>> element("td", "a < b", class_="name", data_value=2)
        '<td class="name" data-value="2">a &lt; b</td>'
    """
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        spelled = key.rstrip("_").replace("_", "-") if key not in ("viewBox",) else key
        written.append(f" {spelled}" if value is True else f' {spelled}="{escape(_plain(value))}"')
    opening = f"<{name}{''.join(written)}>"
    return Markup(opening if name in EMPTY_ELEMENTS else f"{opening}{join(*children)}</{name}>")


def data_block(identifier: str, data: Any) -> Markup:
    """JSON inside a page, escaped so that no text in it can end the block."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{escape(identifier)}">{text}</script>')


def name_of(text: str, most: int = 0) -> Markup:
    """A name from the data, with its own writing direction, and shortened if it is long."""
    short = text if not most or len(text) <= most else text[: most - 1] + "…"
    return element("bdi", short, title=text if short != text else None)


def _plain(value: Any) -> Any:
    """A float with at most two decimals, for coordinates; other values unchanged."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
