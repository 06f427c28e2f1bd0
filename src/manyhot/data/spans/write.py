"""Writing span examples as JSON lines."""

from __future__ import annotations

from typing import Any

from manyhot.data.files.json_lines import write_json_lines
from manyhot.data.files.streams import PathLike
from manyhot.data.spans.examples import SpanExamples

VALUE_KEY = "value"


def write_span_examples(examples: SpanExamples, path: PathLike) -> None:
    """Write span JSON lines that ``read_span_examples`` reads back; the file is written atomically.

    Args:
        examples: texts with spans. Discontinuous spans cannot be written and raise an error.
        path: ends in ``.jsonl``, and in ``.gz``, ``.bz2`` or ``.xz`` to compress.

    Example:
        >>> import pathlib, tempfile
        >>> from manyhot import TextSpan
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.jsonl"
        >>> write_span_examples(SpanExamples(["Ada met Bob"], [[TextSpan("PER", 0, 3)]]), path)
        >>> path.read_text()
        '{"text": "Ada met Bob", "spans": [{"start": 0, "end": 3, "type": "PER"}]}\\n'
    """
    lost = sum(map(len, examples.fragmented))
    if lost:
        raise ValueError(f"write_span_examples: `examples` must have no discontinuous spans; got {lost}. Remove them first.")
    write_json_lines("write_span_examples", path, (span_record(examples, row) for row in range(len(examples))))


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
