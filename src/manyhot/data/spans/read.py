"""Reading files of texts with spans."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from manyhot._checks import check_at_least, check_choice
from manyhot.data.files.input_file import MAX_LINE_BYTES, InputFile
from manyhot.data.files.problems import NO_MEMORY, OnProblem, ProblemLog
from manyhot.data.files.streams import MAX_EXPANSION, PathLike
from manyhot.data.formats.format import Format
from manyhot.data.formats.registry import folder_format, format_named, recognise_format
from manyhot.data.spans.conll import FORMAT as CONLL
from manyhot.data.spans.conll import SCHEMES
from manyhot.data.spans.examples import SpanExamples, concatenate_span_examples
from manyhot.data.spans.options import SpanReadOptions


def read_span_examples(
    path_or_paths: PathLike | Sequence[PathLike],
    *,
    format: str | None = None,
    tag_columns: int | None = None,
    scheme: str | None = None,
    need_spans: bool = True,
    max_line_bytes: int = MAX_LINE_BYTES,
    max_expansion: int = MAX_EXPANSION,
    on_problem: OnProblem = "raise",
) -> SpanExamples:
    """Read one file of texts with spans, or several as one set.

    Formats: ``span-jsonl`` (characters, end exclusive; variants of common tools too), ``span-json`` (the same in one array),
    ``cluener`` (end inclusive), ``conll`` (IOB1, IOB2, BIOES, with one or two columns of tags), ``brat`` (a folder, or one
    file of a pair), and ``text`` (one text per line, to predict). gz, bz2, xz and zst files are decompressed.

    Args:
        path_or_paths: a file or several; ``"-"`` is the standard input.
        format: the format's name; None recognises it by name and content.
        tag_columns: the number of tag columns at the end of CoNLL lines, 1 or 2; None detects it.
        scheme: the tagging scheme, ``"iob2"``, ``"iob1"`` or ``"bioes"``; None detects it.
        need_spans: False reads texts to predict, without spans in the file.
        max_line_bytes: a longer line is an error, and so is a longer text of brat.
        max_expansion: a compressed file that expands by more than this factor is an error.
        on_problem: ``"raise"``, or ``"collect"``: rows with problems are skipped, the first ten problems are in ``source``.

    Returns:
        ``SpanExamples``.

    Raises:
        DataError: with file, line, column, value and remedy.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.conll"
        >>> _ = path.write_text("Ada B-PER\\nLovelace I-PER\\nwrote O\\n\\n")
        >>> examples = read_span_examples(path)
        >>> examples.texts, examples.surfaces(0)
        (['Ada Lovelace wrote'], ['Ada Lovelace'])
    """
    who = "read_span_examples"
    paths = [path_or_paths] if isinstance(path_or_paths, (str, os.PathLike)) else list(path_or_paths)
    if not paths:
        raise ValueError(f"{who}: `path_or_paths` must name at least one file; got none.")
    check_choice(who, "scheme", scheme, (None, *SCHEMES))
    check_choice(who, "tag_columns", tag_columns, (None, 1, 2))
    check_choice(who, "on_problem", on_problem, ("raise", "collect"))
    check_at_least(who, "max_line_bytes", max_line_bytes, 1)
    check_at_least(who, "max_expansion", max_expansion, 1)
    named = None if format is None else format_named(who, format, "spans")
    options = SpanReadOptions(tag_columns, scheme, need_spans, max_line_bytes, max_expansion, on_problem)
    return concatenate_span_examples([_read_path(path, named, options) for path in paths])


def _read_path(path: PathLike, named: Format | None, options: SpanReadOptions) -> SpanExamples:
    problems = ProblemLog(options.on_problem, str(path))
    entry = named if named is not None or str(path) == "-" else folder_format(Path(path), "spans")
    try:
        if entry is not None and entry.folder is not None:
            _check_options(entry, options, problems)
            examples: SpanExamples = entry.read(Path(path), options, problems)
        else:
            examples = _read_file(path, entry, options, problems)
    except MemoryError:
        raise problems.fatal(NO_MEMORY) from None
    except OSError as error:
        raise problems.fatal(f"could not be read: {error.strerror or error}.") from None
    if not len(examples):
        raise problems.fatal(f"must hold at least one row that can be read; it holds none.{problems.first()}")
    return examples


def _check_options(entry: Format, options: SpanReadOptions, problems: ProblemLog) -> None:
    """Raise an error for options of CoNLL that files of other formats would ignore."""
    given = [name for name in ("tag_columns", "scheme") if getattr(options, name) is not None]
    if given and entry.name != CONLL.name:
        raise problems.fatal(f"is read as {entry.name}, which has no tags; `{given[0]}` is for CoNLL. Leave it out.")


def _read_file(path: PathLike, entry: Format | None, options: SpanReadOptions, problems: ProblemLog) -> SpanExamples:
    with InputFile(path, max_line_bytes=options.max_line_bytes, max_expansion=options.max_expansion) as file:
        file.problems = problems
        found = entry or recognise_format(file, "spans", labelled=options.need_spans)
        _check_options(found, options, problems)
        examples: SpanExamples = found.read(file, options, problems)
    if file.compression is None or not examples.source:
        return examples
    source = examples.source[0]
    return replace(examples, source=(replace(source, chosen={**source.chosen, "compression": file.compression}),))
