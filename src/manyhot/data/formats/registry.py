"""The registry of file formats."""

from __future__ import annotations

from pathlib import Path

from manyhot._checks import check_choice
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import DataError, shown
from manyhot.data.formats import delimited, fasttext, jsonl, mapped, npz, parquet, plain_text, svmlight, tabbed
from manyhot.data.formats.arff import read as arff
from manyhot.data.formats.foreign import foreign_remedy
from manyhot.data.formats.format import FileStart, Format, Holds
from manyhot.data.spans import brat, conll
from manyhot.data.spans import jsonl as span_jsonl

# Formats are tried in this order when a file's format is detected.
FORMATS: list[Format] = [
    jsonl.FORMAT,
    jsonl.ARRAY,
    delimited.CSV,
    delimited.TSV,
    parquet.FORMAT,
    svmlight.XC,
    svmlight.FORMAT,
    arff.FORMAT,
    fasttext.FORMAT,
    tabbed.TEXT_IDS,
    tabbed.LIBMULTILABEL,
    npz.FORMAT,
    mapped.FORMAT,
    plain_text.FORMAT,
    brat.FORMAT,
    conll.FORMAT,
    span_jsonl.ARRAY,
    span_jsonl.CLUENER,
    span_jsonl.FORMAT,
    plain_text.SPANS,
]


def formats(holds: Holds) -> dict[str, Format]:
    """The formats of files that hold labels, or spans, by name.

    Example:
        >>> formats("labels")["jsonl"].by_lines, list(formats("spans"))
        (True, ['brat', 'conll', 'span-json', 'cluener', 'span-jsonl', 'text'])
    """
    return {format.name: format for format in FORMATS if format.holds == holds}


def format_named(who: str, name: str, holds: Holds) -> Format:
    """The format of a name; one that does not exist is an error that lists them."""
    known = formats(holds)
    check_choice(who, "format", name, tuple(known))
    return known[name]


def folder_format(path: Path, holds: Holds) -> Format | None:
    """The format that takes a path as a whole, a folder or a pair of files, or None."""
    return next((each for each in formats(holds).values() if each.folder is not None and each.folder(path)), None)


def recognise_format(file: InputFile, holds: Holds = "labels", *, labelled: bool = True) -> Format:
    """The format of an open file, by its first bytes, its name and its first lines.

    Args:
        file: the open file, from which nothing is consumed.
        holds: labels or spans.
        labelled: False also accepts files of texts only.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "questions"
        >>> _ = path.write_text("__label__sauce How long does it keep?\\n")
        >>> with InputFile(path) as file:
        ...     recognise_format(file).name
        'fasttext'
    """
    start = FileStart.of(file)
    foreign = foreign_remedy(start.content)
    if foreign is not None:
        raise DataError(foreign, file=file.name)
    known = list(formats(holds).values())
    by_bytes = [each for each in known if each.magic and start.content.startswith(each.magic)]
    by_name = [each for each in known if start.name.endswith(each.suffixes)]
    if start.content and (by_bytes or by_name):
        return (by_bytes or by_name)[0]
    if not start.lines:
        what = "it holds only blank lines" if start.content else "the file is empty"
        raise DataError(f"must hold examples; {what}.", file=file.name)
    found = [each for each in known if each.looks(start)]
    found += [each for each in known if start.name.endswith(each.likely_suffixes) or (each.unlabelled and not labelled)]
    if found:
        return found[0]
    raise DataError(
        f"its format was not recognised; the first line is {shown(start.lines[0])}."
        f" Set `format` to one of {', '.join(each.name for each in known)}.{other_task(start, holds)}",
        file=file.name,
    )


def other_task(start: FileStart, holds: Holds) -> str:
    """A hint for a file of the other task: spans instead of labels."""
    if holds == "spans":
        return ""
    found = next((each for each in formats("spans").values() if each.certain(start)), None)
    return "" if found is None else f" It looks like a file of marked spans ({found.name}): use `task='spans'`."
