import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyhot.labels.spans import SpanLabels

ROWS = [[(1, 0, 2), (0, 0, 0), (0, 2, 2)], [], [(2, 1, 1)]]


def make(**settings):
    return SpanLabels.from_lists(ROWS, num_types=3, **({"lengths": [3, 0, 2]} | settings))


@st.composite
def span_rows(draw):
    types, tokens = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    span = st.tuples(st.integers(0, types - 1), st.integers(0, tokens - 1), st.integers(0, tokens - 1))
    rows = draw(st.lists(st.lists(span, unique=True, max_size=6), max_size=4))
    return types, tokens, rows


def test_a_span_is_the_cell_of_its_two_inclusive_tokens():
    dense = make().dense()
    assert dense.dtype == torch.bool
    assert dense.shape == (3, 3, 3, 3)
    assert dense.nonzero().tolist() == [[0, 0, 0, 0], [0, 0, 2, 2], [0, 1, 0, 2], [2, 2, 1, 1]]


@given(span_rows())
def test_lists_and_dense_say_the_same(case):
    types, tokens, rows = case
    labels = SpanLabels.from_lists(rows, num_types=types, num_tokens=tokens, triangle=False)
    assert labels.lists() == [sorted(row) for row in rows]
    assert labels.counts().tolist() == [len(row) for row in rows]
    again = SpanLabels.from_dense(labels.dense())
    assert again.lists() == labels.lists()
    assert again.shape == labels.shape


@given(span_rows())
def test_any_cut_and_collate_gives_the_rows_back(case):
    types, tokens, rows = case
    labels = SpanLabels.from_lists(rows, num_types=types, num_tokens=tokens, triangle=False)
    parts = [labels[[number]] for number in range(len(labels))]
    if parts:
        assert SpanLabels.collate(parts).lists() == labels.lists()
    backwards = torch.arange(len(labels)).flip(0)
    assert labels[backwards].lists() == labels.lists()[::-1]
    assert labels[1:].lists() == labels.lists()[1:]
    assert labels[torch.zeros(len(labels), dtype=torch.bool)].lists() == []


def test_rows_of_different_widths_are_collated_to_the_widest():
    short = SpanLabels.from_lists([[(0, 1, 1)]], num_types=2, num_tokens=2)
    long = SpanLabels.from_lists([[(1, 0, 4), (0, 3, 4)]], num_types=2, num_tokens=5)
    both = SpanLabels.collate([short, long])
    assert both.shape == (2, 2, 5, 5)
    assert both.lists() == [[(0, 1, 1)], [(0, 3, 4), (1, 0, 4)]]


def test_soft_values_follow_their_spans():
    labels = make(values=[[0.25, 1.0, 0.5], [], [0.0]])
    assert labels.dense()[0, 1, 0, 2] == 0.25
    assert labels.dense()[0, 0, 2, 2] == 0.5
    assert SpanLabels.collate([labels, make()]).values.tolist() == [1.0, 0.5, 0.25, 0.0, 1.0, 1.0, 1.0, 1.0]


def test_a_row_number_gives_its_spans_and_a_number_too_large_is_an_error():
    assert make()[0].tolist() == [[0, 0, 0], [0, 2, 2], [1, 0, 2]]
    assert make()[-2].shape == (0, 3)
    with pytest.raises(IndexError):
        make()[3]


def test_moving_keeps_everything():
    moved = make(values=[[0.25, 1.0, 0.5], [], [0.0]]).to("cpu")
    assert moved.lists() == make().lists()
    assert moved.values.tolist() == [1.0, 0.5, 0.25, 0.0]
    assert repr(moved) == "SpanLabels(3 rows, 3 types, 3 tokens, 4 spans, soft, device='cpu')"


def test_no_rows_and_no_tokens_are_fine():
    assert SpanLabels.from_lists([], num_types=2, lengths=[]).shape == (0, 2, 0, 0)
    empty = SpanLabels.from_lists([[], []], num_types=2, num_tokens=0)
    assert empty.dense().shape == (2, 2, 0, 0)
    assert empty.lists() == [[], []]


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ([[(3, 0, 0)]], {"num_tokens": 4}, r"types must lie in \[0, 3\); got 3 in row 0"),
        ([[(-1, 0, 0)]], {"num_tokens": 4}, r"types must lie in \[0, 3\); got -1"),
        ([[], [(0, 1, 4)]], {"num_tokens": 4}, r"\[0, 4\), the tokens of row 1; got \(0, 1, 4\). The last token is inclusive"),
        ([[(0, 1, 2)]], {"lengths": [2], "num_tokens": 4}, r"\[0, 2\), the tokens of row 0"),
        ([[(0, -1, 2)]], {"num_tokens": 4}, r"got \(0, -1, 2\)"),
        ([[(0, 3, 2)]], {"num_tokens": 4}, r"first token must not come after the last; got \(0, 3, 2\).*triangle=False"),
        ([[(0, 1, 2), (1, 0, 0), (0, 1, 2)]], {"num_tokens": 4}, r"\(0, 1, 2\) is repeated in row 0"),
        ([[(0, 1)]], {"num_tokens": 4}, "three whole numbers"),
        ([[(0, 1, 2), (0, 1)]], {"num_tokens": 4}, "three whole numbers"),
        ([[(0, 1.5, 2)]], {"num_tokens": 4}, "three whole numbers"),
        ([[("PER", 1, 2)]], {"num_tokens": 4}, "three whole numbers"),
        ([[]], {}, "`num_tokens` or `lengths`"),
        ([[]], {"lengths": [2, 3]}, "one number for each of 1 rows; got 2"),
        ([[]], {"lengths": [5], "num_tokens": 4}, "at least the longest of `lengths`, 5; got 4"),
        ([[(0, 1, 2)]], {"num_tokens": 4, "values": [[0.5, 0.5]]}, "one number for each listed span"),
        ([[(0, 1, 2)]], {"num_tokens": 4, "values": [[1.5]]}, r"must lie in \[0, 1\]; got 1.5"),
    ],
)
def test_a_wrong_list_is_named(rows, settings, message):
    with pytest.raises(ValueError, match=message):
        SpanLabels.from_lists(rows, num_types=3, **settings)


def test_a_link_may_run_backwards_without_the_triangle():
    assert SpanLabels.from_lists([[(0, 3, 1)]], num_types=1, num_tokens=4, triangle=False).lists() == [[(0, 3, 1)]]


def test_labels_cannot_be_narrowed_or_mixed():
    with pytest.raises(ValueError, match="must be >= 3; got 2"):
        make().widened(2)
    with pytest.raises(ValueError, match=r"one `num_types`; got \[1, 3\]"):
        SpanLabels.collate([make(), SpanLabels.from_lists([[]], num_types=1, num_tokens=3)])
    with pytest.raises(ValueError, match="num_types \\* num_tokens\\^2 = 8 labels; got 27"):
        SpanLabels(make().cells, num_types=2, num_tokens=2)
