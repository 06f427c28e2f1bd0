"""Plain text, one text per line: rows to predict, without labels or spans."""

from __future__ import annotations

from manyhot.data.examples import Examples, Source
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import ProblemLog
from manyhot.data.formats.format import Format
from manyhot.data.options import ReadOptions
from manyhot.data.spans.examples import SpanExamples
from manyhot.data.spans.options import SpanReadOptions
from manyhot.data.tables.label_rows import LabelRows
from manyhot.data.tables.table import source_of


def read_text(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """A row from each line that is not blank."""
    if options.need_labels:
        raise problems.fatal("must have labels to learn from; plain text has none. It can be predicted.")
    texts = [text for _, text in file.lines() if text.strip()]
    labels = LabelRows()
    for _ in texts:
        labels.add((), line=0)
    gathered = labels.finish(problems)
    return Examples(gathered.labels, gathered.names, texts=texts, source=(source_of(problems, "text", {}),))


def read_span_text(file: InputFile, options: SpanReadOptions, problems: ProblemLog) -> SpanExamples:
    """A text from each line that is not blank."""
    if options.need_spans:
        raise problems.fatal("must have spans to learn from; plain text has none. It can be predicted.")
    texts = [text for _, text in file.lines() if text.strip()]
    source = Source(file.name, "text", {}, tuple(problems.kept), problems.count)
    return SpanExamples(texts, [[] for _ in texts], source=(source,))


FORMAT = Format(
    name="text",
    about="one text per line, without labels",
    read=read_text,
    by_lines=True,
    unlabelled=True,
)
SPANS = Format(
    name="text",
    about="one text per line, without spans",
    read=read_span_text,
    holds="spans",
    likely_suffixes=(".txt",),
    by_lines=True,
    unlabelled=True,
)
