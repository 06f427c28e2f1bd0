"""The factorised sum where it must not be trusted: the guard and the repair of rows."""

import math

import pytest
import torch

from manyhot import pairwise_loss, tlpr_loss, two_sided_logsumexp, zlpr_loss
from manyhot.engines.plain_spans import factorised as span_factorised
from manyhot.engines.plain_spans import tiles as span_tiles
from manyhot.engines.plain_spans.terms import SpanParts, SpanTerms
from manyhot.labels.spans import SpanLabels
from manyhot.scores.spans import SpanScores

NONE = torch.zeros(0, dtype=torch.int64)


def adversarial(size, dtype, *, rows=1):
    """S peaks where v is low and v where S is low: every cell scores about 0, and every product E V underflows."""
    q = torch.ones(rows, 3, 1, dtype=dtype)
    k = torch.tensor([-size, size, -size], dtype=dtype).reshape(1, 3, 1).repeat(rows, 1, 1)
    v = torch.tensor([size, -size, size + 1], dtype=dtype).repeat(rows, 2, 1)
    u = torch.zeros(rows, 2, 3, dtype=dtype)
    return [part.requires_grad_() for part in (q, k, u, v)]


def no_labels(rows=1):
    return SpanLabels.from_lists([[]] * rows, num_types=2, num_tokens=3)


@pytest.mark.parametrize(("dtype", "size", "tolerance"), [(torch.float32, 100.0, 1e-5), (torch.float64, 800.0, 1e-12)])
@pytest.mark.parametrize(
    ("loss", "settings"),
    [(zlpr_loss, {}), (tlpr_loss, {"threshold": -30.0}), (pairwise_loss, {}), (zlpr_loss, {"smoothing": 0.1})],
)
@pytest.mark.parametrize("triangle", [True, False])
def test_products_that_underflow_are_left_to_tiles(dtype, size, tolerance, loss, settings, triangle):
    parts = adversarial(size, dtype)
    scores = SpanScores(*parts, triangle=triangle)
    labels = SpanLabels.from_lists([[(0, 1, 1)]], num_types=2, num_tokens=3)
    ours = loss(scores, labels, **settings)
    dense = loss(SpanScores(*parts, triangle=triangle, method="dense"), labels, engine="torch", **settings)
    torch.testing.assert_close(ours, dense, rtol=tolerance, atol=tolerance)
    pairs = zip(torch.autograd.grad(ours, parts), torch.autograd.grad(dense, parts), strict=True)
    for own, want in pairs:
        torch.testing.assert_close(own, want, rtol=tolerance, atol=tolerance * size)


def test_without_the_guard_the_adversarial_sum_is_wrong(monkeypatch):
    """The guard earns its place: the same case, guard off, loses most of the sum."""
    parts = adversarial(100.0, torch.float32)
    monkeypatch.setattr(span_factorised, "_unsafe", lambda *_: iter(()))
    wrong = two_sided_logsumexp(SpanScores(*parts), no_labels())[1]
    right = two_sided_logsumexp(SpanScores(*parts, method="dense"), no_labels(), engine="torch")[1]
    assert (right - wrong).min() > 0.5


def test_only_what_is_in_doubt_goes_to_tiles(monkeypatch):
    parts = [part.detach().clone() for part in adversarial(100.0, torch.float32, rows=3)]
    parts[3][:, 0] = 0.0
    parts[1][1] = 0.0
    parts[3][1] = 0.0
    handed = []

    def note(sub_parts, sub_terms, sign):
        handed.append(tuple(sub_parts.u.shape))
        return span_tiles_background(sub_parts, sub_terms, sign)

    span_tiles_background = span_tiles.log_sum
    monkeypatch.setattr(span_tiles, "log_sum", note)
    ours = two_sided_logsumexp(SpanScores(*parts), no_labels(3))[1]
    assert handed == [(1, 1, 3), (1, 1, 3)]
    dense = SpanScores(*parts, method="dense")
    torch.testing.assert_close(ours, two_sided_logsumexp(dense, no_labels(3), engine="torch")[1])


@pytest.mark.parametrize("level", [-300.0, 0.0, 80.0, 300.0])
def test_the_level_of_the_scores_alone_does_not_call_the_guard(level):
    source = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, 40, 8, generator=source) for _ in range(2))
    u, v = (torch.randn(2, 5, 40, generator=source) for _ in range(2))
    parts = SpanParts(q, k, u + level, v, 0.35)
    terms = SpanTerms(torch.tensor([40, 17]), True, NONE, NONE, NONE, NONE)
    total, unsafe = span_factorised.log_sum(parts, terms, 1.0)
    assert not unsafe.any()
    wanted = span_tiles.log_sum(parts, terms, 1.0)[0]
    torch.testing.assert_close(total.value, wanted.value, rtol=1e-6, atol=1e-5)


def test_a_grid_row_full_of_spans_is_repaired_to_nothing():
    q, k = torch.zeros(1, 3, 1), torch.zeros(1, 3, 1)
    u, v = torch.zeros(1, 1, 3), torch.zeros(1, 1, 3)
    full = SpanLabels.from_lists([[(0, 0, 0), (0, 0, 1), (0, 0, 2)]], num_types=1, num_tokens=3)
    neg = two_sided_logsumexp(SpanScores(q, k, u, v), full)[1]
    assert neg.item() == pytest.approx(math.log(3), abs=1e-6)
    every = [(0, first, last) for first in range(3) for last in range(first, 3)]
    every = SpanLabels.from_lists([every], num_types=1, num_tokens=3)
    assert two_sided_logsumexp(SpanScores(q, k, u, v), every)[1].item() == -math.inf


def test_a_confident_span_hides_no_negative_of_its_own_row():
    """The positive's row is summed again without it: 60 above its neighbours, a subtraction would leave nothing."""
    q, k = torch.ones(1, 2, 1), torch.tensor([[[-30.0], [30.0]]])
    u, v = torch.zeros(1, 1, 2), torch.zeros(1, 1, 2)
    labels = SpanLabels.from_lists([[(0, 0, 1), (0, 1, 1)]], num_types=1, num_tokens=2)
    neg = two_sided_logsumexp(SpanScores(q, k, u, v), labels)[1]
    assert neg.item() == pytest.approx(-30.0, abs=1e-5)


@pytest.mark.gpu
def test_the_guard_works_on_a_gpu():
    parts = [part.detach().cuda() for part in adversarial(100.0, torch.float32)]
    neg = two_sided_logsumexp(SpanScores(*parts), no_labels().to("cuda"))[1]
    wanted = two_sided_logsumexp(SpanScores(*parts, method="dense"), no_labels().to("cuda"), engine="torch")[1]
    torch.testing.assert_close(neg, wanted, rtol=1e-5, atol=1e-5)
