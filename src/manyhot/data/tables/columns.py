"""The columns of a table for text, labels, features and row ids.

Columns that the caller names are used. The others are chosen by their names and, if that fails, by the first rows. Labels are a
column with a common name, or the columns named ``label_...``, or the only column of lists, or, if there is a text, the columns
of numbers from 0 to 1. Text is a column named ``text``, or else every column of running text whose strings do not recur.
``Source.chosen`` records the choice; if nothing fits, the error lists the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from manyhot._suggest import nearest
from manyhot.data.files.problems import ProblemLog
from manyhot.data.options import ReadOptions
from manyhot.data.tables.column_kinds import ColumnKind

LABEL_SET_NAMES = ("labels", "tags", "topics", "categories", "classes", "concepts", "keywords", "genres", "emotions", "targets")
LABEL_NAMES = (*LABEL_SET_NAMES, "label", "tag", "topic", "category", "class", "genre", "emotion", "target", "y")
LABEL_PREFIXES = ("label_", "label:", "label.", "labels_", "tag_", "y_", "target_")
ID_NAMES = ("id", "ids", "_id", "uid", "uuid", "guid", "key", "index", "row_id")

_NO_KIND = ColumnKind("empty")
_NO_NAMES = ("list", "object", "vector", "mixed", "other")
Kinds = Mapping[str, ColumnKind]


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table by purpose."""

    text: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    labels: str | None = None
    label_columns: tuple[str, ...] = ()
    ids: str | None = None
    unknown: str | None = None
    left_out: tuple[str, ...] = ()
    nominal: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()

    def chosen(self) -> dict[str, Any]:
        """The chosen columns, for ``Source.chosen``."""
        labels: Any = self.labels or (list(self.label_columns) or None)
        parts = {"text": list(self.text), "labels": labels, "unknown": self.unknown, "ids": self.ids}
        parts |= {"features": list(self.features), "left_out": list(self.left_out)}
        return {name: value for name, value in parts.items() if value}

    def used(self) -> set[str]:
        """The columns that are read."""
        single = {name for name in (self.labels, self.ids, self.unknown) if name is not None}
        return {*self.text, *self.features, *self.label_columns, *single}


def choose_columns(kinds: Kinds, options: ReadOptions, problems: ProblemLog) -> TableColumns:
    """The columns for each purpose: those that ``options`` name, otherwise chosen.

    Args:
        kinds: the table's columns in order, with their kinds.
        options: ``text``, ``labels``, ``features``, ``ids`` and ``nominal`` name columns; without ``need_labels`` a label
            column is optional.
        problems: raises the error for a missing column, or if no column fits.
    """
    given = _given_columns(kinds, options, problems)
    chosen = _with_labels(kinds, given)
    if not chosen.text and not chosen.features:
        chosen = replace(chosen, text=_text_columns(kinds, _free(kinds, chosen)))
        if chosen.text and not chosen.labels and not chosen.label_columns:
            chosen = _with_columns_beside_text(kinds, chosen)
    if options.need_labels and not chosen.labels and not chosen.label_columns:
        raise problems.fatal(
            f"no column of labels was found among {listed(kinds)}. Name it with `labels`.{_header_hint(kinds)}"
        )
    choose = not chosen.text and not chosen.features
    if choose:
        chosen = replace(chosen, features=_feature_columns(kinds, _free(kinds, chosen)))
        if not chosen.features:
            raise problems.fatal(
                f"no text or feature column was found among {listed(kinds)}. Name it with `text`.{_header_hint(kinds)}"
            )
    marked = chosen.labels and chosen.labels != "unknown" and kinds.get("unknown", _NO_KIND).kind in ("list", "mixed")
    chosen = replace(chosen, unknown="unknown" if marked else None)
    if choose:
        chosen = _with_left_out_told(kinds, chosen)
    nominal: Iterable[str] | None = options.nominal
    if nominal is None:
        nominal = [name for name in chosen.features if kinds[name].kind == "string"]
    return replace(chosen, left_out=tuple(_free(kinds, chosen)), nominal=frozenset(nominal))


def _with_left_out_told(kinds: Kinds, columns: TableColumns) -> TableColumns:
    """A remark on columns that are no features although the columns were not named."""
    lost = [name for name in _free(kinds, columns) if kinds[name].kind != "empty"]
    if not lost:
        return columns
    told = (
        f"These columns are left out, because they hold neither numbers nor categories that recur: {listed(lost, 5)}."
        " If they are needed, name all feature columns with `features`."
    )
    return replace(columns, remarks=(*columns.remarks, told))


def may_hold_sets(name: str, options: ReadOptions) -> bool:
    """Whether a column may hold label sets, in which a comma is between labels."""
    return name.lower() in LABEL_NAMES or name == options.labels


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names for a message; only the first ones if there are many."""
    every = list(names)
    return ", ".join(repr(name[:60]) for name in every[:most]) + (f", ... ({len(every)} columns)" if len(every) > most else "")


def _given_columns(kinds: Kinds, options: ReadOptions, problems: ProblemLog) -> TableColumns:
    """The columns that the caller names, and the column of row ids."""
    texts = _matched(kinds, options.text, "text", problems)
    # Only a model names categorical columns, so its features are not the caller's.
    of_model = options.nominal is not None
    features = _matched(kinds, options.features, "features", problems, of_model=of_model)
    if texts and features:
        raise problems.fatal("`text` and `features` must not both be given. Leave one of them out.")
    named = _matched(kinds, options.labels, "labels", problems)
    one_column = isinstance(options.labels, str) and "*" not in options.labels
    used = {*texts, *named, *features}
    ids = _matched(kinds, options.ids, "ids", problems)[0] if options.ids else _id_column(kinds, used)
    columns = TableColumns(text=texts, features=features, ids=ids)
    return replace(columns, labels=named[0]) if one_column else replace(columns, label_columns=named)


def _with_labels(kinds: Kinds, columns: TableColumns) -> TableColumns:
    if columns.labels or columns.label_columns:
        return columns
    label, several = _label_columns(kinds, _free(kinds, columns))
    found = replace(columns, labels=label, label_columns=several)
    return _with_columns_beside_text(kinds, found) if found.text and not label and not several else found


def _with_columns_beside_text(kinds: Kinds, columns: TableColumns) -> TableColumns:
    """The columns of numbers from 0 to 1 as labels, with a remark if some are soft."""
    found = tuple(name for name in _free(kinds, columns) if kinds[name].kind in ("binary", "soft"))
    soft = [name for name in found if kinds[name].kind == "soft"]
    remarks = columns.remarks
    if soft:
        remarks += (
            f"Columns of numbers between 0 and 1 are read as soft labels: {listed(soft, 5)}."
            " If that is wrong, name the columns of labels with `labels`.",
        )
    return replace(columns, label_columns=found, remarks=remarks)


def _free(kinds: Kinds, columns: TableColumns) -> list[str]:
    used = columns.used()
    return [name for name in kinds if name not in used]


def _header_hint(kinds: Kinds) -> str:
    """If no column has a common name, a hint that the first line may be a row."""
    usual = {*LABEL_NAMES, *ID_NAMES, "text", "sentence", "title", "features"}
    if any(name.lower() in usual or name.lower().startswith(LABEL_PREFIXES) for name in kinds):
        return ""
    return " If the first line of a CSV or TSV file is a row and not names, use `header=False`."


def _matched(
    kinds: Kinds, wanted: str | Sequence[str] | None, argument: str, problems: ProblemLog, *, of_model: bool = False
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    patterns = [wanted] if isinstance(wanted, str) else wanted or ()
    missing = [pattern for pattern in patterns if pattern not in kinds and "*" not in pattern]
    for pattern in patterns:
        hits = [pattern] if pattern in kinds else [name for name in kinds if "*" in pattern and fnmatchcase(name, pattern)]
        if not hits:
            more = f" ({len(missing)} are missing: {listed(missing, 5)})" if len(missing) > 1 else ""
            must = "must have the columns that the model was trained on" if of_model else f"`{argument}` must name a column"
            raise problems.fatal(
                f"{must}; there is no {pattern!r}{more}.{nearest(pattern, kinds)} The columns are {listed(kinds)}."
            )
        found.update(dict.fromkeys(hits))
    return tuple(found)


def _id_column(kinds: Kinds, used: set[str]) -> str | None:
    free = [name for name in kinds if name not in used and kinds[name].kind not in _NO_NAMES]
    exact = [name for name in free if name.lower() in ID_NAMES]
    return next(iter(exact + [name for name in free if name.lower().endswith("_id")]), None)


def _label_columns(kinds: Kinds, free: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    lower = {name.lower(): name for name in reversed(free)}
    for wanted in LABEL_NAMES:
        name = lower.get(wanted)
        # A 0/1 column named "label" or "y" is one label; one named "labels" holds label numbers.
        if name is not None and (wanted in LABEL_SET_NAMES or kinds[name].kind not in ("binary", "soft")):
            return name, ()
    prefixed = tuple(
        name for name in free if name.lower().startswith(LABEL_PREFIXES) and kinds[name].kind in ("binary", "soft", "empty")
    )
    if prefixed:
        return None, prefixed
    lists = [name for name in free if kinds[name].kind == "list"]
    return (lists[0], ()) if len(lists) == 1 else (None, ())


def _text_columns(kinds: Kinds, free: Sequence[str]) -> tuple[str, ...]:
    plain = ("string", "number", "binary", "soft", "empty")
    called = [name for name in free if name.lower() == "text" and kinds[name].kind in plain]
    if called:
        return (called[0],)
    wordy = [name for name in free if kinds[name].kind == "string" and kinds[name].wordy]
    # If there is a text, columns whose strings recur, such as names of people or departments, are not texts.
    return tuple([name for name in wordy if not kinds[name].repeats] or wordy)


def _feature_columns(kinds: Kinds, free: Sequence[str]) -> tuple[str, ...]:
    vectors = [name for name in free if kinds[name].kind in ("vector", "object") or name.lower() == "features"]
    if vectors:
        return (vectors[0],)
    return tuple(
        name
        for name in free
        if kinds[name].kind in ("number", "binary", "soft") or (kinds[name].kind == "string" and kinds[name].repeats)
    )
