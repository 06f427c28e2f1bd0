"""Text from files made safe to print: control characters, which could change the state of a terminal, are escaped."""

from __future__ import annotations

import re

# C0 and C1 control characters except tab and line feed, delete, and the marks that change the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""``text`` with control characters as escapes.

    Example:
        >>> printable("a\x1b[31mred")
        'a\\x1b[31mred'
    """
    return _CONTROL.sub(lambda found: _escape(found.group()), text)


def masked(text: str) -> str:
    """``text`` with control characters replaced one by one, so that character offsets stay valid.

    Example:
        >>> masked("a\\x1bb")
        'a\ufffdb'
    """
    return _CONTROL.sub("\ufffd", text)


def safe_json(text: str) -> str:
    r"""JSON ``text`` with all control characters escaped; its meaning does not change.

    Example:
        >>> safe_json('"a\x9b"')
        '"a\\u009b"'
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
