"""CoNLL files: one token per line with its tags, a blank line between sentences; IOB1, IOB2 and BIOES (or BILOU) tags.

The text of a sentence is its tokens joined by spaces. A second column of tags holds spans inside those of the first
(GermEval): both are read as spans of one text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from manyhot.data.examples import Source
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import DataError, ProblemLog, shown
from manyhot.data.formats.format import FileStart, Format
from manyhot.data.spans.examples import Offsets, SpanExamples, TextSpan, in_reading_order
from manyhot.data.spans.options import SpanReadOptions

TAG = re.compile(r"O|[BIESLU]-\S+", re.ASCII)
SCHEMES = ("iob2", "iob1", "bioes")
SAMPLE_LINES = 2000
_SINGLE = {"L": "E", "U": "S"}
# Valid transitions: a tag is the first of an entity, inside one, its last, or a single-token entity.
_LETTERS = {"iob2": "BI", "iob1": "BI", "bioes": "BIES"}

Line = tuple[int, list[str]]


def read_conll(file: InputFile, options: SpanReadOptions, problems: ProblemLog) -> SpanExamples:
    """All sentences of a file."""
    lines = file.lines()
    start = list(islice(lines, SAMPLE_LINES))
    token_column, tags = columns_of(start, options.tag_columns, file.name)
    sentences = list(_sentences(start, lines, token_column, tags, problems))
    found = options.scheme or _scheme(sentences, tags, file.name)
    texts, spans, tokens = [], [], []
    for sentence in sentences:
        words = [columns[token_column] for _, columns in sentence]
        offsets = _offsets(words)
        try:
            own = [
                span
                for column in range(-tags, 0)
                for span in _spans([(line, columns[column]) for line, columns in sentence], offsets, found, file.name)
            ]
        except DataError as error:
            problems.add(error.problem.message, line=error.problem.line, column=error.problem.column)
            continue
        texts.append(" ".join(words))
        spans.append(in_reading_order(own))
        tokens.append(offsets)
    chosen: dict[str, Any] = {"scheme": found, "tag_columns": tags, "token_column": token_column + 1}
    source = Source(file.name, "conll", chosen, tuple(problems.kept), problems.count)
    return SpanExamples(texts, spans, tokens, source=(source,))


def looks_like_conll(lines: Sequence[str]) -> bool:
    """Whether most lines that are not blank end in a tag."""
    columns = [split(line) for line in lines if line.strip() and not _skipped(split(line))]
    tagged = sum(len(parts) > 1 and TAG.fullmatch(parts[-1]) is not None for parts in columns)
    return tagged > 0.8 * max(len(columns), 1)


def split(line: str) -> list[str]:
    """The columns of a line, separated by tabs if there are any, otherwise by spaces."""
    stripped = line.strip(" \r\n")
    return stripped.split("\t") if "\t" in stripped else stripped.split()


def columns_of(start: Sequence[tuple[int, str]], tag_columns: int | None, name: str) -> tuple[int, int]:
    """``(column of the token, number of tag columns)``.

    Two columns of tags are read if a line is token, tag, tag, or number, token, tag, tag; in other files with several
    columns (part of speech, chunk, entity) the last one holds the tags.
    """
    rows = [split(line) for _, line in start if line.strip() and not _skipped(split(line))]
    if not rows:
        raise DataError("must hold a token and its tag per line; it holds none.", file=name)
    width = Counter(map(len, rows)).most_common(1)[0][0]
    typical = [row for row in rows if len(row) == width]
    # A single invalid tag is reported as a problem of its line; it does not change which columns hold tags.
    tagged = [sum(TAG.fullmatch(row[column]) is not None for row in typical) > 0.8 * len(typical) for column in range(width)]
    if width < 2 or not tagged[-1]:
        line, row = next((line, split(text)) for line, text in start if _untagged(text))
        raise DataError(
            f"the last column must hold tags such as O, B-PER and I-PER; this line is {shown(row)}."
            " Put the tags in the last column.",
            file=name,
            line=line,
        )
    numbered = width == 4 and all(row[0].isdigit() for row in typical)
    both = tagged[-2] and (width == 3 or numbered)
    return (1 if numbered else 0), tag_columns or (2 if both else 1)


def _untagged(text: str) -> bool:
    columns = split(text)
    return bool(columns) and not _skipped(columns) and (len(columns) < 2 or TAG.fullmatch(columns[-1]) is None)


def _skipped(columns: Sequence[str]) -> bool:
    """Document marks, and comments: a ``#`` line that does not end in a tag."""
    return columns[0] == "-DOCSTART-" or (columns[0].startswith("#") and TAG.fullmatch(columns[-1]) is None)


def _sentences(
    start: Sequence[tuple[int, str]], rest: Iterator[tuple[int, str]], token_column: int, tags: int, problems: ProblemLog
) -> Iterator[list[Line]]:
    sentence: list[Line] = []
    broken = False
    for group in (start, rest):
        for line, text in group:
            if not text.strip():
                if sentence and not broken:
                    yield sentence
                sentence, broken = [], False
                continue
            columns = split(text)
            if _skipped(columns):
                continue
            wrong = _wrong(columns, token_column, tags)
            if wrong:
                problems.add(wrong, line=line)
                broken = True
            else:
                sentence.append((line, columns))
    if sentence and not broken:
        yield sentence


def _wrong(columns: Sequence[str], token_column: int, tags: int) -> str:
    if len(columns) < token_column + 1 + tags:
        return f"must have a token and {tags} column{'s' * (tags > 1)} of tags; got {shown(list(columns))}."
    for tag in columns[-tags:]:
        if TAG.fullmatch(tag) is None:
            return f"a tag must be O, or B-, I- (E-, S-) and a type; got {shown(tag)}."
    if not columns[token_column].strip():
        return "the token must not be empty."
    return ""


def _offsets(words: Sequence[str]) -> Offsets:
    offsets, place = [], 0
    for word in words:
        offsets.append((place, place + len(word)))
        place += len(word) + 1
    return offsets


def _scheme(sentences: Sequence[Sequence[Line]], tags: int, name: str) -> str:
    """The scheme that fits all tags of a file; a mixture of IOB1 and IOB2 is an error that names a line."""
    letters: set[str] = set()
    begins_inside, needless_begin = 0, False
    for sentence in sentences:
        for column in range(-tags, 0):
            before = "O"
            for line, columns in sentence:
                tag = columns[column]
                letters.add(tag[0])
                same = before[2:] == tag[2:] and before != "O"
                if tag[0] == "I" and not same:
                    begins_inside = begins_inside or line
                needless_begin = needless_begin or (tag[0] == "B" and not same)
                before = tag
    if letters & set("ESLU"):
        return "bioes"
    if not begins_inside:
        return "iob2"
    if needless_begin:
        raise DataError(
            "an entity must begin with B- (IOB2), or B- must only separate entities of one type (IOB1); the file does both: I-"
            " begins an entity here. Correct it, or set `scheme='iob1'`, which lets both begin an entity.",
            file=name,
            line=begins_inside,
        )
    return "iob1"


def _spans(tags: Sequence[tuple[int, str]], offsets: Offsets, scheme: str, name: str) -> Iterator[TextSpan]:
    """The spans of one column of a sentence."""
    kind, first, closed = "", -1, True
    for place, (line, tag) in enumerate(tags):
        letter, own = _SINGLE.get(tag[0], tag[0]), tag[2:]
        if letter != "O" and letter not in _LETTERS[scheme]:
            raise DataError(f"must be a tag of {scheme}; got {tag!r}. Set another `scheme`.", file=name, line=line)
        goes_on = not closed and own == kind and letter in "IE"
        if scheme == "bioes" and not closed and not goes_on:
            raise DataError(f"an entity must end with E- or L-; {kind!r} is left open before {tag!r}.", file=name, line=line)
        if letter in "IE" and not goes_on and scheme != "iob1":
            raise DataError(
                f"an entity must begin with B-; got {tag!r}, which continues no entity of its type.", file=name, line=line
            )
        if not goes_on:
            if not closed:
                yield TextSpan(kind, offsets[first][0], offsets[place - 1][1])
            kind, first, closed = own, place, letter == "O"
        if letter in "ES":
            yield TextSpan(own, offsets[first][0], offsets[place][1])
            closed = True
    if not closed:
        if scheme == "bioes":
            raise DataError(f"an entity must end with E- or L-; {kind!r} is left open.", file=name, line=tags[-1][0])
        yield TextSpan(kind, offsets[first][0], offsets[-1][1])


def _looks(start: FileStart) -> bool:
    return looks_like_conll(start.lines)


FORMAT = Format(
    name="conll",
    about="one token per line with its tags (IOB1, IOB2, BIOES)",
    read=read_conll,
    holds="spans",
    looks=_looks,
    certain=_looks,
)
