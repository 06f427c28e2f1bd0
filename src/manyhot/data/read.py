"""Reading files of every format as examples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from manyhot._checks import check_at_least, check_choice
from manyhot.data.examples import Examples, concatenate_examples
from manyhot.data.files.input_file import MAX_LINE_BYTES, InputFile
from manyhot.data.files.label_files import names_in_label_file
from manyhot.data.files.problems import NO_MEMORY, DataError, OnProblem, ProblemLog
from manyhot.data.files.streams import MAX_EXPANSION, PathLike
from manyhot.data.formats.format import FileStart, Format
from manyhot.data.formats.registry import folder_format, format_named, other_task, recognise_format
from manyhot.data.options import MAX_LABELS, ReadOptions
from manyhot.data.used_options import check_options_used


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
    decimal: Literal[".", ","] | None = None,
    empty_labels: Literal["none", "unknown"] = "none",
    index_base: Literal[0, 1] | None = None,
    need_labels: bool = True,
    max_line_bytes: int = MAX_LINE_BYTES,
    max_expansion: int = MAX_EXPANSION,
    max_labels: int = MAX_LABELS,
    on_problem: OnProblem = "raise",
) -> Examples:
    """Read one file of examples, or several as one set.

    Formats: ``jsonl``, ``json`` (one array of objects), ``csv``, ``tsv``, ``parquet``, ``svmlight``, ``xc`` (the XC
    repository's, with its header line), ``arff`` (dense or sparse, labels in MULAN's XML beside it), ``fasttext``,
    ``libmultilabel``, ``text-ids`` (text TAB label numbers), ``npz``, ``mapped`` (a folder that ``manyhot pack`` wrote) and
    ``text`` (one text per line, to predict); gz, bz2, xz and zst files are decompressed. ``Examples.source`` records what was
    detected and chosen. Labels may be soft: a number for each label in JSON lines, or fractions in 0/1 columns.

    Args:
        path_or_paths: a file or several; ``"-"`` is the standard input. Labels of several files share one vocabulary.
        format: the format's name; None recognises it by name and content.
        text: the column with the text, or several, joined by line feeds (tables).
        labels: a string names the one column that holds each row's labels, as a list or a delimited string; a list, or a
            pattern with ``*``, names columns of 0 and 1, one per label (tables). In ARFF: the attributes that are labels.
        separator: between the labels of a delimited string; None detects which of ``|``, ``;`` and ``,`` occurs.
        features: feature columns or patterns (tables); None takes all other columns if there is no text.
        ids: the column with the row ids (tables); None takes a column named ``id`` or similar.
        label_names: all label names in order, or a file with one per line. Labels in the file are these names or their
            numbers from 0; others are an error.
        label_file: MULAN's XML for ARFF, or the ``.npz`` of the labels; None takes the file with the same name beside the data.
        delimiter: between the columns of CSV and TSV; None detects it.
        header: whether the first line of CSV and TSV names the columns; with False they are named 1, 2, ... None is True, but a
            first line of numbers is an error.
        quoting: whether quotation marks enclose fields in CSV and TSV; None detects it.
        decimal: the decimal mark of numbers in CSV and TSV, ``"."`` or ``","``; None detects it. With a comma a point is read
            as one too.
        empty_labels: what an empty cell means in a column of delimited labels: ``"none"``, the row has no label, or
            ``"unknown"``. Null in JSON and Parquet is always unknown, and so is an empty cell in a 0/1 column.
        index_base: whether the features of svmlight count from 0 or from 1; None takes 1 unless some row has a feature 0.
        need_labels: False reads rows to predict, without labels in the file.
        max_line_bytes: a longer line is an error.
        max_expansion: a compressed file that expands by more than this factor is an error.
        max_labels: the largest number of labels that the header of a file or a matrix may claim.
        on_problem: ``"raise"``, or ``"collect"``: rows with problems are skipped, the first ten problems are in
            ``Examples.source``. Errors that make a whole file unreadable are always raised.

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
    options = options_from(
        text=text,
        labels=labels,
        separator=separator,
        features=features,
        ids=ids,
        label_names=label_names,
        label_file=label_file,
        delimiter=delimiter,
        header=header,
        quoting=quoting,
        decimal=decimal,
        empty_labels=empty_labels,
        index_base=index_base,
        need_labels=need_labels,
        max_line_bytes=max_line_bytes,
        max_expansion=max_expansion,
        max_labels=max_labels,
        on_problem=on_problem,
    )
    examples = read_with(paths, options, format=format)
    check_options_used(asdict(options), examples.source)
    return examples


def options_from(
    *, label_names: Sequence[str] | PathLike | None = None, label_file: PathLike | None = None, **given: Any
) -> ReadOptions:
    """The arguments of ``read_examples``, checked and gathered; label names in a file are read."""
    who = "read_examples"
    names = names_in_label_file(label_names) if isinstance(label_names, (str, os.PathLike)) else label_names
    options = ReadOptions(
        label_names=None if names is None else tuple(names),
        label_file=None if label_file is None else str(label_file),
        **given,
    )
    check_choice(who, "empty_labels", options.empty_labels, ("none", "unknown"))
    check_choice(who, "index_base", options.index_base, (None, 0, 1))
    check_choice(who, "on_problem", options.on_problem, ("raise", "collect"))
    for name in ("max_line_bytes", "max_expansion", "max_labels"):
        check_at_least(who, name, getattr(options, name), 1)
    if options.separator == "":
        raise ValueError(f"{who}: `separator` must not be empty. For labels separated by spaces use `separator=' '`.")
    return options


def read_with(paths: Sequence[PathLike], options: ReadOptions, *, format: str | None = None) -> Examples:
    """``read_examples`` with its arguments gathered in ``options``."""
    named = None if format is None else format_named("read_examples", format, "labels")
    return joined([read_path(path, named, options) for path in paths], paths)


def joined(parts: Sequence[Examples], paths: Sequence[PathLike]) -> Examples:
    """The rows of several files as one set."""
    kinds = {part.kind for part in parts}
    mapped = [path for path in paths if folder_entry(path, None) is not None]
    if mapped and len(parts) > 1:
        raise DataError("a folder of packed rows must be the only input. Pack all files into one folder.", file=str(mapped[0]))
    if len(kinds) > 1:
        raise DataError(f"all files must hold one kind of input; they hold {' and '.join(sorted(kinds))}.", file=str(paths[-1]))
    try:
        _check_same_columns(parts)
        return concatenate_examples(_counted_alike(parts))
    except ValueError as error:
        raise DataError(str(error), file=", ".join(map(str, paths))) from None
    except MemoryError:
        raise DataError(NO_MEMORY, file=", ".join(map(str, paths))) from None


def read_open(file: InputFile, entry: Format, options: ReadOptions, problems: ProblemLog) -> Examples:
    """All rows of an open file, which is read once."""
    file.problems = problems
    start = FileStart.of(file)
    if not start.content:
        raise problems.fatal("must hold examples; the file is empty.")
    try:
        examples: Examples = entry.read(file, options, problems)
        if not len(examples):
            raise problems.fatal(f"must hold at least one row that can be read; it holds none.{problems.first()}")
    except MemoryError:
        raise problems.fatal(NO_MEMORY) from None
    except DataError as error:
        hint = other_task(start, "labels") if start.lines and options.need_labels else ""
        if not hint:
            raise
        problem = error.problem
        raise DataError(problem.message + hint, file=problem.file, line=problem.line, column=problem.column) from None
    if examples.features is not None and not examples.num_features and options.need_labels:
        raise problems.fatal("rows must have features to learn from; no row has one.")
    source = examples.source[0]
    chosen = source.chosen if file.compression is None else {**source.chosen, "compression": file.compression}
    told = replace(source, chosen=chosen, problems=tuple(problems.kept), num_problems=problems.count)
    return replace(examples, source=(told,))


def read_path(path: PathLike, named: Format | None, options: ReadOptions) -> Examples:
    """All rows of one file, or of a folder that is one input."""
    problems = ProblemLog(options.on_problem, str(path))
    folder = folder_entry(path, named)
    if folder is not None:
        examples: Examples = folder.read(Path(path), options, problems)
        return examples
    with InputFile(path, max_line_bytes=options.max_line_bytes, max_expansion=options.max_expansion) as file:
        entry = named or recognise_format(file, labelled=options.need_labels)
        return read_open(file, entry, options, problems)


def folder_entry(path: PathLike, named: Format | None) -> Format | None:
    """The format of a path that is not a single file, or None."""
    if named is not None and named.folder is None:
        return None
    found = None if str(path) == "-" else folder_format(Path(path), "labels")
    if named is not None and found is None:
        raise DataError(f"must be a folder of rows ({named.name}) that `manyhot pack` wrote; it is not.", file=str(path))
    return found


def _check_same_columns(parts: Sequence[Examples]) -> None:
    """Check that a categorical column in one file is not numeric in another."""
    sources = [source for part in parts for source in part.source if source.chosen.get("features")]
    nominal = {column for source in sources for column in source.chosen.get("nominal", ())}
    for source in sources:
        numeric = nominal & set(source.chosen["features"]) - set(source.chosen.get("nominal", ()))
        if numeric:
            raise ValueError(
                f"column {sorted(numeric)[0]!r} must hold names in every file; in {source.path} it holds numbers."
                " Use names or numbers in all files."
            )


def _counted_alike(parts: Sequence[Examples]) -> list[Examples]:
    """Numbered features with a common index base: if one file has a feature 0, all count from 0."""
    bases = [part.source[0].chosen.get("first_index") if part.source else None for part in parts]
    if 0 not in bases or 1 not in bases:
        return list(parts)
    return [part.counted_from_0() if base == 1 else part for part, base in zip(parts, bases, strict=True)]
