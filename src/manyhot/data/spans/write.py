"""Span examples written as JSON lines."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
from pathlib import Path
from typing import Any

from manyhot.data.files.input_file import bare_name
from manyhot.data.files.streams import PathLike
from manyhot.data.spans.examples import SpanExamples

VALUE_KEY = "value"
_OPEN: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def write_span_examples(examples: SpanExamples, path: PathLike) -> None:
    """Write span JSON lines that ``read_span_examples`` reads back; the file appears when it is whole.

    Args:
        examples: texts with spans. Spans in pieces have no place in a line: they are an error.
        path: ends in ``.jsonl``, and in ``.gz``, ``.bz2`` or ``.xz`` to compress.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "people.jsonl"
        >>> write_span_examples(SpanExamples(["Ada met Bob"], [[TextSpan("PER", 0, 3)]]), path)
        >>> path.read_text()
        '{"text": "Ada met Bob", "spans": [{"start": 0, "end": 3, "type": "PER"}]}\\n'
    """
    target = Path(path)
    if not bare_name(path).endswith(".jsonl") or target.suffix.lower() == ".zst":
        raise ValueError(f"write_span_examples: `path` must end in .jsonl, or .jsonl.gz, .bz2 or .xz; got {str(path)!r}.")
    lost = sum(map(len, examples.fragmented))
    if lost:
        raise ValueError(f"write_span_examples: `examples` must have no spans in pieces; got {lost}. Leave them out first.")
    half = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with _OPEN.get(target.suffix.lower(), open)(half, "wt", encoding="utf-8", newline="\n") as file:
            for row in range(len(examples)):
                file.write(json.dumps(span_record(examples, row), ensure_ascii=False) + "\n")
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def span_record(examples: SpanExamples, row: int) -> dict[str, Any]:
    """One row as an object of span JSON lines."""
    record: dict[str, Any] = {} if examples.ids is None else {"id": examples.ids[row]}
    record["text"] = examples.texts[row]
    record["spans"] = [{"start": span.start, "end": span.end, "type": span.type} for span in examples.spans[row]]
    if examples.values is not None:
        for marked, value in zip(record["spans"], examples.values[row], strict=True):
            marked[VALUE_KEY] = value
    if examples.tokens is not None:
        record["tokens"] = [{"start": start, "end": end} for start, end in examples.tokens[row]]
    return record
