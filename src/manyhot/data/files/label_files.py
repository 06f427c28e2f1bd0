"""Label files, which name the labels of a data file: MULAN's XML, or one name per line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from manyhot.data.files.input_file import InputFile, bare_name
from manyhot.data.files.problems import DataError
from manyhot.data.files.streams import MAX_EXPANSION, PathLike

_ESCAPE = re.compile(r"\\(.)")
_PARTS = re.compile(r"[-_.](train|test|dev|valid|val|sparse|dense|all)$")


def unescaped(name: str) -> str:
    r"""A name with its escapes resolved, the same for ARFF and XML.

    Example:
        >>> unescaped(r"m\'usica")
        "m'usica"
    """
    return _ESCAPE.sub(r"\1", name)


def names_in_label_file(path: PathLike, *, max_expansion: int = MAX_EXPANSION) -> tuple[str, ...]:
    """Label names from MULAN's XML, or from a text file with one name per line."""
    read = names_in_mulan_xml if bare_name(path).endswith(".xml") else names_in_text_file
    return read(path, max_expansion=max_expansion)


def names_in_text_file(path: PathLike, *, max_expansion: int = MAX_EXPANSION) -> tuple[str, ...]:
    """One name per line; empty lines at the end do not count."""
    with InputFile(path, max_expansion=max_expansion) as file:
        names = [text.strip() for _, text in file.lines()]
    while names and not names[-1]:
        names.pop()
    return _checked(names, path)


def names_in_mulan_xml(path: PathLike, *, max_expansion: int = MAX_EXPANSION) -> tuple[str, ...]:
    """The labels in MULAN's XML, including those of a hierarchy, in the order of the file."""
    with InputFile(path, max_expansion=max_expansion) as file:
        content = file.read(file.max_line_bytes)
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        line, column = getattr(error, "position", (None, None))
        raise DataError(f"must be MULAN's XML of labels; {error}.", file=str(path), line=line, column=column) from None
    found = [element.get("name") for element in root.iter() if element.tag.rpartition("}")[2] == "label"]
    if not found or None in found:
        raise DataError("must be MULAN's XML: <labels> with <label name=...> in it; found no such names.", file=str(path))
    return _checked([unescaped(name.strip()) for name in found if name is not None], path)


def find_mulan_xml(path: PathLike) -> Path | None:
    """The XML beside an ARFF file: the same name, or the name without suffixes such as -train, -test, -sparse.

    For ``name-train-sparse.arff``: the first of ``name-train-sparse.xml``, ``name-train.xml`` and ``name.xml`` that exists, in
    upper or lower case.
    """
    folder = Path(path).parent
    xml = [child for child in sorted(folder.glob("*")) if child.name.lower().endswith(".xml") and child.is_file()]
    there = {child.name.lower(): child for child in xml}
    stem = bare_name(path).removesuffix(".arff")
    while True:
        if f"{stem}.xml" in there:
            return there[f"{stem}.xml"]
        shorter = _PARTS.sub("", stem)
        if shorter == stem:
            return None
        stem = shorter


def _checked(names: Sequence[str], path: PathLike) -> tuple[str, ...]:
    if not names:
        raise DataError("must hold at least one label name; it holds none.", file=str(path))
    seen: set[str] = set()
    for place, name in enumerate(names):
        if not name or name in seen:
            what = f"{name!r} occurs twice" if name else f"name {place + 1} is empty"
            raise DataError(f"label names must differ and not be empty; {what}.", file=str(path))
        seen.add(name)
    return tuple(names)
