import itertools
import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyhot.decisions.span_decoding import Span, character_spans, decode_spans
from manyhot.decisions.span_windows import merge_windows, token_windows
from manyhot.engines.plain_spans import tiles as span_tiles
from manyhot.scores.spans import SpanScores


def make_scores(rows=3, types=4, tokens=9, *, seed=0, lengths=None, triangle=True, shift=0.0):
    source = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(rows, tokens, 3, generator=source, dtype=torch.float64) for _ in range(2))
    u, v = (torch.randn(rows, types, tokens, generator=source, dtype=torch.float64) for _ in range(2))
    return SpanScores(q, k, u + shift, v, lengths=lengths, triangle=triangle)


def scores_of(table, tokens, types=1):
    """Scores that are exactly those of the table {(type, first, last): score}, and -9 elsewhere."""
    grid = torch.full((types, tokens, tokens), -9.0)
    for cell, score in table.items():
        grid[cell] = score
    return SpanScores(grid.unsqueeze(0), torch.eye(tokens).expand(1, types, tokens, tokens))


def cells(spans):
    return [tuple(span[:3]) for span in spans]


def crossing(a, b):
    return a[1] < b[1] <= a[2] < b[2] or b[1] < a[1] <= b[2] < a[2]


def overlapping(a, b):
    return a[1] <= b[2] and b[1] <= a[2]


def stand_together(spans, mode):
    clash = crossing if mode == "nested" else overlapping
    return not any(clash(a, b) for a, b in itertools.combinations(spans, 2))


def brute_force(candidates, top_k=None):
    """The largest sum of scores over all sets without overlap."""
    best = 0.0
    for size in range((len(candidates) if top_k is None else min(top_k, len(candidates))) + 1):
        for chosen in itertools.combinations(candidates, size):
            if stand_together(chosen, "flat"):
                best = max(best, sum(span[3] for span in chosen))
    return best


def test_all_candidates_are_the_cells_above_the_threshold(monkeypatch):
    scores = make_scores(lengths=[9, 4, 0])
    dense = torch.where(scores.where(), scores.dense(), -math.inf)
    wanted = [(dense[row] > 0.5).nonzero().tolist() for row in range(3)]
    for rows, elements in ((64, 1 << 18), (2, 30)):
        monkeypatch.setattr(span_tiles, "BLOCK_ROWS", rows)
        monkeypatch.setattr(span_tiles, "CPU_ELEMENTS", elements)
        found = decode_spans(scores, mode="all", threshold=0.5)
        assert [sorted(cells(row)) for row in found] == [[tuple(cell) for cell in row] for row in wanted]
        for row, spans in enumerate(found):
            for span in spans:
                assert span.score == pytest.approx(dense[row, span.type, span.start, span.end].item(), abs=1e-12)


def test_each_type_may_have_its_threshold():
    scores = make_scores()
    limits = torch.tensor([0.0, 1.5, math.inf, -1.0])
    found = decode_spans(scores, mode="all", threshold=limits)
    dense = torch.where(scores.where(), scores.dense(), -math.inf)
    for row in range(3):
        wanted = (dense[row] > limits[:, None, None]).nonzero().tolist()
        assert sorted(cells(found[row])) == [tuple(cell) for cell in wanted]


def test_spans_come_in_reading_order():
    found = decode_spans(make_scores(), mode="all")
    assert all(row == sorted(row, key=lambda span: (span.start, span.end, span.type)) for row in found)


def test_nested_keeps_what_lies_inside_and_drops_what_crosses():
    table = {(0, 0, 5): 1.0, (1, 2, 3): 3.0, (0, 4, 6): 2.0, (1, 0, 5): 0.5, (0, 2, 2): 0.1}
    found = decode_spans(scores_of(table, 8, 2), mode="nested")
    assert cells(found[0]) == [(0, 2, 2), (1, 2, 3), (0, 4, 6)]
    del table[0, 4, 6]
    found = decode_spans(scores_of(table, 8, 2), mode="nested")
    assert cells(found[0]) == [(0, 0, 5), (1, 0, 5), (0, 2, 2), (1, 2, 3)]


def test_flat_keeps_the_better_of_two_that_share_a_token():
    table = {(0, 0, 2): 2.0, (0, 2, 3): 3.0, (0, 4, 4): 1.0}
    assert cells(decode_spans(scores_of(table, 6), mode="flat")[0]) == [(0, 2, 3), (0, 4, 4)]


def test_exact_flat_finds_what_greedy_misses():
    table = {(0, 0, 1): 2.0, (0, 1, 3): 3.0, (0, 2, 4): 2.5}
    assert cells(decode_spans(scores_of(table, 6), mode="flat")[0]) == [(0, 1, 3)]
    assert cells(decode_spans(scores_of(table, 6), mode="flat", exact=True)[0]) == [(0, 0, 1), (0, 2, 4)]
    assert cells(decode_spans(scores_of(table, 6), mode="flat", exact=True, top_k=1)[0]) == [(0, 1, 3)]


def test_exact_adds_up_what_lies_above_the_threshold():
    table = {(0, 0, 1): 2.0, (0, 1, 3): 3.0, (0, 2, 4): 2.5}
    assert cells(decode_spans(scores_of(table, 6), mode="flat", exact=True, threshold=1.75)[0]) == [(0, 1, 3)]


span_lists = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, 5), st.integers(1, 12)).map(
        lambda t: Span(t[0], min(t[1:3]), max(t[1:3]), t[3] / 4)
    ),
    max_size=9,
    unique_by=lambda span: span[:3],
)


@given(span_lists, st.sampled_from([None, 1, 2, 3]))
def test_exact_is_the_best_of_all_sets(spans, top_k):
    chosen = merge_windows([spans], [0], mode="flat", exact=True, top_k=top_k)
    assert stand_together(chosen, "flat")
    assert top_k is None or len(chosen) <= top_k
    assert sum(span.score for span in chosen) == brute_force(spans, top_k)


@given(span_lists, st.sampled_from(["nested", "flat"]))
def test_greedy_keeps_a_span_unless_a_better_one_stands_against_it(spans, mode):
    chosen = merge_windows([spans], [0], mode=mode)
    assert stand_together(chosen, mode)
    kept = []
    for span in sorted(spans, key=lambda span: (-span.score, span.start, span.end, span.type)):
        if stand_together([*kept, span], mode):
            kept.append(span)
    assert sorted(kept) == sorted(chosen)


@pytest.mark.parametrize("mode", ["all", "nested", "flat"])
def test_top_k_keeps_the_best_that_may_stand_together(mode):
    scores = make_scores(shift=1.0)
    everything = decode_spans(scores, mode=mode)
    best = decode_spans(scores, mode=mode, top_k=2)
    for all_spans, few in zip(everything, best, strict=True):
        ranked = sorted(all_spans, key=lambda span: -span.score)[:2]
        assert sorted(ranked) == sorted(few)


def test_top_k_without_a_threshold_fills_every_row_that_has_cells():
    found = decode_spans(make_scores(lengths=[9, 2, 0]), mode="all", threshold=-math.inf, top_k=5)
    assert [len(row) for row in found] == [5, 5, 0]


@pytest.mark.parametrize("elements", [20, 1 << 18])
def test_too_many_candidates_are_cut_to_the_best_with_a_warning(monkeypatch, elements):
    monkeypatch.setattr(span_tiles, "CPU_ELEMENTS", elements)
    monkeypatch.setattr(span_tiles, "BLOCK_ROWS", 3)
    scores = make_scores(lengths=[9, 9, 1], shift=20.0)
    with pytest.warns(UserWarning, match="2 of 3 rows have more than 10 candidates above the threshold, up to 180"):
        found = decode_spans(scores, mode="all", max_spans=10)
    assert [len(row) for row in found] == [10, 10, 4]
    dense = torch.where(scores.where(), scores.dense(), -math.inf)
    wanted = dense[0].flatten().topk(10).values.tolist()
    assert sorted((span.score for span in found[0]), reverse=True) == pytest.approx(wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decode_spans(scores, mode="all", max_spans=10, top_k=10)


def test_an_untrained_model_of_half_a_million_cells_is_decoded_at_once():
    source = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, 10, 256, 8, generator=source) for _ in range(2))
    with pytest.warns(UserWarning, match="2 of 2 rows"):
        found = decode_spans(SpanScores(q, k))
    assert all(stand_together(row, "nested") and row for row in found)


def test_scores_that_are_not_numbers_are_no_spans():
    q = torch.full((1, 1, 3, 1), math.nan)
    assert decode_spans(SpanScores(q, q)) == [[]]


def test_no_rows_and_no_tokens_give_no_spans():
    assert decode_spans(SpanScores(torch.zeros(0, 2, 5, 4), torch.zeros(0, 2, 5, 4))) == []
    assert decode_spans(SpanScores(torch.zeros(2, 2, 0, 4), torch.zeros(2, 2, 0, 4))) == [[], []]


def test_links_are_read_in_both_directions():
    scores = make_scores(triangle=False)
    found = decode_spans(scores, mode="all")
    wanted = (scores.dense() > 0).sum(dim=(1, 2, 3)).tolist()
    assert [len(row) for row in found] == wanted
    with pytest.raises(ValueError, match="links between any two tokens need mode='all'"):
        decode_spans(scores)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "nest"}, "Did you mean 'nested'"),
        ({"exact": True}, "`exact` needs mode='flat', in which spans do not overlap; got mode='nested'"),
        ({"top_k": 0}, "`top_k` must be a number >= 1"),
        ({"max_spans": 0}, "`max_spans` must be a number >= 1"),
        ({"threshold": torch.zeros(3)}, r"broadcastable to \[4\]; got \[3\]"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        decode_spans(make_scores(), **settings)
    with pytest.raises(TypeError, match="`threshold` must be a number"):
        decode_spans(make_scores(), threshold="0")


def test_characters_run_from_the_first_token_to_the_end_of_the_last():
    offsets = [(0, 2), (3, 4), (4, 9)]
    found = character_spans([Span(1, 0, 2, 0.5), Span(0, 1, 1, 2.0)], offsets)
    assert [tuple(span) for span in found] == [(1, 0, 9, 0.5), (0, 3, 4, 2.0)]
    with pytest.raises(ValueError, match="got 3 for a span up to token 3"):
        character_spans([Span(0, 1, 3, 1.0)], offsets)
    assert character_spans([], []) == []


@given(st.integers(0, 60), st.integers(1, 20), st.data())
def test_every_short_span_lies_whole_in_a_window(tokens, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    windows = token_windows(tokens, size=size, overlap=overlap)
    assert all(stop - start <= size and 0 <= start <= stop <= tokens for start, stop in windows)
    for first in range(tokens):
        last = min(first + overlap, tokens - 1)
        assert any(start <= first and last < stop for start, stop in windows)
    assert len(set(windows)) == len(windows)


def test_windows_are_merged_by_score():
    windows = [[Span(0, 4, 7, 1.0), Span(1, 0, 0, 2.0)], [Span(0, 0, 3, 3.0), Span(0, 3, 6, 0.5)]]
    assert merge_windows(windows, [0, 4]) == [Span(1, 0, 0, 2.0), Span(0, 4, 7, 3.0)]
    assert merge_windows(windows, [0, 4], mode="all")[-1] == Span(0, 7, 10, 0.5)
    with pytest.raises(ValueError, match="one number for each of 2 windows; got 1"):
        merge_windows(windows, [0])


def test_windows_of_a_long_text_give_the_spans_of_the_whole():
    """With products that depend on distance alone, a window's scores are a block of the whole text's."""
    scores = make_scores(1, 2, 40, seed=3)
    whole = decode_spans(scores, mode="all")[0]
    short = [span for span in whole if span.end - span.start <= 4]
    windows = token_windows(40, size=12, overlap=4)
    found = []
    for start, stop in windows:
        part = slice(start, stop)
        u, v = scores.u[..., part], scores.v[..., part]
        found.append(decode_spans(SpanScores(scores.q[:, part], scores.k[:, part], u, v), mode="all")[0])
    merged = merge_windows(found, [start for start, _ in windows], mode="all")
    assert set(cells(short)) <= set(cells(merged)) <= set(cells(whole))


@pytest.mark.gpu
def test_decoding_on_a_gpu_gives_the_same_spans():
    scores = make_scores(lengths=[9, 4, 0])
    parts = (part.cuda() for part in (scores.q, scores.k, scores.u, scores.v))
    there = decode_spans(SpanScores(*parts, lengths=[9, 4, 0]))
    assert [cells(row) for row in there] == [cells(row) for row in decode_spans(scores)]
