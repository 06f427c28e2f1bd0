"""fastText's supervised format: words that begin with ``__label__`` are labels, the rest of the line is the text.

fastText's own package has no reader that returns rows.
"""

from __future__ import annotations

from manyhot.data.examples import Examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import ProblemLog
from manyhot.data.formats.format import FileStart, Format, part_as_whole
from manyhot.data.options import ReadOptions
from manyhot.data.tables.label_rows import LabelRows
from manyhot.data.tables.table import source_of

PREFIX = "__label__"


def read_fasttext(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """All lines of a fastText file; empty lines are skipped."""
    size = len(PREFIX)
    texts: list[str] = []
    labels = LabelRows()
    for line, content in file.lines():
        words = content.split()
        if not words:
            continue
        names = [word[size:] for word in words if word.startswith(PREFIX)]
        if "" in names:
            problems.add(f"a label must follow {PREFIX!r}; there is none.", line=line, column=content.find(PREFIX) + 1)
            continue
        labels.add(names, line=line)
        texts.append(" ".join(word for word in words if not word.startswith(PREFIX)) if names else content.strip())
    if not texts:
        raise problems.fatal(f"must hold at least one line; it holds none that can be read.{problems.first()}")
    gathered = labels.finish(problems, wanted=options.label_names)
    source = source_of(problems, "fasttext", {"prefix": PREFIX})
    return Examples(gathered.labels, gathered.names, texts=texts, source=(source,))


def _looks(start: FileStart) -> bool:
    return sum(PREFIX in line for line in start.lines) > len(start.lines) / 2


FORMAT = Format(
    name="fasttext",
    about="__label__x words before or in a text",
    read=read_fasttext,
    looks=_looks,
    by_lines=True,
    read_part=part_as_whole(read_fasttext),
    takes=("label_names",),
)
