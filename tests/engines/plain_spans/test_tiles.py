import math

import torch

from manyhot.engines.plain_spans import tiles as span_tiles
from manyhot.engines.plain_spans.terms import SpanParts, SpanTerms


def make_terms(lengths, cells, *, triangle=True):
    rows, types, first, last = torch.tensor(cells, dtype=torch.int64).reshape(-1, 4).unbind(dim=1)
    return SpanTerms(torch.tensor(lengths), triangle, rows, types, first, last)


def make_parts(rows, types, tokens, *, level=0.0, dtype=torch.float64):
    source = torch.Generator().manual_seed(0)
    q, k = (torch.randn(rows, types, tokens, 3, generator=source, dtype=dtype) for _ in range(2))
    q[..., 0], k[..., 0] = level, 1.0
    return SpanParts(q, k, None, None, 1.0)


def test_equal_scores_count_the_cells_that_are_not_listed():
    parts = SpanParts(torch.zeros(2, 2, 70, 1), torch.zeros(2, 2, 70, 1), None, None, 1.0)
    terms = make_terms([70, 3], [(0, 0, 0, 0), (0, 0, 5, 69), (1, 1, 0, 2), (1, 1, 3, 3)])
    total, memory = span_tiles.log_sum(parts, terms, 1.0)
    assert memory is None
    torch.testing.assert_close(total.value.exp(), torch.tensor([[2483.0, 2485.0], [6.0, 5.0]]))


def test_sums_stay_exact_at_any_level():
    low, high = (make_parts(1, 2, 80, level=level) for level in (0.0, 1e4))
    terms = make_terms([80], [])
    gap = span_tiles.log_sum(high, terms, 1.0)[0].value - span_tiles.log_sum(low, terms, 1.0)[0].value
    torch.testing.assert_close(gap, torch.full((1, 2), 1e4, dtype=torch.float64), rtol=0, atol=1e-10)


def test_shares_add_up_to_one_at_scores_that_leave_float32_no_digits():
    parts = make_parts(1, 1, 50, level=1e7, dtype=torch.float32)
    terms = make_terms([50], [])
    total = span_tiles.log_sum(parts, terms, 1.0)[0]
    out = parts.zeros()
    factor = torch.exp(-total.rest)
    span_tiles.add_gradient(parts, terms, 1.0, total.shift, factor, None, out)
    # k's first feature is 1 throughout, so q's gradient there adds up the shares of all cells.
    assert abs(out.q[..., 0].sum().item() - 1) < 1e-5


def test_the_sign_turns_the_sum_to_the_other_side():
    parts = make_parts(2, 2, 20)
    flipped = parts._replace(q=-parts.q)
    terms = make_terms([20, 7], [(0, 1, 2, 3)])
    turned = span_tiles.log_sum(parts, terms, -1.0)[0].value
    torch.testing.assert_close(turned, span_tiles.log_sum(flipped, terms, 1.0)[0].value)


def test_rows_without_tokens_sum_to_nothing():
    total = span_tiles.log_sum(make_parts(2, 2, 5), make_terms([0, 5], []), 1.0)[0]
    assert total.value[0].tolist() == [-math.inf, -math.inf]
    assert total.value[1].isfinite().all()
