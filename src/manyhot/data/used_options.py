"""A check that every given option is used by some file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from manyhot.data.examples import Source
from manyhot.data.files.problems import DataError
from manyhot.data.formats.registry import formats
from manyhot.data.options import ReadOptions

# Options that apply to every file, such as limits.
_FOR_ALL = {"need_labels", "max_line_bytes", "max_expansion", "max_labels", "on_problem", "skip_bad", "format", "nominal"}


_DEFAULTS = {each.name: each.default for each in fields(ReadOptions)}


def check_options_used(given: Mapping[str, Any], sources: Sequence[Source]) -> None:
    """Raise an error for an option that none of the files uses, with the reason.

    Args:
        given: the given options; those at their defaults count as not given.
        sources: the files; nothing is checked for examples without files.

    Example:
        >>> check_options_used({"delimiter": ";"}, [Source("posts.jsonl", "jsonl")])
        Traceback (most recent call last):
            ...
        manyhot.data.files.problems.DataError: posts.jsonl: `delimiter` must be left out: it is for csv, tsv, and the format of
        the file is jsonl.
    """
    for name in (name for name, value in given.items() if value != _DEFAULTS.get(name)):
        reasons = [_why_unused(name, source) for source in sources]
        if reasons and all(reasons):
            raise DataError(f"`{name}` must be left out: {reasons[0]}.", file=sources[0].path)


def _why_unused(name: str, source: Source) -> str | None:
    known = formats("labels")
    if name in _FOR_ALL or source.format not in known or name in source.unused:
        return source.unused.get(name)
    if name in known[source.format].takes:
        return None
    taking = [each.name for each in known.values() if name in each.takes]
    return f"it is for {', '.join(taking)}, and the format of the file is {source.format}"
