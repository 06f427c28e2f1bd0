"""Span JSON lines: ``{"text": ..., "spans": [{"start": 0, "end": 3, "type": "PER"}]}``, characters, end exclusive.

The variants of common tools are read too: lists ``[0, 3, "PER"]``, the keys ``entities``, ``label`` and ``labels`` for the
list, ``start_offset``, ``end_offset``, ``label`` and similar ones inside, and lines with ``[text, {"entities": [...]}]``.
A soft label is a number from 0 to 1 beside the span: ``{"start": 0, "end": 3, "type": "PER", "value": 0.7}`` or
``[0, 3, "PER", 0.7]``.
CLUENER's lines, ``"label": {type: {surface: [[start, end]]}}`` with the end inclusive, are a format of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from manyhot.data.examples import Source
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.json_array import array_objects, first_object
from manyhot.data.files.json_lines import json_objects
from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.formats.format import FileStart, Format
from manyhot.data.spans.conll import looks_like_conll
from manyhot.data.spans.examples import Offsets, SpanExamples, TextSpan, in_reading_order
from manyhot.data.spans.options import SpanReadOptions
from manyhot.data.spans.write import VALUE_KEY, write_span_examples

TEXT_KEYS = ("text", "sentence", "content")
LIST_KEYS = ("spans", "entities", "labels", "label")
START_KEYS = ("start", "start_offset", "begin")
END_KEYS = ("end", "end_offset", "stop")
TYPE_KEYS = ("type", "label", "entity", "tag", "entity_group")
T = TypeVar("T")


class WrongRowError(ValueError):
    """A row that cannot be read: the message, and the position in the row."""

    def __init__(self, message: str, column: str) -> None:
        super().__init__(message)
        self.column = column


def read_span_jsonl(
    file: InputFile, options: SpanReadOptions, problems: ProblemLog, *, form: str = "span-jsonl"
) -> SpanExamples:
    """All rows of a file of JSON lines, or of one array; ``form`` is the name of the format."""
    cluener, objects = form == "cluener", array_objects if form == "span-json" else json_objects
    texts: list[str] = []
    spans: list[list[TextSpan]] = []
    ids: list[str | None] = []
    tokens: list[Offsets | None] = []
    values: list[list[float]] = []
    declined, repeated = 0, 0
    for line, record in objects(file, problems, adapt=_pair_as_object):
        if record.get("answer") in ("reject", "ignore"):
            declined += 1
            continue
        try:
            text = _text(record)
            found = list((_cluener if cluener else _listed)(record, text, options.need_spans))
            soft = _valued(found)
            own_tokens = _tokens(record, text)
        except WrongRowError as error:
            problems.add(str(error), line=line, column=error.column)
            continue
        texts.append(text)
        # A label of 0 means the same as leaving the span out.
        spans.append(in_reading_order([span for span, value in soft.items() if value > 0]))
        values.append([soft[span] for span in spans[-1]])
        repeated += len(found) - len(soft)
        ids.append(None if record.get("id") is None else str(record["id"]))
        tokens.append(own_tokens)
    chosen: dict[str, Any] = {"end": "inclusive" if cluener else "exclusive"}
    chosen |= {"rows_not_accepted": declined} if declined else {}
    chosen |= {"repeated_spans": repeated} if repeated else {}
    num_soft = sum(value < 1 for row in values for value in row)
    chosen |= {"soft_labels": num_soft} if num_soft else {}
    source = Source(file.name, form, chosen, tuple(problems.kept), problems.count)
    return SpanExamples(
        texts,
        spans,
        _where_all_have(tokens),
        _where_all_have(ids),
        source=(source,),
        values=values if num_soft else None,
    )


def _where_all_have(column: Sequence[T | None]) -> list[T] | None:
    """The column if every row has a value; None if a row lacks one, or if there are no rows."""
    whole = [each for each in column if each is not None]
    return whole if whole and len(whole) == len(column) else None


def _valued(found: Sequence[tuple[TextSpan, float]]) -> dict[TextSpan, float]:
    """Each span once with its label; ``WrongRowError`` if it occurs twice with different ones."""
    soft: dict[TextSpan, float] = {}
    for span, value in found:
        if soft.setdefault(span, value) != value:
            said = f"{span.type} from {span.start} to {span.end}"
            raise WrongRowError(f"must give each span one value; {said} has {soft[span]} and {value}.", LIST_KEYS[0])
    return soft


def _pair_as_object(record: Any) -> Any:
    """A pair ``[text, {...}]`` as an object with the text in it; other values unchanged."""
    if isinstance(record, list) and len(record) == 2 and isinstance(record[0], str) and isinstance(record[1], dict):
        return {"text": record[0], **record[1]}
    return record


def is_cluener(record: Mapping[str, Any]) -> bool:
    """Whether an object has CLUENER's form."""
    return isinstance(record.get("label"), Mapping) and not any(key in record for key in LIST_KEYS[:3])


def _text(record: Mapping[str, Any]) -> str:
    key = next((key for key in TEXT_KEYS if key in record), None)
    if key is None:
        raise WrongRowError(f"must have a key {TEXT_KEYS[0]!r} with the text; it has {shown(list(record))}.", TEXT_KEYS[0])
    if not isinstance(record[key], str):
        raise WrongRowError(f"must be a string; got {shown(record[key])}.", key)
    return str(record[key])


def _listed(record: Mapping[str, Any], text: str, need_spans: bool) -> Iterator[tuple[TextSpan, float]]:
    key = next((key for key in LIST_KEYS if key in record), None)
    if key is None:
        if need_spans:
            raise WrongRowError(
                f"must have a key {LIST_KEYS[0]!r} with a list of spans, which may be empty; it has {shown(list(record))}.",
                LIST_KEYS[0],
            )
        return
    if not isinstance(record[key], list):
        raise WrongRowError(f"must be a list of spans; got {shown(record[key])}.", key)
    for place, item in enumerate(record[key]):
        yield _span(item, text, f"{key}[{place}]")


def _span(item: Any, text: str, column: str) -> tuple[TextSpan, float]:
    """A span and its label, 1 by default."""
    value: Any = 1
    if isinstance(item, Mapping):
        start, end, kind = (_value(item, keys, column) for keys in (START_KEYS, END_KEYS, TYPE_KEYS))
        value = item.get(VALUE_KEY, 1)
    elif isinstance(item, list) and len(item) in (3, 4):
        start, end, kind, *rest = item
        value = rest[0] if rest else 1
    else:
        wanted = '{"start": ..., "end": ..., "type": ...} or [start, end, type], with a number from 0 to 1 for a soft label'
        raise WrongRowError(f"must be {wanted}; got {shown(item)}.", column)
    if isinstance(kind, list) and len(kind) == 1:
        kind = kind[0]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise WrongRowError(f"the value must be a number from 0 to 1, a soft label; got {shown(value)}.", column)
    return checked_span(text, start, end, kind, column), float(value)


def checked_span(text: str, start: Any, end: Any, kind: Any, column: str) -> TextSpan:
    """A span that lies in the text, end exclusive."""
    for name, value in (("start", start), ("end", end)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise WrongRowError(f"the {name} must be a whole number; got {shown(value)}.", column)
    if not isinstance(kind, str) or not kind.strip():
        raise WrongRowError(f"the type must be a name; got {shown(kind)}.", column)
    if not 0 <= start < end <= len(text):
        raise WrongRowError(
            f"must lie in the text, 0 <= start < end <= {len(text)}, end exclusive, in characters; got {start} to {end}."
            f"{' For ends that are inclusive add 1.' if start == end else ''}",
            column,
        )
    return TextSpan(kind, start, end)


def _value(item: Mapping[str, Any], keys: tuple[str, ...], column: str) -> Any:
    key = next((key for key in keys if key in item), None)
    if key is None:
        others = ", ".join(keys[1:])
        raise WrongRowError(f"must have a key {keys[0]!r} ({others} are read too); it has {shown(list(item))}.", column)
    return item[key]


def _cluener(record: Mapping[str, Any], text: str, need_spans: bool) -> Iterator[tuple[TextSpan, float]]:
    marked = record.get("label")
    if marked is None and not need_spans:
        return
    if not isinstance(marked, Mapping):
        raise WrongRowError(f"must be an object {{type: {{surface: [[start, end]]}}}}; got {shown(marked)}.", "label")
    for kind, surfaces in marked.items():
        if not isinstance(surfaces, Mapping):
            raise WrongRowError(f"must be an object {{surface: [[start, end]]}}; got {shown(surfaces)}.", f"label.{kind}")
        for surface, places in surfaces.items():
            column = f"label.{kind}.{surface}"
            if not isinstance(places, list):
                raise WrongRowError(f"must be a list of [start, end]; got {shown(places)}.", column)
            for place in places:
                if not isinstance(place, list) or len(place) != 2 or not all(type(part) is int for part in place):
                    raise WrongRowError(f"must be [start, end], both inclusive; got {shown(place)}.", column)
                span = checked_span(text, place[0], place[1] + 1, kind, column)
                said = text[span.start : span.end]
                if said != surface:
                    raise WrongRowError(
                        f"must give the position of this text, both ends inclusive; the text at {place} is {shown(said)}.",
                        column,
                    )
                yield span, 1.0


def _tokens(record: Mapping[str, Any], text: str) -> Offsets | None:
    """The tokens of a row if they have offsets; other lists with that name are ignored."""
    listed = record.get("tokens")
    if not isinstance(listed, list) or not listed or not all(isinstance(each, Mapping) for each in listed):
        return None
    offsets: Offsets = []
    for place, each in enumerate(listed):
        if "start" not in each or "end" not in each:
            return None
        span = checked_span(text, each["start"], each["end"], "token", f"tokens[{place}]")
        if offsets and span.start < offsets[-1][1]:
            raise WrongRowError("tokens must be in order and must not overlap.", f"tokens[{place}]")
        offsets.append((span.start, span.end))
    return offsets


def _first_records(start: FileStart) -> Iterator[Mapping[str, Any]]:
    if not start.lines[0].lstrip().startswith(("{", "[")) or looks_like_conll(start.lines):
        return
    first = first_object(start.content.decode("utf-8", "replace").removeprefix("\ufeff"))
    if first is not None:
        yield first
        return
    for line in start.lines:
        try:
            record = _pair_as_object(json.loads(line))
        except (ValueError, RecursionError):
            return
        if isinstance(record, dict):
            yield record


def _looks_like_cluener(start: FileStart) -> bool:
    first = next((record for record in _first_records(start) if record.get("label")), None)
    return first is not None and is_cluener(first)


def _is_array(start: FileStart) -> bool:
    return first_object(start.content.decode("utf-8", "replace").removeprefix("\ufeff")) is not None


def _looks(start: FileStart) -> bool:
    return start.lines[0].lstrip().startswith(("{", "[")) and not looks_like_conll(start.lines)


def _lists_spans(start: FileStart) -> bool:
    """Whether one of the first objects lists spans, not names."""
    lists = (record.get(key) for record in _first_records(start) for key in LIST_KEYS)
    marked = [items for items in lists if isinstance(items, list) and items]
    return any(isinstance(items[0], dict) or (isinstance(items[0], list) and len(items[0]) in (3, 4)) for items in marked)


CLUENER = Format(
    name="cluener",
    about="CLUENER's JSON lines, ends inclusive",
    read=partial(read_span_jsonl, form="cluener"),
    holds="spans",
    looks=_looks_like_cluener,
    certain=_looks_like_cluener,
    by_lines=True,
)
ARRAY = Format(
    name="span-json",
    about="one JSON array of texts and spans, ends exclusive",
    read=partial(read_span_jsonl, form="span-json"),
    holds="spans",
    looks=_is_array,
    certain=lambda start: _is_array(start) and _lists_spans(start),
)
FORMAT = Format(
    name="span-jsonl",
    about="JSON lines of texts and spans, ends exclusive",
    read=read_span_jsonl,
    holds="spans",
    likely_suffixes=(".jsonl", ".json", ".ndjson"),
    looks=_looks,
    certain=_lists_spans,
    by_lines=True,
    write=write_span_examples,
)
