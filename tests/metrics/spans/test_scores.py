import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhot.decisions.span_decoding import Span
from manyhot.metrics.spans.scores import SpanCounts, SpanMetrics, span_f1_score

span = st.tuples(st.sampled_from("ABC"), st.integers(0, 5), st.integers(0, 5)).map(lambda s: (s[0], min(s[1:]), max(s[1:])))
rows = st.lists(st.tuples(st.lists(span, max_size=6), st.lists(span, max_size=6)), max_size=5)

PREDICTED = [[("PER", 0, 1), ("LOC", 4, 6), ("LOC", 5, 5)], [("ORG", 2, 2)], []]
GOLD = [[("PER", 0, 1), ("ORG", 4, 6), ("LOC", 5, 5)], [], [("PER", 3, 3)]]


def test_f1_is_counted_over_the_corpus_not_averaged_over_rows():
    assert span_f1_score(PREDICTED, GOLD) == pytest.approx(2 * 2 / (4 + 4))
    assert span_f1_score(PREDICTED, GOLD, match="boundary") == pytest.approx(2 * 3 / (4 + 4))


def test_macro_f1_is_the_mean_over_types_seen_on_either_side():
    by_type = span_f1_score(PREDICTED, GOLD, average="none")
    assert by_type == {"LOC": pytest.approx(2 / 3), "ORG": 0.0, "PER": pytest.approx(2 / 3)}
    assert span_f1_score(PREDICTED, GOLD, average="macro") == pytest.approx(4 / 9)


def test_outer_spans_lie_inside_no_other():
    metrics = SpanMetrics()
    metrics.update(PREDICTED, GOLD)
    assert metrics.counts(level="outer") == SpanCounts(hits=1, predicted=3, gold=3)
    assert metrics.counts(level="inner") == SpanCounts(hits=1, predicted=1, gold=1)
    assert metrics.counts(level="outer", match="boundary") == SpanCounts(hits=2, predicted=3, gold=3)


def test_spans_that_cross_or_share_their_tokens_are_all_outer():
    metrics = SpanMetrics()
    metrics.update([[]], [[("A", 0, 4), ("B", 0, 4), ("A", 3, 6), ("C", 5, 6), ("C", 0, 2)]])
    assert metrics.counts(level="outer").gold == 3
    assert metrics.by_type(level="inner") == {"C": SpanCounts(gold=2)}


def test_several_types_on_the_same_tokens_are_one_boundary():
    metrics = SpanMetrics()
    metrics.update([[("A", 0, 1), ("B", 0, 1)]], [[("C", 0, 1)]])
    assert metrics.counts(match="boundary") == SpanCounts(1, 1, 1)
    assert metrics.counts() == SpanCounts(0, 2, 1)


def test_true_spans_that_cannot_be_aligned_count_as_missed():
    perfect = [[("PER", 0, 1)]]
    metrics = SpanMetrics()
    metrics.update(perfect, perfect, unaligned=[["PER", "LOC"]])
    assert metrics.counts() == SpanCounts(1, 1, 3)
    assert metrics.counts(match="boundary").recall == pytest.approx(1 / 3)
    assert metrics.counts(level="outer").gold == 3
    assert metrics.by_type()["LOC"] == SpanCounts(0, 0, 1)
    assert span_f1_score(perfect, perfect, unaligned=[["PER", "LOC"]]) == pytest.approx(0.5)


def test_no_spans_anywhere_is_zero_and_no_division():
    metrics = SpanMetrics()
    metrics.update([[], []], [[], []])
    assert metrics.f1() == metrics.f1(average="macro") == metrics.f1(match="boundary") == 0.0
    assert metrics.counts() == SpanCounts()
    assert (SpanCounts().precision, SpanCounts().recall) == (0.0, 0.0)
    assert metrics.table() == []


def test_decoded_spans_are_taken_as_they_are_and_a_repeated_one_counts_once():
    predicted = [[Span(0, 1, 2, 0.3), Span(0, 1, 2, 0.9)]]
    assert span_f1_score(predicted, [[(0, 1, 2)]]) == 1.0


def test_the_table_has_a_line_for_each_type():
    metrics = SpanMetrics()
    metrics.update(PREDICTED, GOLD)
    table = metrics.table()
    assert [line.type for line in table] == ["LOC", "ORG", "PER"]
    loc = table[0]
    assert (loc.hits, loc.predicted, loc.gold) == (1, 2, 1)
    assert (loc.precision, loc.recall) == (0.5, 1.0)
    assert loc.f1 == pytest.approx(2 / 3)


@given(rows)
def test_batches_in_any_cut_and_merged_accumulators_give_the_same(pairs):
    whole, running, other = SpanMetrics(), SpanMetrics(), SpanMetrics()
    predicted, gold = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    whole.update(predicted, gold)
    for number, (guess, truth) in enumerate(pairs):
        (running if number % 2 else other).update([guess], [truth])
    running.merge(other)
    for level in ("all", "outer", "inner"):
        assert running.by_type(level=level) == whole.by_type(level=level)
        assert running.counts(match="boundary", level=level) == whole.counts(match="boundary", level=level)


@given(rows)
def test_levels_part_the_spans(pairs):
    metrics = SpanMetrics()
    metrics.update([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    parts = metrics.counts(level="outer").plus(metrics.counts(level="inner"))
    assert parts[1:] == metrics.counts()[1:]
    assert parts.hits <= metrics.counts().hits
    assert metrics.counts().gold == sum(len(set(pair[1])) for pair in pairs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"average": "weighted"}, "`average` must be one of"),
        ({"match": "partial"}, "`match` must be one of"),
        ({"level": "top"}, "`level` must be one of"),
        ({"average": "macro", "match": "boundary"}, "`match` must be one of 'exact'; got 'boundary'"),
        ({"unaligned": [[]]}, "one list for each row; got 3, 3 and 1"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        span_f1_score(PREDICTED, GOLD, **settings)
    with pytest.raises(ValueError, match="one list for each row; got 3, 2"):
        span_f1_score(PREDICTED, GOLD[:2])
    with pytest.raises(ValueError, match="'macro' is over types"):
        SpanMetrics().f1(average="macro", match="boundary")
