"""Characters to tokens and back: nothing is moved, nothing vanishes."""

from hypothesis import given
from hypothesis import strategies as st

from manyhot.data.spans.alignment import align_examples, align_spans
from manyhot.data.spans.examples import Fragmented, SpanExamples, TextSpan
from manyhot.training.spans.tokens import split_text

TEXTS = st.text(st.sampled_from("ab1 -_\u3000彭é😀\n"), max_size=24)


@st.composite
def spans_in(draw):
    text = draw(TEXTS)
    places = st.tuples(st.integers(0, max(len(text) - 1, 0)), st.integers(1, max(len(text), 1)))
    drawn = draw(st.lists(places, max_size=6)) if text else []
    return text, [TextSpan("X", start, end) for start, end in drawn if start < end]


@given(spans_in(), st.sampled_from(["words", "characters"]))
def test_every_span_is_aligned_exactly_or_listed_with_a_reason(case, tokens):
    text, spans = case
    offsets = split_text(text, tokens)
    found, lost = align_spans(spans, offsets, text)
    assert len(found) + len(lost) == len(spans)
    back = [TextSpan(span.type, offsets[span.first][0], offsets[span.last][1]) for span in found]
    assert sorted(back + [span for span, _ in lost]) == sorted(spans)
    starts, ends = {start for start, _ in offsets}, {end for _, end in offsets}
    assert all(span.start not in starts or span.end not in ends for span, _ in lost)


@given(TEXTS, st.sampled_from(["words", "characters"]))
def test_tokens_stand_in_order_and_hold_every_character_that_is_no_blank(text, tokens):
    offsets = split_text(text, tokens)
    flat = [place for pair in offsets for place in pair]
    assert flat == sorted(flat)
    inside = {place for start, end in offsets for place in range(start, end)}
    assert inside == {place for place, character in enumerate(text) if not character.isspace()}


@given(TEXTS.filter(lambda text: text.strip()))
def test_characters_align_every_span_that_begins_and_ends_with_one(text):
    whole = [place for place, character in enumerate(text) if not character.isspace()]
    spans = [TextSpan("X", start, end + 1) for start in whole for end in whole if start <= end]
    assert not align_spans(spans, split_text(text, "characters"), text)[1]


def test_reasons_are_told_and_counted():
    text = "50km to Rome"
    spans = [TextSpan("a", 2, 4), TextSpan("b", 5, 8), TextSpan("c", 0, 1), TextSpan("d", 1, 3), TextSpan("e", 8, 12)]
    examples = SpanExamples([text], [spans], fragmented=[[Fragmented("f", ((0, 4), (8, 12)))]])
    alignment = align_examples(examples, [split_text(text, "words")])
    assert [span.type for span in alignment.spans[0]] == ["e"]
    assert [lost.reason for lost in alignment.unaligned] == ["start", "blank", "end", "both", "pieces"]
    assert alignment.unaligned[-1].text == "50km Rome"
    assert alignment.report().startswith("5 of 6 spans do not align with tokens")
