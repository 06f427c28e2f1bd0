"""Options for reading files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from manyhot.data.files.input_file import MAX_LINE_BYTES
from manyhot.data.files.problems import OnProblem
from manyhot.data.files.streams import MAX_EXPANSION

MAX_LABELS = 2**22


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The arguments of ``read_examples``, which describes them.

    ``nominal`` is not an argument there. A model's ``Reading`` sets it to its categorical feature columns and their categories.
    """

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
    decimal: Literal[".", ","] | None = None
    empty_labels: Literal["none", "unknown"] = "none"
    index_base: Literal[0, 1] | None = None
    nominal: Mapping[str, Sequence[str]] | None = None
    need_labels: bool = True
    max_line_bytes: int = MAX_LINE_BYTES
    max_expansion: int = MAX_EXPANSION
    max_labels: int = MAX_LABELS
    on_problem: OnProblem = "raise"
