"""One JSON array over a whole file. It is read element by element, so the file may be larger than memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from manyhot.data.files.input_file import InputFile
from manyhot.data.files.json_lines import DECODER, RepeatedKeyError, has_half_a_pair
from manyhot.data.files.problems import ProblemLog, shown

_BLANKS = re.compile(r"[ \t\r\n]*")
# Characters that are read ahead at first; twice as many for as long as an element does not end.
AHEAD = 1 << 16


def array_objects(
    file: InputFile, problems: ProblemLog, *, adapt: Callable[[Any], Any] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The line where each object of the array begins, and the object. Elements that are no objects are problems; ``adapt`` may
    convert them.

    Raises:
        DataError: the file is not one JSON array.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.json"
        >>> _ = path.write_text('[{"a": [1, 2]},\\n {"b": "]"}]')
        >>> with InputFile(path) as file:
        ...     list(array_objects(file, ProblemLog("raise", "rows.json")))
        [(1, {'a': [1, 2]}), (2, {'b': ']'})]
    """
    text = _Text(file, problems)
    text.take("[")
    while text.next() != "]":
        line = text.line
        written, element = text.element()
        element = element if adapt is None else adapt(element)
        if not isinstance(element, dict):
            problems.add(f"an element of the array must be a JSON object; got {shown(element)}.", line=line)
        elif has_half_a_pair(written, element):
            problems.add("holds half a surrogate pair (\\ud800 to \\udfff), which is not a character. Remove it.", line=line)
        else:
            yield line, element
        if text.next() != "]":
            text.take(",")
            if text.next() == "]":
                raise text.wrong("an element must follow the comma")
    text.take("]")
    if text.next():
        raise text.wrong("nothing may follow the array")


def first_object(content: str) -> dict[str, Any] | None:
    """The first object of an array, from the beginning of the file; None if this is no array of objects.

    Example:
        >>> first_object('[{"text": "a"}, {"te')
        {'text': 'a'}
    """
    opening = _BLANKS.match(content)
    assert opening is not None
    start = opening.end()
    if content[start : start + 1] != "[":
        return None
    begin = _BLANKS.match(content, start + 1)
    assert begin is not None
    try:
        found = DECODER.raw_decode(content, begin.end())[0]
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class _Text:
    """The text of a file as a window that moves on; ``line`` is that of the next character."""

    def __init__(self, file: InputFile, problems: ProblemLog) -> None:
        self.lines, self.problems, self.most = file.lines(keep_ends=True), problems, file.max_line_bytes
        self.text, self.place, self.line = "", 0, 1

    def next(self) -> str:
        """The next character that is not blank; "" at the end."""
        while True:
            blanks = _BLANKS.match(self.text, self.place)
            assert blanks is not None
            self._move(blanks.end())
            if self.place < len(self.text):
                return self.text[self.place]
            if not self._grow():
                return ""

    def take(self, mark: str) -> None:
        """Go past a mark that must be there."""
        if self.next() != mark:
            raise self.wrong(f"{mark!r} must be here")
        self._move(self.place + 1)

    def element(self) -> tuple[str, Any]:
        """The next element, as it is written and as a value."""
        while True:
            try:
                value, end = DECODER.raw_decode(self.text, self.place)
            except json.JSONDecodeError as error:
                # More of it may follow.
                if len(self.text) - self.place > self.most or not self._grow():
                    self._move(min(error.pos, len(self.text)))
                    raise self.wrong(error.msg.removesuffix(" at")) from None
            except RepeatedKeyError as error:
                what = f"the keys of an object must differ; {shown(error.args[0])} occurs twice. Rename it."
                raise self.problems.fatal(what, line=self.line) from None
            except (RecursionError, ValueError) as error:
                raise self.problems.fatal(f"an element could not be parsed as JSON: {error}.", line=self.line) from None
            else:
                written = self.text[self.place : end]
                self._move(end)
                return written, value

    def wrong(self, what: str) -> Exception:
        """The error for the next characters."""
        rest = self.text[self.place : self.place + 30]
        there = f"got {shown(rest)}" if rest else "the file ends here. Is it complete?"
        return self.problems.fatal(f"must be one JSON array of objects: {what}; {there}", line=self.line)

    def _move(self, place: int) -> None:
        self.line += self.text.count("\n", self.place, place)
        self.place = place

    def _grow(self) -> bool:
        """Read ahead; whether there was more."""
        parts = [self.text[self.place :]]
        size, wanted = len(parts[0]), max(AHEAD, 2 * len(parts[0]))
        for _, more in self.lines:
            parts.append(more)
            size += len(more)
            if size >= wanted:
                break
        self.text, self.place = "".join(parts), 0
        return len(parts) > 1
