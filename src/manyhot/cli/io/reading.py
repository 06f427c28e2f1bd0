"""How files of examples are named and read on the command line, the same for every verb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from manyhot.cli.io.flags import Flag, with_flags
from manyhot.data.examples import Examples
from manyhot.data.formats.recognise import FORMATS
from manyhot.data.read import read_examples

PANEL = "How to read the files"
READ_FLAGS = (
    Flag("format", str, f"The format, where it is not recognised: {', '.join(FORMATS)}.", choices=FORMATS),
    Flag("text", list[str], "The column with the text; several are joined."),
    Flag("labels", list[str], "The column with each row's labels; several, or a pattern with *, are columns of 0 and 1."),
    Flag("separator", str, "Between the labels of a delimited string."),
    Flag("features", list[str], "Feature columns, or patterns with *."),
    Flag("ids", str, "The column that names the rows."),
    Flag("label_names", str, "A file with all label names, one a line, in order."),
    Flag("label_file", str, "MULAN's XML for ARFF, or the labels' .npz, where it is not beside the file."),
    Flag("delimiter", str, "Between the columns of CSV and TSV."),
    Flag("header", bool, "Whether the first line of CSV and TSV names the columns."),
    Flag("quoting", bool, "Whether quotation marks enclose fields in CSV and TSV."),
    Flag("empty_labels", str, "What an empty cell of labels means: none or unknown.", "none", ("none", "unknown")),
    Flag("max_line_bytes", int, "A longer line is an error."),
)

read_flags = with_flags("reading", READ_FLAGS, panel=PANEL)
FilesArgument = Annotated[list[str], typer.Argument(help="Files of examples, read as one set; - is the standard input.")]


def reading_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Flags as arguments for ``read_examples``, and as they are kept in the table ``[read]`` of a settings file."""
    chosen = dict(given)
    # One name is a column that holds a row's labels; a pattern or several names are columns of 0 and 1.
    for name in ("labels", "text", "features"):
        value = chosen.get(name)
        if isinstance(value, list) and len(value) == 1:
            chosen[name] = value[0]
    if "delimiter" in chosen:
        chosen["delimiter"] = chosen["delimiter"].replace("\\t", "\t")
    return chosen


def read_files(files: Sequence[str], reading: Mapping[str, Any]) -> Examples:
    """Examples of one file or several."""
    return read_examples(files[0] if len(files) == 1 else list(files), **reading)


def absolute(path: str) -> str:
    """A path that holds in any folder; ``-`` stays."""
    return path if path == "-" else str(Path(path).absolute())
