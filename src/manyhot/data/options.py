"""What a caller says about files to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from manyhot.data.files.input_file import MAX_LINE_BYTES
from manyhot.data.files.problems import OnProblem


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The arguments of ``read_examples``, which describes them."""

    text: str | Sequence[str] | None = None
    labels: str | Sequence[str] | None = None
    separator: str | None = None
    features: str | Sequence[str] | None = None
    ids: str | None = None
    label_names: tuple[str, ...] | None = None
    label_file: str | None = None
    delimiter: str | None = None
    header: bool | None = None
    quoting: bool | None = None
    empty_labels: Literal["none", "unknown"] = "none"
    need_labels: bool = True
    max_line_bytes: int = MAX_LINE_BYTES
    on_problem: OnProblem = "raise"
