"""Files of texts with spans, read as one set; their format is recognised."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from manyhot._checks import check_at_least, check_choice
from manyhot.data.examples import Source
from manyhot.data.files.input_file import MAX_LINE_BYTES, InputFile, bare_name
from manyhot.data.files.problems import DataError, OnProblem, ProblemLog, shown
from manyhot.data.files.streams import PathLike
from manyhot.data.spans.brat import is_brat, read_brat
from manyhot.data.spans.conll import SCHEMES, looks_like_conll, read_conll
from manyhot.data.spans.examples import SpanExamples, concatenate_span_examples
from manyhot.data.spans.jsonl import is_cluener, read_span_jsonl

SPAN_FORMATS = ("span-jsonl", "cluener", "conll", "brat", "text")
_SAMPLE = 200


def read_span_examples(
    path_or_paths: PathLike | Sequence[PathLike],
    *,
    format: str | None = None,
    tag_columns: int | None = None,
    scheme: str | None = None,
    need_spans: bool = True,
    max_line_bytes: int = MAX_LINE_BYTES,
    on_problem: OnProblem = "raise",
) -> SpanExamples:
    """Read one file of texts with spans, or several as one set.

    Formats: ``span-jsonl`` (characters, end exclusive; the spellings of common tools too), ``cluener`` (end inclusive),
    ``conll`` (IOB1, IOB2, BIOES, with one or two columns of tags), ``brat`` (a folder, or one file of a pair), and ``text``, a
    text a line, for texts to predict. gz, bz2, xz and zst are undone.

    Args:
        path_or_paths: a file or several; ``"-"`` is the standard input.
        format: the format's name; None recognises it by name and content.
        tag_columns: how many of the last columns of CoNLL are tags, 1 or 2; None finds out.
        scheme: of the tags, ``"iob2"``, ``"iob1"`` or ``"bioes"``; None finds out.
        need_spans: False reads texts to predict, without spans in the file.
        max_line_bytes: a longer line is an error.
        on_problem: ``"raise"``, or ``"collect"``: rows with problems are left out, the first ten problems are in ``source``.

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
    check_choice(who, "format", format, (None, *SPAN_FORMATS))
    check_choice(who, "scheme", scheme, (None, *SCHEMES))
    check_choice(who, "tag_columns", tag_columns, (None, 1, 2))
    check_choice(who, "on_problem", on_problem, ("raise", "collect"))
    check_at_least(who, "max_line_bytes", max_line_bytes, 1)
    parts = []
    for path in paths:
        problems = ProblemLog(on_problem, str(path))
        if format == "brat" or (format is None and str(path) != "-" and is_brat(Path(path))):
            examples = read_brat(Path(path), problems, need_spans=need_spans, max_line_bytes=max_line_bytes)
        else:
            examples = _read_file(path, format, tag_columns, scheme, need_spans, max_line_bytes, problems)
        if not len(examples):
            first = f" The first problem: {problems.kept[0]}" if problems.kept else ""
            raise problems.fatal(f"must hold at least one row that can be read; it holds none.{first}")
        parts.append(examples)
    return concatenate_span_examples(parts)


def _read_file(
    path: PathLike,
    format: str | None,
    tag_columns: int | None,
    scheme: str | None,
    need_spans: bool,
    max_line_bytes: int,
    problems: ProblemLog,
) -> SpanExamples:
    with InputFile(path, max_line_bytes=max_line_bytes) as file:
        found = format or recognise_span_format(file, need_spans=need_spans)
        if found == "conll":
            examples = read_conll(file, problems, tag_columns=tag_columns, scheme=scheme)
        elif found == "text":
            if need_spans:
                raise problems.fatal("must have spans to learn from; plain text has none. It can be predicted.")
            texts = [text for _, text in file.lines() if text.strip()]
            examples = SpanExamples(texts, [[] for _ in texts], source=(Source(file.name, "text"),))
        else:
            examples = read_span_jsonl(file, problems, need_spans=need_spans, cluener=found == "cluener")
    if file.compression is None or not examples.source:
        return examples
    source = examples.source[0]
    return replace(examples, source=(replace(source, chosen={**source.chosen, "compression": file.compression}),))


def recognise_span_format(file: InputFile, *, need_spans: bool = True) -> str:
    """The format's name, by the first lines; a file that fits none is an error."""
    start = file.peek()
    whole = start.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
    lines = [line for line in (whole[:-1] if len(whole) > 1 else whole) if line.strip()][:_SAMPLE]
    if not lines:
        raise DataError("must hold texts with spans; it is empty.", file=file.name)
    if lines[0].lstrip().startswith(("{", "[")) and not looks_like_conll(lines):
        for line in lines:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                break
            if isinstance(record, dict) and record.get("label"):
                return "cluener" if is_cluener(record) else "span-jsonl"
        return "span-jsonl"
    if looks_like_conll(lines):
        return "conll"
    if not need_spans or bare_name(file.name).endswith(".txt"):
        return "text"
    raise DataError(
        f"its format was not recognised; the first line is {shown(lines[0])}. Say `format`: one of {', '.join(SPAN_FORMATS)}.",
        file=file.name,
    )
