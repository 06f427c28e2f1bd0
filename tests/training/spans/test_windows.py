"""Windows of long texts: the spans that lie in them, in time that grows with the text and no faster."""

import time

from manyhot.data.spans.examples import SpanExamples, TextSpan
from manyhot.training.spans.inputs import VocabularyInputs
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.tokens import split_text
from manyhot.training.spans.windows import make_windows

SENTENCE = "Ada in Oslo . "


def long_text(sentences):
    spans = []
    for place in range(0, sentences * len(SENTENCE), len(SENTENCE)):
        spans += [TextSpan("PER", place, place + 3), TextSpan("LOC", place + 7, place + 11)]
    return SpanExamples([SENTENCE * sentences], [spans])


def windows_of(examples, **sizes):
    offsets = [split_text(text, "words") for text in examples.texts]
    inputs = VocabularyInputs.fit(examples.texts, offsets, "words", SpanSettings(min_count=1))
    return make_windows(inputs, examples, ("LOC", "PER"), **sizes)


def test_a_window_has_every_span_that_lies_in_it_and_no_other():
    found = windows_of(long_text(9), max_tokens=10, overlap=4)
    for row, start in zip(found.rows, found.start, strict=True):
        wanted = set()
        for sentence in range(9):
            for number, first in ((1, 4 * sentence), (0, 4 * sentence + 2)):
                if start <= first < start + len(row):
                    wanted.add((number, first - start, first - start))
        assert {tuple(span) for span in row.spans.tolist()} == wanted


def test_one_very_long_text_is_cut_in_linear_time():
    examples = long_text(60_000)
    begun = time.process_time()
    found = windows_of(examples, max_tokens=32, overlap=8)
    assert time.process_time() - begun < 40, "120,000 spans in 10,000 windows: all pairs would take minutes"
    assert len(found.rows) == 10_000
