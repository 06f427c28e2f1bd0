"""The rows of an ARFF file as numbers."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.formats.arff.header import Attribute, split_values
from manyhot.data.tables.feature_rows import CsrBuilder

Convert = Callable[[str], float]


class ArffRows:
    """Rows as numbers: a dense float64 array or a CSR matrix ``[R, attributes]``."""

    def __init__(self, attributes: Sequence[Attribute], problems: ProblemLog, *, strings: Sequence[int]) -> None:
        self.attributes = attributes
        self.problems = problems
        self.strings = strings
        self.texts: list[str] = []
        self.sparse = False
        self.convert: list[Convert] = [_converter(attribute) for attribute in attributes]
        self.all_numbers = all(attribute.type == "number" or attribute.zero_one for attribute in attributes)

    def read(self, lines: Iterator[tuple[int, str]]) -> tuple[Any, Sequence[int]]:
        """All rows, and the line of each."""
        begun = False
        dense, rows, numbers = array("d"), CsrBuilder("d"), array("q")
        for line, text in lines:
            text = text.strip()
            if not text or text.startswith("%"):
                continue
            if not begun:
                begun, self.sparse = True, text.startswith("{")
            try:
                if self.sparse:
                    rows.add(*self._sparse_row(text))
                else:
                    dense.extend(self._dense_row(text))
                numbers.append(line)
            except _BadCellError as error:
                message, column = error.args
                self.problems.add(message, line=line, column=column)
        if not numbers:
            raise self.problems.fatal(f"must hold rows after @data; it holds none that can be read.{self.problems.first()}")
        if self.sparse:
            return rows.finish(len(self.attributes)), numbers
        return np.frombuffer(dense, dtype=np.float64).reshape(len(numbers), len(self.attributes)), numbers

    def _dense_row(self, text: str) -> Sequence[float]:
        fields = split_values(text)
        if fields is None:
            raise _BadCellError(f"a quotation mark must close; got {shown(text)}.", None)
        if len(fields) != len(self.convert):
            raise _BadCellError(f"the row must have {len(self.convert)} values, one per attribute; got {len(fields)}.", None)
        try:
            if self.all_numbers:
                return list(map(float, fields))
            row = [convert(value) for convert, value in zip(self.convert, fields, strict=True)]
        except (ValueError, KeyError):
            row = [self._careful(place, value) for place, value in enumerate(fields)]
        if self.strings:
            self.texts.append("\n".join(fields[place] for place in self.strings))
        return row

    def _sparse_row(self, text: str) -> tuple[list[int], list[float]]:
        if not text.endswith("}"):
            raise _BadCellError(f"a sparse row must be in braces; got {shown(text)}.", None)
        body = text[1:-1].strip()
        plain = "'" not in body and '"' not in body
        items = body.split(",") if plain else _quoted_items(body)
        places: list[int] = []
        values: list[float] = []
        convert, width = self.convert, len(self.convert)
        for item in items if body else ():
            try:
                key, value = item.split() if plain else item.split(None, 1)
                place = int(key)
            except ValueError:
                raise _BadCellError(f"a sparse row must list 'number value' between commas; got {shown(item)}.", None) from None
            if not 0 <= place < width:
                raise _BadCellError(f"an attribute number must lie in [0, {width}); got {shown(key)}.", None)
            places.append(place)
            try:
                values.append(convert[place](value))
            except (ValueError, KeyError):
                unquoted = split_values(value)
                values.append(self._careful(place, unquoted[0] if unquoted else value))
        if len(set(places)) < len(places):
            raise _BadCellError("a sparse row must list an attribute once; one occurs twice.", None)
        if self.strings:
            raise _BadCellError("texts in sparse rows cannot be read. Write dense rows.", None)
        return places, values

    def _careful(self, place: int, value: str) -> float:
        attribute = self.attributes[place]
        if value in ("?", ""):
            return float("nan")
        try:
            return self.convert[place](value)
        except KeyError:
            wanted = f"one of {{{','.join(attribute.values[:8])}{',...' if len(attribute.values) > 8 else ''}}}"
        except ValueError:
            wanted = "a number"
        raise _BadCellError(f"the value must be {wanted}, or ? if it is missing; got {shown(value)}.", attribute.name) from None


class _BadCellError(Exception):
    """A message and a column for the problem log."""


def _converter(attribute: Attribute) -> Convert:
    if attribute.type == "nominal":
        return {value: float(place) for place, value in enumerate(attribute.values)}.__getitem__
    if attribute.type == "number":
        return float
    return lambda _: 0.0


def _quoted_items(body: str) -> list[str]:
    """``number value`` pairs, split at the commas outside quotation marks."""
    items, begin, quote, escaped = [], 0, "", False
    for place, mark in enumerate(body):
        if escaped:
            escaped = False
        elif mark == "\\":
            escaped = True
        elif quote:
            quote = "" if mark == quote else quote
        elif mark in "'\"":
            quote = mark
        elif mark == ",":
            items.append(body[begin:place].strip())
            begin = place + 1
    return [*items, body[begin:].strip()]
