"""Scores and terms of every kind for the tests of the native engine, and what is right for them in float64."""

import math

import torch
from hypothesis import strategies as st

from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.losses.core.reduction import softplus

INF, NAN = math.inf, math.nan
SCORES = [torch.float32, torch.bfloat16, torch.float16]
LABELS = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
]
# One step of the gradient's own type beside the value, and room for the arithmetic in float32.
STEP = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def draw_terms(draw, x, generator, *, weights=True):
    size = x.shape[1]
    if draw(st.booleans()):
        dtype = draw(st.sampled_from(LABELS))
        hard = torch.rand(x.shape, generator=generator) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
        soft = dtype.is_floating_point and draw(st.booleans())
        labels = (torch.rand(x.shape, generator=generator) if soft else hard).to(dtype)
        if soft:
            labels = torch.where(hard, labels, (labels > 0.5).to(dtype))
        terms = DenseTerms(labels)
    else:
        dense = torch.rand(x.shape, generator=generator) < draw(st.sampled_from([0.0, 0.1, 1.0]))
        terms = sparse_terms(dense, torch.rand(int(dense.sum()), generator=generator) if draw(st.booleans()) else None)
    if draw(st.booleans()):
        counts = torch.rand(x.shape, generator=generator) < draw(st.sampled_from([0.0, 0.5, 0.9]))
        terms = terms._replace(where=counts)
    if weights and draw(st.booleans()):
        per_label = torch.rand(size, generator=generator) * (torch.rand(size, generator=generator) < 0.8)
        pos, neg = draw(st.sampled_from([(per_label, None), (None, 3.0), (0.25, 0.75), (0.0, per_label), (per_label, 0.0)]))
        terms = terms._replace(pos_weight=pos, neg_weight=neg)
    if weights and draw(st.booleans()):
        terms = terms._replace(smoothing=draw(st.sampled_from([0.1, 1.0])))
    return terms


def sparse_terms(dense, values=None, **rest):
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), dense.sum(dim=1).cumsum(0)])
    return SparseTerms(dense.nonzero(as_tuple=True)[1], offsets, values, **rest)


SHAPES = [(0, 5), (3, 0), (1, 1), (70, 2), (40, 20), (9, 16), (5, 33), (30, 128), (3, 2048), (2, 2049), (1, 5000)]


@st.composite
def problems(draw, *, finite=False, weights=True):
    """Scores with anything in them, and terms of every kind."""
    rows, size = draw(st.sampled_from(SHAPES))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scale = draw(st.sampled_from([1.0, 5.0, 60.0, 5e3]))
    x = torch.randn(rows, size, generator=generator) * scale + draw(st.sampled_from([0.0, 0.0, -40.0, 90.0, -3e3]))
    if not finite:
        odd = torch.rand(x.shape, generator=generator) < draw(st.sampled_from([0.0, 0.0, 0.02, 0.3, 1.0]))
        kinds = torch.tensor(draw(st.sampled_from([[INF], [-INF], [INF, -INF], [NAN], [INF, NAN], [1e38, -1e38], [0.0, -0.0]])))
        x = torch.where(odd, kinds[torch.randint(len(kinds), x.shape, generator=generator)], x)
    x = x.to(draw(st.sampled_from(SCORES)))
    terms = draw_terms(draw, x, generator, weights=weights)
    if terms.where is not None and finite:
        x = torch.where(terms.where, x, torch.tensor(NAN, dtype=x.dtype))
    return x, terms


def assert_grad(got, wanted, scale=1.0):
    kind = got.dtype
    torch.testing.assert_close(got.double(), wanted.to(kind).double(), rtol=STEP[kind], atol=1e-6 * scale, equal_nan=True)


def fused_oracle(x, terms, form, offset, row_scale):
    """Values, gradient and the gradient of the offset in float64 by the plain engine and autograd after it.

    The shifts are added first, as they may cancel: one float64 for a side has no digits left for the rest at 1e38.
    """
    pos, neg = terms.sides(x.double())
    p, n, c = (value.requires_grad_() for value in (pos.rest, neg.rest, offset.double()))
    if form == "split":
        values = softplus(pos.shift + c + p) + softplus(neg.shift - c + n)
    else:
        empty = (p == -INF) | (n == -INF)
        values = softplus(torch.where(empty, -INF, (pos.shift + neg.shift) + (p + n)) + c)
    gp, gn, gc = torch.autograd.grad(values.sum(), (p, n, c))
    with torch.no_grad():
        return values.detach(), terms.gradient(x.double(), pos, neg, gp * row_scale, gn * row_scale), gc
