"""JSON lines: one object per line.

Parsed by the standard library, which reports the exact position of an error. Readers that parse many lines at once cannot say
which line is wrong.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from manyhot._files import writing
from manyhot.data.files.input_file import InputFile, bare_name
from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.files.streams import PathLike

_PACKED: dict[str, Any] = {
    ".gz": partial(gzip.GzipFile, "", "wb", 9),
    ".bz2": partial(bz2.BZ2File, mode="wb"),
    ".xz": partial(lzma.LZMAFile, mode="wb"),
}
ARRAY_HINT = " One array over the whole file is not JSON lines: write each of its objects on a line, with: jq -c '.[]' FILE"


def json_objects(
    file: InputFile, problems: ProblemLog, *, adapt: Callable[[Any], Any] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and objects, without blank lines; ``adapt`` may convert other JSON values to objects."""
    for line, text in file.lines():
        if text and not text.isspace():
            record = json_object(text, line, problems, adapt=adapt)
            if record is not None:
                yield line, record


def json_object(
    text: str, line: int, problems: ProblemLog, *, adapt: Callable[[Any], Any] | None = None
) -> dict[str, Any] | None:
    """The object in one line. If there is none, the problem is reported and the result is None."""
    try:
        record = DECODER.decode(text)
        if has_half_a_pair(text, record):
            problems.add("holds half a surrogate pair (\\ud800 to \\udfff), which is not a character. Remove it.", line=line)
            return None
    except RepeatedKeyError as error:
        problems.add("the keys of an object must differ; one occurs twice. Rename it.", line=line, column=error.args[0])
    except json.JSONDecodeError as error:
        what = "a complete JSON object" if text.strip() in "[{" else "a JSON object"
        hint = ARRAY_HINT if text.lstrip().startswith("[") else ""
        problems.add(
            f"the line must be {what}; {error.msg.removesuffix(' at')} at {shown(text[error.pos : error.pos + 30])}.{hint}",
            line=line,
            column=error.pos + 1,
        )
    except (RecursionError, ValueError) as error:
        problems.add(f"the line could not be parsed as JSON: {error}.", line=line)
    else:
        record = record if adapt is None else adapt(record)
        if isinstance(record, dict):
            return record
        hint = ARRAY_HINT if isinstance(record, list) else ""
        problems.add(f"the line must be a JSON object; got {shown(record)}.{hint}", line=line)
    return None


def write_json_lines(who: str, path: PathLike, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one object per line; the file is written atomically.

    Args:
        who: the caller, for messages.
        path: ends in ``.jsonl``, and in ``.gz``, ``.bz2`` or ``.xz`` to compress.
        rows: the objects.
    """
    check_target(f"{who}: `path`", path)
    target = Path(path)
    with writing(target) as file, _PACKED.get(target.suffix.lower(), nullcontext)(file) as packed:
        for row in rows:
            packed.write((json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode())


def check_target(what: str, path: PathLike) -> None:
    """Check the suffix of a file for ``write_json_lines``; ``what`` names the argument or flag."""
    if not bare_name(path).endswith(".jsonl"):
        raise ValueError(f"{what} must end in .jsonl, or .jsonl.gz, .bz2 or .xz; got {str(path)!r}.")
    if Path(path).suffix.lower() == ".zst":
        raise ValueError(f"{what} must not end in .zst, which can be read but not written. Use .gz, .bz2 or .xz.")


def has_half_a_pair(text: str, record: Any) -> bool:
    """Whether a value, written as ``text``, has half of a surrogate pair, which is not a character."""
    if "\\ud" not in text and "\\uD" not in text:
        return False
    try:
        json.dumps(record, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


class RepeatedKeyError(ValueError):
    """An object has a key twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        seen: set[str] = set()
        raise RepeatedKeyError(next(name for name, _ in pairs if name in seen or seen.add(name)))  # type: ignore[func-returns-value]
    return record


DECODER = json.JSONDecoder(object_pairs_hook=_object)
