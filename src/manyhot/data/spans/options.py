"""The options for reading files of texts with spans."""

from __future__ import annotations

from dataclasses import dataclass

from manyhot.data.files.input_file import MAX_LINE_BYTES
from manyhot.data.files.problems import OnProblem
from manyhot.data.files.streams import MAX_EXPANSION


@dataclass(frozen=True, slots=True)
class SpanReadOptions:
    """The arguments of ``read_span_examples``, which describes them."""

    tag_columns: int | None = None
    scheme: str | None = None
    need_spans: bool = True
    max_line_bytes: int = MAX_LINE_BYTES
    max_expansion: int = MAX_EXPANSION
    on_problem: OnProblem = "raise"
