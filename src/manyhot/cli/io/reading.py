"""The command-line flags for reading files of examples, the same for every command."""

from __future__ import annotations

from collections.abc import Mapping, MutableSet, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyhot.cli.io.console import say
from manyhot.cli.io.flags import Flag, name_flags, with_flags
from manyhot.data.examples import Examples, Source
from manyhot.data.files.input_file import MAX_LINE_BYTES
from manyhot.data.files.streams import MAX_EXPANSION
from manyhot.data.formats.registry import formats
from manyhot.data.options import MAX_LABELS, ReadOptions
from manyhot.data.parts import read_together
from manyhot.data.read import options_from, read_with
from manyhot.data.tables.decimals import MARKS
from manyhot.data.used_options import check_options_used

if TYPE_CHECKING:
    from manyhot.training.run.processes import Processes

PANEL = "How to read the files"
FORMAT_NAMES = tuple(formats("labels"))
READ_FLAGS = (
    Flag("format", str, f"The format: {', '.join(FORMAT_NAMES)}. Default: detected.", choices=FORMAT_NAMES),
    Flag("text", list[str], "The text column; may be repeated, texts are then joined. Default: chosen by name and content."),
    Flag(
        "labels",
        list[str],
        "The column with each row's labels. Several columns, or a pattern with *, are columns of 0 and 1, one per label."
        " Default: chosen by name and content.",
    ),
    Flag("separator", str, "Separator of the labels in a cell. Default: | ; or , whichever occurs."),
    Flag(
        "features",
        list[str],
        "A feature column, or a pattern with *; may be repeated. Default: all other columns, if there is no text column.",
    ),
    Flag("ids", str, "The column with the row ids. Default: a column named id or similar."),
    Flag("label_names", str, "A file with all label names in order, one per line. Default: the labels that occur in the data."),
    Flag(
        "label_file",
        str,
        "The file with the labels: MULAN's XML for ARFF, or an .npz. Default: the file beside the data with the same name.",
    ),
    Flag("delimiter", str, "Delimiter of the columns in CSV and TSV. Default: detected in the first line."),
    Flag("header", bool, "Whether the first line of CSV and TSV names the columns. Default: yes."),
    Flag("quoting", bool, "Whether quotation marks enclose fields in CSV and TSV. Default: yes in CSV, detected in TSV."),
    Flag(
        "decimal",
        str,
        "Decimal mark of numbers in CSV and TSV, . or a comma; with a comma a point is read as one too. Default: detected.",
        None,
        MARKS,
    ),
    Flag("empty_labels", str, "What an empty label cell means: none or unknown.", "none", ("none", "unknown")),
    Flag(
        "index_base",
        int,
        "Number of the first feature in svmlight, 0 or 1. Default: as in training; otherwise 1, or 0 if there is a feature 0.",
    ),
    Flag("skip_bad", bool, "Skip rows that cannot be read and list them, instead of stopping at the first one.", False),
    Flag("max_line_bytes", int, "Maximum number of bytes in a line; a longer line is an error.", MAX_LINE_BYTES),
    Flag("max_expansion", int, "Maximum ratio of the decompressed to the compressed size of a file.", MAX_EXPANSION),
    Flag("max_labels", int, "Maximum number of labels that the header of a file may declare.", MAX_LABELS),
)

read_flags = with_flags("reading", READ_FLAGS, panel=PANEL)
FilesArgument = Annotated[list[str], typer.Argument(help="Files of examples, read as one set; - is the standard input.")]
# True for a switch, which takes no value.
_SWITCHES = {flag.name: flag.type is bool for flag in READ_FLAGS} | {"task": False, "scheme": False}


def reading_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Flags in the form of the table ``[read]`` of a settings file."""
    chosen = dict(given)
    # One name is a column that holds a row's labels; a pattern or several names are columns of 0 and 1.
    for name in ("labels", "text", "features"):
        value = chosen.get(name)
        if isinstance(value, list) and len(value) == 1:
            chosen[name] = value[0]
    if "delimiter" in chosen:
        chosen["delimiter"] = chosen["delimiter"].replace("\\t", "\t")
    return chosen


def read_options(reading: Mapping[str, Any], **more: Any) -> tuple[ReadOptions, str | None]:
    """The options of a reader, and the name of the format if given, from flags or a settings file."""
    given = {**reading, **more}
    format, nominal = given.pop("format", None), given.pop("nominal", None)
    if given.pop("skip_bad", False):
        given["on_problem"] = "collect"
    try:
        return replace(options_from(**given), nominal=nominal), format
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(as_typed(str(error).removeprefix("read_examples: "))) from None


def read_files(
    files: Sequence[str],
    reading: Mapping[str, Any],
    *,
    inherited: Mapping[str, Any] | None = None,
    quiet: bool = False,
    processes: Processes | None = None,
    **more: Any,
) -> Examples:
    """Read one file or several; prints what the readers guessed and skipped.

    Args:
        files: their names.
        reading: flags or the table of a settings file; a flag that no file uses is an error.
        inherited: how other files were read; ``reading`` takes precedence.
        quiet: print no messages.
        processes: processes that each read a share of the files; None for one process.
        more: further arguments of ``read_options``.
    """
    options, format = read_options({**(inherited or {}), **reading}, **more)
    if processes is None or processes.count == 1 or "-" in files:
        examples = read_with(files, options, format=format)
    else:
        place: dict[str, Any] = {"rank": processes.rank, "count": processes.count, "gather": processes.in_turn}
        examples = read_together(files, options, format=format, **place)
    check_options_used(reading, examples.source)
    tell(examples.source, quiet=quiet)
    return examples


def tell(sources: Sequence[Source], *, quiet: bool = False, said: MutableSet[str] | None = None) -> None:
    """Print what the readers guessed, each sentence once, and the rows that were skipped."""
    known = set() if said is None else said
    for source in sources:
        for remark in source.remarks:
            if remark not in known:
                known.add(remark)
                say(f"{source.path}: {as_typed(remark)}", quiet=quiet)
        if source.num_problems:
            more = ", the first of them" if source.num_problems > len(source.problems) else ""
            say(f"{source.path}: {source.num_problems:,} bad rows were skipped{more}:", quiet=quiet)
            for problem in source.problems:
                say(f"- {as_typed(str(problem))}", quiet=quiet)


def as_typed(message: str) -> str:
    """A message of the library with its arguments replaced by flags.

    Example:
        >>> as_typed("Name it with `label_names`, or give `header=False` or `separator=' '`.")
        "Name it with --label-names, or give --no-header or --separator ' '."
    """
    return name_flags(message, _SWITCHES)


def absolute(path: str) -> str:
    """The absolute path; ``-`` stays."""
    return path if path == "-" else str(Path(path).absolute())
