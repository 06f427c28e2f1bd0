"""`decide` on span scores: by tiles, with cells that do not count left out."""

import math

import pytest
import torch

from manyhot.decisions.rule import DecisionRule, decide, decide_sparse
from manyhot.decisions.span_decoding import CharacterSpan, Span, decode_spans
from manyhot.engines.plain_spans import tiles as span_tiles
from manyhot.scores.spans import SpanScores


def make_scores(*, shared, triangle=True):
    source = torch.Generator().manual_seed(3)
    size = (3, 9, 4) if shared else (3, 2, 9, 4)
    q, k = (torch.randn(size, generator=source, dtype=torch.float64) for _ in range(2))
    u, v = (torch.randn(3, 2, 9, generator=source, dtype=torch.float64) if shared else None for _ in range(2))
    return SpanScores(q, k, u, v, lengths=[9, 4, 0], triangle=triangle)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("triangle", [True, False])
@pytest.mark.parametrize("block", [64, 2])
def test_span_scores_are_decided_by_tiles_as_the_dense_ones_are(monkeypatch, shared, triangle, block):
    monkeypatch.setattr(span_tiles, "BLOCK_ROWS", block)
    scores = make_scores(shared=shared, triangle=triangle)
    dense, counts = scores.dense(), scores.where()
    assert torch.equal(decide(scores), (dense > 0) & counts)
    assert torch.equal(decide(scores, DecisionRule(threshold=0.5)), (dense > 0.5) & counts)
    limits = torch.tensor([0.5, -1.0]).double()
    assert torch.equal(decide(scores, DecisionRule(threshold=(0.5, -1.0))), (dense > limits[:, None, None]) & counts)
    rows = torch.tensor([[0.1], [1.0], [0.0]]).double()
    assert torch.equal(decide(scores, threshold=rows), (dense > rows[..., None, None]) & counts)
    where = torch.zeros(1, 2, 1, 1, dtype=torch.bool).index_fill(1, torch.tensor([1]), True)
    assert torch.equal(decide(scores, where=where), (dense > 0) & counts & where)
    assert torch.equal(decide(scores, threshold=-math.inf), counts.expand(scores.shape))


def test_what_spans_decode_to_is_what_is_decided():
    scores = make_scores(shared=True)
    listed = [(row, *span[:3]) for row, spans in enumerate(decode_spans(scores, mode="all")) for span in spans]
    assert sorted(listed) == sorted(map(tuple, decide(scores).nonzero().tolist()))


def test_rules_that_choose_among_spans_are_refused():
    scores = make_scores(shared=True)
    for rule in (DecisionRule(top_k=1), DecisionRule(min_labels=1), DecisionRule(max_labels=2)):
        with pytest.raises(ValueError, match="decode_spans predicts the best k"):
            decide(scores, rule)
    with pytest.raises(TypeError, match="Use decode_spans"):
        decide_sparse(scores)


@pytest.mark.parametrize("kind", [Span, CharacterSpan])
def test_a_span_knows_its_probability(kind):
    assert kind(0, 1, 2, 0.0).probability == 0.5
    assert kind(0, 1, 2, 2.0).probability == pytest.approx(1 / (1 + math.exp(-2)), abs=1e-15)
    assert kind(0, 1, 2, -1e4).probability == 0.0
    assert kind(0, 1, 2, 1e4).probability == 1.0
