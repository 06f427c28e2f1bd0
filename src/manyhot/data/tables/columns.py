"""Which columns of a table hold the text, the labels, the features and the row's name.

What the caller names is taken. The rest is chosen from the columns' names and, where those say nothing, from the first
rows: labels are a column called so, or the columns called ``label_...``, or the one column of lists, or beside a text the
columns that hold only 0 and 1; text is a column called ``text``, or else every column of running words. The choice is kept in
``Source.chosen`` for the reader to see; where nothing fits, the error lists the columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from manyhot._checks import nearest
from manyhot.data.files.problems import ProblemLog
from manyhot.data.tables.label_rows import TRUTH

SAMPLE_ROWS = 1000
MISSING = frozenset(("", "?", "nan", "NaN", "NA", "null", "None"))
LABEL_SET_NAMES = ("labels", "tags", "topics", "categories", "classes", "concepts", "keywords", "genres", "emotions", "targets")
LABEL_NAMES = (*LABEL_SET_NAMES, "label", "tag", "topic", "category", "class", "genre", "emotion", "target", "y")
LABEL_PREFIXES = ("label_", "label:", "label.", "labels_", "tag_", "y_", "target_")
ID_NAMES = ("id", "ids", "_id", "uid", "uuid", "guid", "key", "index", "row_id")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table by what they are for."""

    text: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    labels: str | None = None
    label_columns: tuple[str, ...] = ()
    ids: str | None = None
    unknown: str | None = None
    left_out: tuple[str, ...] = ()
    nominal: frozenset[str] = frozenset()

    def chosen(self) -> dict[str, Any]:
        """What was chosen, for ``Source.chosen``."""
        labels: Any = self.labels or (list(self.label_columns) or None)
        parts = {"text": list(self.text), "labels": labels, "unknown": self.unknown, "ids": self.ids}
        parts |= {"features": list(self.features), "left_out": list(self.left_out)}
        return {name: value for name, value in parts.items() if value}


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """What a column's first values are: ``kind`` is empty, binary, number, string, list, vector or object."""

    kind: str
    wordy: bool = False
    repeats: bool = False


_NO_KIND = ColumnKind("empty")


def column_kind(values: Iterable[Any]) -> ColumnKind:
    """The kind of a column by its first values.

    Example:
        >>> column_kind(["1", "0", ""]).kind, column_kind(["a b c", "d e"]).wordy, column_kind([["a"], []]).kind
        ('binary', True, 'list')
    """
    filled = [value for value in values if not is_missing(value)]
    if not filled:
        return ColumnKind("empty")
    types = {type(value) for value in filled}
    if types <= {list}:
        inner = {type(item) for value in filled for item in value}
        return ColumnKind("vector" if float in inner and inner <= {int, float} else "list")
    if types <= {dict}:
        return ColumnKind("object")
    if types & {list, dict}:
        return ColumnKind("mixed")
    if all(value in TRUTH for value in filled):
        return ColumnKind("binary")
    if all(is_number(value) for value in filled):
        return ColumnKind("number")
    strings = [str(value) for value in filled]
    words = sum(len(text.split()) for text in strings) / len(strings)
    letters = sum(map(len, strings)) / len(strings)
    unspaced = sum(not text.isascii() for text in strings) > len(strings) / 2 and letters >= 4
    return ColumnKind("string", wordy=words >= 2 or unspaced, repeats=len(set(strings)) <= len(strings) / 2)


def is_missing(value: Any) -> bool:
    """None, NaN, or a string that stands for no value."""
    return value is None or (isinstance(value, str) and value.strip() in MISSING) or (value != value) is True


def is_number(value: Any) -> bool:
    """A finite number, or a string that is one."""
    try:
        return not isinstance(value, bool) and math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def choose_columns(
    kinds: Mapping[str, ColumnKind],
    problems: ProblemLog,
    *,
    text: str | Sequence[str] | None = None,
    labels: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    ids: str | None = None,
    need_labels: bool = True,
) -> Columns:
    """The columns for each purpose, named or chosen.

    Args:
        kinds: the table's columns in order, with their kinds.
        problems: for a column that is not there, or cannot be chosen.
        text: one column or several, joined by line feeds.
        labels: a string names the one column that holds each row's labels; a list, or a pattern with ``*``, names columns
            of 0 and 1, one per label.
        features: columns or patterns with ``*``.
        ids: the column that names the rows.
        need_labels: False for rows to predict: no label column is fine.
    """
    texts = _matched(kinds, text, "text", problems)
    chosen_features = _matched(kinds, features, "features", problems)
    if texts and chosen_features:
        raise problems.fatal("`text` and `features` must not both be given. Examples hold one kind of input; choose.")
    named = _matched(kinds, labels, "labels", problems)
    one_column = isinstance(labels, str) and "*" not in labels
    label: str | None = named[0] if one_column else None
    label_columns: tuple[str, ...] = () if one_column else named
    ids = _matched(kinds, ids, "ids", problems)[0] if ids else _id_column(kinds, (*texts, *named, *chosen_features))
    free = [name for name in kinds if name not in {*texts, *named, *chosen_features, ids}]
    if not named:
        label, label_columns = _label_columns(kinds, free)
        free = [name for name in free if name != label and name not in label_columns]
    if not texts and not chosen_features:
        texts = _text_columns(kinds, free)
    if texts and label is None and not label_columns:
        label_columns = tuple(name for name in free if kinds[name].kind == "binary")
    if label is None and not label_columns and need_labels:
        raise problems.fatal(f"no column of labels was found among {listed(kinds)}. Name it with `labels`.")
    if not texts and not chosen_features:
        chosen_features = _feature_columns(kinds, [name for name in free if name not in label_columns])
        if not chosen_features:
            raise problems.fatal(f"no text or feature column was found among {listed(kinds)}. Name it with `text`.")
    unknown = "unknown" if label and label != "unknown" and kinds.get("unknown", _NO_KIND).kind == "list" else None
    used = {*texts, *chosen_features, *label_columns, label, ids, unknown}
    return Columns(
        text=texts,
        features=chosen_features,
        labels=label,
        label_columns=label_columns,
        ids=ids,
        unknown=unknown,
        left_out=tuple(name for name in kinds if name not in used),
        nominal=frozenset(name for name in chosen_features if kinds[name].kind == "string"),
    )


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names for a message, the first of them where there are many."""
    every = list(names)
    return ", ".join(repr(name) for name in every[:most]) + (f", ... ({len(every)} columns)" if len(every) > most else "")


def _matched(
    kinds: Mapping[str, ColumnKind], wanted: str | Sequence[str] | None, argument: str, problems: ProblemLog
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for pattern in [wanted] if isinstance(wanted, str) else wanted or ():
        hits = [pattern] if pattern in kinds else [name for name in kinds if "*" in pattern and fnmatchcase(name, pattern)]
        if not hits:
            raise problems.fatal(
                f"`{argument}` must name a column; there is no {pattern!r}.{nearest(pattern, kinds)}"
                f" The columns are {listed(kinds)}."
            )
        found.update(dict.fromkeys(hits))
    return tuple(found)


def _id_column(kinds: Mapping[str, ColumnKind], used: Sequence[str]) -> str | None:
    free = [name for name in kinds if name not in used and kinds[name].kind not in ("list", "object", "vector", "mixed")]
    exact = [name for name in free if name.lower() in ID_NAMES]
    return next(iter(exact + [name for name in free if name.lower().endswith("_id")]), None)


def _label_columns(kinds: Mapping[str, ColumnKind], free: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    for wanted in LABEL_NAMES:
        for name in free:
            # A 0/1 column called "label" or "y" is one label; one called "labels" holds label numbers.
            if name.lower() == wanted and (wanted in LABEL_SET_NAMES or kinds[name].kind != "binary"):
                return name, ()
    prefixed = tuple(
        name for name in free if name.lower().startswith(LABEL_PREFIXES) and kinds[name].kind in ("binary", "empty")
    )
    if prefixed:
        return None, prefixed
    lists = [name for name in free if kinds[name].kind == "list"]
    return (lists[0], ()) if len(lists) == 1 else (None, ())


def _text_columns(kinds: Mapping[str, ColumnKind], free: Sequence[str]) -> tuple[str, ...]:
    strings = [name for name in free if kinds[name].kind == "string"]
    called = [name for name in free if name.lower() == "text" and kinds[name].kind in ("string", "number", "binary", "empty")]
    return tuple(called[:1] or [name for name in strings if kinds[name].wordy])


def _feature_columns(kinds: Mapping[str, ColumnKind], free: Sequence[str]) -> tuple[str, ...]:
    vectors = [name for name in free if kinds[name].kind in ("vector", "object") or name.lower() == "features"]
    if vectors:
        return (vectors[0],)
    return tuple(
        name
        for name in free
        if kinds[name].kind in ("number", "binary") or (kinds[name].kind == "string" and kinds[name].repeats)
    )
