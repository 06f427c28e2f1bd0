"""JSON lines: one object a line.

The standard library parses: it says where a line goes wrong to the character, and a line is one example, so nothing is gained
by a reader that takes many lines at once and reports none of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import ProblemLog, shown

ARRAY_HINT = " One array over the whole file is not JSON lines: write each of its objects on a line, with: jq -c '.[]' FILE"


def json_objects(
    file: InputFile, problems: ProblemLog, *, adapt: Callable[[Any], Any] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and objects, blank lines left out; ``adapt`` may make an object of something else that stands in a line."""
    decode = json.JSONDecoder(object_pairs_hook=_object).decode
    for line, text in file.lines():
        if not text or text.isspace():
            continue
        try:
            record = decode(text)
            if "\\ud" in text or "\\uD" in text:
                json.dumps(record, ensure_ascii=False).encode("utf-8")
        except _RepeatedKeyError as error:
            problems.add("the keys of an object must differ; one is there twice. Rename it.", line=line, column=error.args[0])
        except json.JSONDecodeError as error:
            what = "one JSON object, which is all on one line" if text.strip() in "[{" else "a JSON object"
            hint = ARRAY_HINT if text.lstrip().startswith("[") else ""
            problems.add(
                f"the line must be {what}; {error.msg.removesuffix(' at')} at {shown(text[error.pos : error.pos + 30])}.{hint}",
                line=line,
                column=error.pos + 1,
            )
        except UnicodeEncodeError:
            problems.add("holds half a surrogate pair (\\ud800 to \\udfff), which is no character. Remove it.", line=line)
        except (RecursionError, ValueError) as error:
            problems.add(f"the line could not be parsed as JSON: {error}.", line=line)
        else:
            record = record if adapt is None else adapt(record)
            if isinstance(record, dict):
                yield line, record
            else:
                hint = ARRAY_HINT if isinstance(record, list) else ""
                problems.add(f"the line must be a JSON object; got {shown(record)}.{hint}", line=line)


class _RepeatedKeyError(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        seen: set[str] = set()
        raise _RepeatedKeyError(next(name for name, _ in pairs if name in seen or seen.add(name)))  # type: ignore[func-returns-value]
    return record
