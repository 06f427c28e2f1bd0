"""Brat standoff: a folder of texts ``NAME.txt``, each with its annotations in ``NAME.ann``; each text is a row. Text-bound
annotations (``T1<TAB>Person 0 3<TAB>Ada``) are spans. Discontinuous spans are kept separately and counted; relations, events,
attributes and notes are only counted.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from manyhot.data.examples import Source
from manyhot.data.files.input_file import COMPRESSED_SUFFIXES, InputFile
from manyhot.data.files.problems import DataError, ProblemLog, shown
from manyhot.data.formats.format import Format
from manyhot.data.spans.examples import Fragmented, SpanExamples, TextSpan, in_reading_order
from manyhot.data.spans.options import SpanReadOptions

OTHER_ANNOTATIONS = {
    "R": "relations",
    "E": "events",
    "A": "attributes",
    "M": "attributes",
    "N": "links",
    "#": "notes",
    "*": "equivalences",
}
# No text has positions of more than 18 digits, and Python refuses to parse thousands of digits.
_PLACES = re.compile(r"(\S+) (\d{1,18} \d{1,18}(?:;\d{1,18} \d{1,18})*)", re.ASCII)


def read_brat(path: Path, options: SpanReadOptions, problems: ProblemLog) -> SpanExamples:
    """All pairs of a folder, or the pair that ``path`` belongs to."""
    texts, spans, fragmented, ids = [], [], [], []
    others: Counter[str] = Counter()
    for text_path, marks_path in _pairs(path, options.need_spans, problems):
        own: list[TextSpan] = []
        pieces: list[Fragmented] = []
        try:
            with _opened(text_path, options) as file:
                text = _decoded(file)
            if marks_path is not None:
                with _opened(marks_path, options) as file:
                    file.problems = problems
                    problems.file = file.name
                    _read_marks(file, text, own, pieces, others, problems)
        except DataError as error:
            # If problems are collected, a pair that cannot be read is skipped.
            problems.file = error.problem.file
            problems.add(error.problem.message, line=error.problem.line, column=error.problem.column)
            continue
        finally:
            problems.file = str(path)
        texts.append(text)
        spans.append(in_reading_order(own))
        fragmented.append(pieces)
        ids.append(_stem(text_path))
    chosen: dict[str, Any] = {"texts": len(texts), **others}
    lost = sum(map(len, fragmented))
    chosen |= {"spans_in_pieces": lost} if lost else {}
    source = Source(str(path), "brat", chosen, tuple(problems.kept), problems.count)
    return SpanExamples(texts, spans, None, ids, fragmented, (source,))


def _opened(path: Path, options: SpanReadOptions) -> InputFile:
    return InputFile(path, max_line_bytes=options.max_line_bytes, max_expansion=options.max_expansion)


def is_brat(path: Path) -> bool:
    """Whether a path is a folder with annotations in it, or one file of a pair."""
    if path.is_dir():
        return any(_bare(child).endswith(".ann") for child in path.iterdir())
    return _bare(path).endswith(".ann") or (_bare(path).endswith(".txt") and _beside(path, ".ann") is not None)


def _pairs(path: Path, need_spans: bool, problems: ProblemLog) -> list[tuple[Path, Path | None]]:
    """Texts with their annotations; a file without its other half is a problem, and is skipped if problems are collected."""
    if not path.is_dir():
        text_path = path if _bare(path).endswith(".txt") else _beside(path, ".txt")
        texts, alone = ([], [path]) if text_path is None else ([text_path], [])
    else:
        children = sorted(child for child in path.iterdir() if child.is_file())
        texts = [child for child in children if _bare(child).endswith(".txt")]
        stems = {_stem(child) for child in texts}
        alone = [child for child in children if _bare(child).endswith(".ann") and _stem(child) not in stems]
        if not texts and not alone:
            raise DataError("must hold texts NAME.txt with annotations NAME.ann; it holds none.", file=str(path))
    found = [(text, _beside(text, ".ann")) for text in texts]
    bare = [text for text, marks in found if marks is None] if need_spans else []
    for children, message in (
        (alone, "must have its text beside it, with the same name and .txt; there is none."),
        (
            bare,
            "must have annotations beside it, with the same name and .ann; there are none. Create the file; it may be empty.",
        ),
    ):
        for child in children:
            problems.file = str(child)
            problems.add(message)
    problems.file = str(path)
    return [(text, marks) for text, marks in found if text not in set(bare)]


def _bare(path: Path) -> str:
    name = path.name.lower()
    return next((name.removesuffix(suffix) for suffix in COMPRESSED_SUFFIXES if name.endswith(suffix)), name)


def _stem(path: Path) -> str:
    """The name without ``.txt`` or ``.ann`` and without a compression suffix."""
    return path.name[: len(_bare(path)) - len(".txt")]


def _beside(path: Path, suffix: str) -> Path | None:
    for ending in ("", *COMPRESSED_SUFFIXES):
        other = path.with_name(_stem(path) + suffix + ending)
        if other.is_file():
            return other
    return None


def _decoded(file: InputFile) -> str:
    """The text unchanged, with its line ends, because annotations count every character."""
    content = file.read(file.max_line_bytes)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"must be UTF-8; got the byte 0x{content[error.start]:02x} at byte {error.start}. Convert it, for example with:"
            " iconv -f latin1 -t utf-8",
            file=file.name,
            line=content.count(b"\n", 0, error.start) + 1,
        ) from None


def _read_marks(
    file: InputFile,
    text: str,
    spans: list[TextSpan],
    pieces: list[Fragmented],
    others: Counter[str],
    problems: ProblemLog,
) -> None:
    for line, content in file.lines():
        if not content.strip():
            continue
        if content[0] in OTHER_ANNOTATIONS:
            others[OTHER_ANNOTATIONS[content[0]]] += 1
            continue
        try:
            mark = _mark(content, text)
        except ValueError as error:
            problems.add(str(error), line=line)
            continue
        if isinstance(mark, TextSpan):
            spans.append(mark)
        else:
            pieces.append(mark)


def _mark(content: str, text: str) -> TextSpan | Fragmented:
    """The annotation in a line; ValueError with the message if there is none."""
    parts = content.split("\t")
    found = _PLACES.fullmatch(parts[1]) if len(parts) >= 2 and content[0] == "T" else None
    if found is None:
        raise ValueError(f"must be an annotation such as T1<tab>Person 0 3<tab>Ada; got {shown(content)}.")
    places = [tuple(map(int, piece.split(" "))) for piece in found[2].split(";")]
    for start, end in places:
        if not 0 <= start < end <= len(text):
            raise ValueError(
                f"must lie in the text, 0 <= start < end <= {len(text)}, counted in characters; got {start} to {end}."
            )
    said = " ".join(text[start:end] for start, end in places)
    if len(parts) > 2 and _blanks(parts[2]) != _blanks(said):
        raise ValueError(f"must give the position of {shown(parts[2])}; the text there is {shown(said)}.")
    if len(places) > 1:
        return Fragmented(found[1], tuple((start, end) for start, end in places))
    return TextSpan(found[1], places[0][0], places[0][1])


def _blanks(text: str) -> str:
    """The text with every run of whitespace as one space, because brat writes a line end inside a span as a space."""
    return " ".join(text.split())


FORMAT = Format(
    name="brat",
    about="brat standoff: a folder of NAME.txt and NAME.ann, or one such pair",
    read=read_brat,
    holds="spans",
    folder=is_brat,
)
