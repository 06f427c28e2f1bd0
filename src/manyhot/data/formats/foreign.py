"""Files of other programs, told apart by their first bytes, so that the error says what to do with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_ZIP = b"PK\x03\x04"


class Foreign(NamedTuple):
    """A kind of file that is not read: what it is, what to do with it, and how it is told apart."""

    what: str
    remedy: str
    matches: Callable[[bytes], bool]


def _starts(*magic: bytes) -> Callable[[bytes], bool]:
    return lambda content: content.startswith(magic)


def _first_member(content: bytes) -> bytes:
    """The name of the first file in a zip archive."""
    return content[30 : 30 + int.from_bytes(content[26:28], "little")] if content.startswith(_ZIP) else b""


def _is_workbook(content: bytes) -> bool:
    if content.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return True
    sheets = _first_member(content) == b"mimetype" and b"opendocument.spreadsheet" in content[:120]
    return sheets or _first_member(content).startswith((b"[Content_Types].xml", b"_rels/", b"docProps/", b"xl/"))


def _is_archive(content: bytes) -> bool:
    if content.startswith(_ZIP):
        return not _first_member(content).endswith(b".npy")
    return content.startswith((b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07")) or content[257:262] == b"ustar"


FOREIGN = (
    Foreign("a workbook of Excel or another office program", "Save the sheet as CSV (UTF-8)", _is_workbook),
    Foreign("an archive", "Unpack it, and name a file in it", _is_archive),
    Foreign("a SQLite database", "Write a table of it as CSV", _starts(b"SQLite format 3\x00")),
    Foreign("an HDF5 or Arrow file", "Write it as Parquet", _starts(b"\x89HDF\r\n\x1a\n", b"ARROW1")),
    Foreign(
        "a pickle, which could run any code", "Write it as Parquet, CSV or .npz", _starts(b"\x80\x03", b"\x80\x04", b"\x80\x05")
    ),
    Foreign("a PDF document", "Write its text as plain text or CSV", _starts(b"%PDF-")),
)


def foreign_remedy(content: bytes) -> str | None:
    """What to say about a file of another program, by its first bytes; None for any other file.

    Example:
        >>> foreign_remedy(b"%PDF-1.7 ...")
        'must be a file of examples; it is a PDF document. Write its text as plain text or CSV.'
    """
    found = next((each for each in FOREIGN if each.matches(content)), None)
    return None if found is None else f"must be a file of examples; it is {found.what}. {found.remedy}."
