"""The schema of saved descriptions. They come from files, and files are not trusted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from manyhot._suggest import nearest

# Sizes of tables and layers: above this no machine could hold them.
LARGEST_SIZE = 1 << 40


class SchemaError(ValueError):
    """Raised for a description with an unknown field, or one of the wrong kind."""


@dataclass(frozen=True)
class Kind:
    """A kind of value: what it must be, in words, and whether a value is that."""

    words: str
    fits: Callable[[Any], bool]
    optional: bool = False

    def or_missing(self) -> Kind:
        """The same, for a field that may be missing."""
        return Kind(self.words, self.fits, optional=True)

    def or_none(self) -> Kind:
        """The same, or null."""
        return Kind(f"{self.words} or null", lambda value: value is None or self.fits(value), self.optional)


def whole(least: int = 0, most: int = LARGEST_SIZE) -> Kind:
    """A whole number in a range."""
    words = f"a whole number >= {least}" if most == LARGEST_SIZE else f"a whole number from {least} to {most}"
    return Kind(words, lambda value: type(value) is int and least <= value <= most)


def number(least: float = -math.inf, most: float = math.inf) -> Kind:
    """A finite number in a range."""
    words = "a finite number" if math.isinf(least) else f"a number from {least:g} to {most:g}"
    return Kind(words, lambda value: type(value) in (int, float) and math.isfinite(value) and least <= value <= most)


def choice(*choices: str) -> Kind:
    """One of some words."""
    return Kind(f"one of {', '.join(map(repr, choices))}", lambda value: isinstance(value, str) and value in choices)


def listed(kind: Kind) -> Kind:
    """A list of one kind."""
    return Kind(f"a list, each {kind.words}", lambda value: isinstance(value, list) and all(map(kind.fits, value)))


TEXT = Kind("a text", lambda value: isinstance(value, str))
TRUTH = Kind("true or false", lambda value: isinstance(value, bool))
TABLE = Kind("an object", lambda value: isinstance(value, dict))

Schema = Mapping[str, Kind]


def check_schema(where: str, data: Any, schema: Schema) -> None:
    """Check that ``data`` is an object with the fields of ``schema``, each of its kind, and no others.

    Example:
        >>> check_schema("shape", {"hidden": 0.5}, {"hidden": whole(1)})
        Traceback (most recent call last):
            ...
        manyhot.training.run.schema.SchemaError: `shape.hidden` must be a whole number >= 1; got 0.5.
    """
    if not isinstance(data, dict):
        raise SchemaError(f"`{where}` must be an object; got {shown(data)}.")
    for name, value in data.items():
        if name not in schema:
            raise SchemaError(f"`{where}` has an unknown field {shown(name)}.{nearest(name, tuple(schema))}")
        if not schema[name].fits(value):
            raise SchemaError(f"`{where}.{name}` must be {schema[name].words}; got {shown(value)}.")
    missing: Sequence[str] = [name for name, kind in schema.items() if not kind.optional and name not in data]
    if missing:
        raise SchemaError(f"`{where}.{missing[0]}` must be {schema[missing[0]].words}; it is missing.")


def shown(value: Any) -> str:
    """A value in an error, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def parse_json(text: str) -> Any:
    """JSON whose numbers are finite; anything else is a ``SchemaError``.

    Example:
        >>> parse_json('{"width": 1e999}')
        Traceback (most recent call last):
            ...
        manyhot.training.run.schema.SchemaError: numbers must be finite; got 1e999.
    """
    try:
        return json.loads(text, parse_constant=_refuse_number, parse_float=_finite)
    except RecursionError:
        raise SchemaError("it is nested too deeply.") from None
    except SchemaError:
        raise
    except ValueError as error:
        raise SchemaError(f"it must be JSON: {error}.") from None


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse_number(digits)


def _refuse_number(digits: str) -> NoReturn:
    raise SchemaError(f"numbers must be finite; got {digits[:40]}.")
