"""What went wrong with spans, each error once."""

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from manyhot.metrics.spans.errors import ERROR_KINDS, _overlapping, count_span_errors, find_span_errors

SPANS = st.lists(
    st.tuples(st.sampled_from("AB"), st.integers(0, 6), st.integers(1, 4)).map(lambda s: (s[0], s[1], s[1] + s[2])), max_size=5
)


def test_each_kind_is_told_apart():
    gold = [[("PER", 0, 5), ("LOC", 10, 14), ("ORG", 20, 30), ("PER", 40, 44)]]
    predicted = [[("PER", 0, 3), ("ORG", 10, 14), ("LOC", 18, 24), ("PER", 50, 54)]]
    errors = find_span_errors(predicted, gold)
    assert [error.kind for error in errors] == ["boundary", "type", "boundary and type", "missed", "spurious"]
    assert list(count_span_errors(errors)) == list(ERROR_KINDS)


def test_a_right_span_is_no_error_and_hides_none():
    errors = find_span_errors([[("ORG", 0, 9)]], [[("ORG", 0, 9), ("LOC", 4, 9)]])
    assert [(error.kind, error.gold) for error in errors] == [("missed", ("LOC", 4, 9))]


@given(st.lists(st.tuples(SPANS, SPANS), max_size=4))
def test_every_wrong_or_missing_span_is_in_one_error(rows):
    predicted, gold = [row[0] for row in rows], [row[1] for row in rows]
    errors = find_span_errors(predicted, gold)
    for row, (guess, truth) in enumerate(rows):
        own = [error for error in errors if error.row == row]
        assert sorted(e.predicted for e in own if e.predicted) == sorted(set(guess) - set(truth))
        assert sorted(e.gold for e in own if e.gold) == sorted(set(truth) - set(guess))
    assert all((e.kind == "missed") == (e.predicted is None) and (e.kind == "spurious") == (e.gold is None) for e in errors)


def test_overlapping_spans_are_paired_as_by_trying_every_pair():
    draw = np.random.default_rng(0)
    for _ in range(50):
        sides = [
            {(str(draw.choice(["A", "B"])), int(start), int(start + draw.integers(1, 6))) for start in draw.integers(0, 20, 8)}
            for _ in range(2)
        ]
        tried = {(one, two) for one in sides[0] for two in sides[1] if min(one[2], two[2]) > max(one[1], two[1])}
        found = list(_overlapping(*sides))
        assert len(found) == len(set(found))
        assert set(found) == tried


def test_errors_of_one_very_long_row_are_found_in_linear_time():
    count = 100_000
    guesses = [("A", 10 * place, 10 * place + 3) for place in range(count)]
    truths = [("A", 10 * place, 10 * place + 4) for place in range(count)]
    begun = time.process_time()
    assert count_span_errors(find_span_errors([guesses], [truths]))["boundary"] == count
    assert time.process_time() - begun < 20
