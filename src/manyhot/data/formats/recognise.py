"""Which format a file has, by its name and its first lines."""

from __future__ import annotations

import re

from manyhot.data.files.input_file import InputFile, bare_name
from manyhot.data.files.problems import DataError, shown
from manyhot.data.formats.delimited import DELIMITERS, looks_like_header
from manyhot.data.formats.fasttext import PREFIX
from manyhot.data.formats.svmlight import xc_sizes
from manyhot.data.formats.tabbed import tabbed_format

FORMATS = ("jsonl", "csv", "tsv", "parquet", "svmlight", "xc", "arff", "fasttext", "libmultilabel", "text-ids", "npz")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arff": "arff",
    ".npz": "npz",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".svm": "svmlight",
}
_SVMLIGHT = re.compile(r"[^\s:]*(\s+\d+:[^\s:]+)*\s*(#.*)?", re.ASCII)
_LINES = 200


def recognise_format(file: InputFile) -> str:
    """The format's name; a file that fits none is an error that lists them.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "questions"
        >>> _ = path.write_text("__label__sauce How long does it keep?\\n")
        >>> with InputFile(path) as file:
        ...     recognise_format(file)
        'fasttext'
    """
    start = file.peek()
    if not start:
        raise DataError("must hold examples; the file is empty.", file=file.name)
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"PK\x03\x04"):
        return "npz"
    name = bare_name(file.name)
    by_name = next((format for suffix, format in _SUFFIXES.items() if name.endswith(suffix)), None)
    if by_name is not None:
        return by_name
    lines = _first_lines(start)
    if not lines:
        raise DataError("must hold examples; it holds only blank lines.", file=file.name)
    found = _by_content(lines, tab_named=name.endswith((".tsv", ".tab")))
    if found is None and name.endswith(".json"):
        found = "jsonl"
    if found is None:
        raise DataError(
            f"its format was not recognised; the first line is {shown(lines[0])}. Say `format`: one of {', '.join(FORMATS)}.",
            file=file.name,
        )
    return found


def _first_lines(start: bytes) -> list[str]:
    """The first lines that are whole and not blank; what is no UTF-8 is left to the reader, which says where."""
    lines = start.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
    whole = lines[:-1] if len(lines) > 1 else lines
    return [line.rstrip("\r") for line in whole if line.strip()][:_LINES]


def _by_content(lines: list[str], *, tab_named: bool) -> str | None:
    first = lines[0].lstrip()
    if first.startswith("{"):
        return "jsonl"
    if next((line.lower() for line in lines if not line.startswith("%")), "").startswith(("@relation", "@attribute")):
        return "arff"
    xc = xc_sizes(first) is not None
    pairs = lines[1:] if xc else lines
    if any(":" in line for line in pairs) and all(_SVMLIGHT.fullmatch(line) for line in pairs):
        return "xc" if xc else "svmlight"
    if sum(PREFIX in line for line in lines) > len(lines) / 2:
        return "fasttext"
    if "\t" in first:
        return "tsv" if looks_like_header(first.split("\t")) else tabbed_format(lines) or ("tsv" if tab_named else None)
    named = any(mark in first and looks_like_header(first.split(mark)) for mark in DELIMITERS)
    return "csv" if named else "tsv" if tab_named else None
