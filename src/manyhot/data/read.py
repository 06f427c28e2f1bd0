"""Files to examples: one call for every format."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from manyhot._checks import check_at_least, check_choice
from manyhot.data.examples import Examples, concatenate_examples
from manyhot.data.files.input_file import MAX_LINE_BYTES, InputFile
from manyhot.data.files.label_files import names_in_label_file
from manyhot.data.files.problems import DataError, OnProblem, ProblemLog
from manyhot.data.files.streams import PathLike
from manyhot.data.formats.arff.read import read_arff
from manyhot.data.formats.delimited import read_delimited
from manyhot.data.formats.fasttext import read_fasttext
from manyhot.data.formats.jsonl import read_jsonl
from manyhot.data.formats.npz import read_npz
from manyhot.data.formats.parquet import read_parquet
from manyhot.data.formats.recognise import FORMATS, recognise_format
from manyhot.data.formats.svmlight import read_svmlight, read_xc
from manyhot.data.formats.tabbed import read_tabbed
from manyhot.data.options import ReadOptions

Reader = Callable[[InputFile, ReadOptions, ProblemLog], Examples]
READERS: dict[str, Reader] = {
    "jsonl": read_jsonl,
    "csv": read_delimited,
    "tsv": partial(read_delimited, format="tsv"),
    "parquet": read_parquet,
    "svmlight": read_svmlight,
    "xc": read_xc,
    "arff": read_arff,
    "fasttext": read_fasttext,
    "libmultilabel": partial(read_tabbed, format="libmultilabel"),
    "text-ids": partial(read_tabbed, format="text-ids"),
    "npz": read_npz,
}


def read_examples(
    path_or_paths: PathLike | Sequence[PathLike],
    *,
    format: str | None = None,
    text: str | Sequence[str] | None = None,
    labels: str | Sequence[str] | None = None,
    separator: str | None = None,
    features: str | Sequence[str] | None = None,
    ids: str | None = None,
    label_names: Sequence[str] | PathLike | None = None,
    label_file: PathLike | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    quoting: bool | None = None,
    empty_labels: Literal["none", "unknown"] = "none",
    need_labels: bool = True,
    max_line_bytes: int = MAX_LINE_BYTES,
    on_problem: OnProblem = "raise",
) -> Examples:
    """Read one file of examples, or several as one set.

    Formats: ``jsonl``, ``csv``, ``tsv``, ``parquet``, ``svmlight``, ``xc`` (the XC repository's, with its header line),
    ``arff`` (dense or sparse, labels in MULAN's XML beside it), ``fasttext``, ``libmultilabel``, ``text-ids`` (text TAB label
    numbers) and ``npz``; gz, bz2, xz and zst are undone. What was recognised and chosen is in ``Examples.source``.

    Args:
        path_or_paths: a file or several; ``"-"`` is the standard input. Labels of several files share one vocabulary.
        format: the format's name; None recognises it by name and content.
        text: the column with the text, or several, joined by line feeds (tables).
        labels: a string names the one column that holds each row's labels, as a list or a delimited string; a list, or a
            pattern with ``*``, names columns of 0 and 1, one per label (tables). In ARFF: the attributes that are labels.
        separator: between the labels of a delimited string; None finds the one of ``|``, ``;`` and ``,`` that occurs.
        features: feature columns or patterns (tables).
        ids: the column that names the rows (tables).
        label_names: all label names in order, or a file with one a line. Labels in the file are these names, or numbers from 0
            into them; others are an error.
        label_file: MULAN's XML for ARFF where it is not beside the file under its name; the labels' ``.npz``.
        delimiter: between the columns of CSV and TSV.
        header: whether the first line of CSV and TSV names the columns; with False they are called 1, 2, ...
        quoting: whether quotation marks enclose fields in CSV and TSV.
        empty_labels: what an empty cell means in a column of delimited labels: ``"none"``, the row has no label, or
            ``"unknown"``. Null in JSON and Parquet is always unknown, and so is an empty cell in a 0/1 column.
        need_labels: False reads rows to predict, without labels in the file.
        max_line_bytes: a longer line is an error.
        on_problem: ``"raise"``, or ``"collect"``: rows with problems are left out, the first ten problems are in
            ``Examples.source``. What makes a file unreadable is raised all the same.

    Returns:
        ``Examples``; label matrices and sparse features are kept sparse.

    Raises:
        DataError: with file, line, column, value and remedy.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "posts.csv"
        >>> _ = path.write_text("text,tags\\nhow to boil eggs,eggs;boiling\\nwhich pan is best,pans\\n")
        >>> examples = read_examples(path)
        >>> examples.label_names, examples.label_sets()
        (('boiling', 'eggs', 'pans'), [['boiling', 'eggs'], ['pans']])
        >>> examples.source[0].format, examples.source[0].chosen["separator"]
        ('csv', ';')
    """
    paths = [path_or_paths] if isinstance(path_or_paths, (str, os.PathLike)) else list(path_or_paths)
    if not paths:
        raise ValueError("read_examples: `path_or_paths` must name at least one file; got none.")
    check_choice("read_examples", "format", format, (None, *FORMATS))
    check_choice("read_examples", "empty_labels", empty_labels, ("none", "unknown"))
    check_choice("read_examples", "on_problem", on_problem, ("raise", "collect"))
    check_at_least("read_examples", "max_line_bytes", max_line_bytes, 1)
    names = names_in_label_file(label_names) if isinstance(label_names, (str, os.PathLike)) else label_names
    options = ReadOptions(
        text=text,
        labels=labels,
        separator=separator,
        features=features,
        ids=ids,
        label_names=None if names is None else tuple(names),
        label_file=None if label_file is None else str(label_file),
        delimiter=delimiter,
        header=header,
        quoting=quoting,
        empty_labels=empty_labels,
        need_labels=need_labels,
        max_line_bytes=max_line_bytes,
        on_problem=on_problem,
    )
    parts = [_read_file(path, format, options) for path in paths]
    kinds = {part.kind for part in parts}
    if len(kinds) > 1:
        raise DataError(f"all files must hold one kind of input; they hold {' and '.join(sorted(kinds))}.", file=str(paths[-1]))
    try:
        return concatenate_examples(parts)
    except ValueError as error:
        raise DataError(str(error), file=", ".join(map(str, paths))) from None


def _read_file(path: PathLike, format: str | None, options: ReadOptions) -> Examples:
    problems = ProblemLog(options.on_problem, str(path))
    with InputFile(path, max_line_bytes=options.max_line_bytes) as file:
        found = format or recognise_format(file)
        if not file.peek():
            raise problems.fatal("must hold examples; the file is empty.")
        examples = READERS[found](file, options, problems)
    if not len(examples):
        first = f" The first problem: {problems.kept[0]}" if problems.kept else ""
        raise problems.fatal(f"must hold at least one row that can be read; it holds none.{first}")
    if file.compression is None:
        return examples
    source = examples.source[0]
    return replace(examples, source=(replace(source, chosen={**source.chosen, "compression": file.compression}),))
