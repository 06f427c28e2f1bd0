"""Decisions: what a rule says of scores, against a plain loop over rows, dense and lazy, ties and hostile values."""

import copy
import json
import math
import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyhot import LinearScores, SpanScores, SparseLabels
from manyhot.decisions.rule import DecisionRule, decide, decide_sparse

INF = math.inf


def decide_by_hand(rows, rule, cuts, where=None):
    """One row at a time in Python numbers; ``cuts [R][L]``."""
    per_label = isinstance(rule.threshold, tuple)
    answer = []
    for r, row in enumerate(rows):
        key = []
        for i, s in enumerate(row):
            k = s - cuts[r][i] if per_label else s
            allowed = where is None or where[r][i]
            key.append(-INF if math.isnan(k) or not allowed else k)
        order = [i for i in sorted(range(len(row)), key=lambda i: (-key[i], i)) if key[i] > -INF]
        if rule.top_k is not None:
            chosen = set(order[: rule.top_k])
        else:
            above = {i for i in order if row[i] > cuts[r][i]}
            chosen = above & set(order[: rule.max_labels]) if rule.max_labels is not None else above
            chosen |= set(order[: rule.min_labels])
        answer.append(sorted(chosen))
    return answer


@st.composite
def problems(draw):
    rows, labels = draw(st.integers(0, 4)), draw(st.integers(1, 7))
    # Few distinct values, so that ties are the rule.
    value = st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0, INF, -INF, math.nan])
    scores = torch.tensor([[draw(value) for _ in range(labels)] for _ in range(rows)], dtype=torch.float32).reshape(
        rows, labels
    )
    cut = st.sampled_from([-1.0, 0.0, 0.5, 1.0, INF, -INF])
    if draw(st.booleans()):
        rule = DecisionRule(top_k=draw(st.integers(1, 9)))
    else:
        low = draw(st.integers(0, 4))
        rule = DecisionRule(
            threshold=draw(cut) if draw(st.booleans()) else tuple(draw(cut) for _ in range(labels)),
            min_labels=low,
            max_labels=draw(st.one_of(st.none(), st.integers(max(low, 1), 6))),
        )
    where = None
    if draw(st.booleans()):
        where = torch.tensor([[draw(st.booleans()) for _ in range(labels)] for _ in range(rows)], dtype=torch.bool)
        where = where.reshape(rows, labels)
    return scores, rule, where


@given(problems())
def test_every_rule_says_what_a_loop_over_rows_says(problem):
    scores, rule, where = problem
    cut = rule.threshold if isinstance(rule.threshold, tuple) else (rule.threshold,) * scores.shape[1]
    wanted = decide_by_hand(scores.tolist(), rule, [cut] * len(scores), None if where is None else where.tolist())
    chosen = decide(scores, rule, where=where)
    assert chosen.dtype == torch.bool
    assert [row.nonzero().flatten().tolist() for row in chosen] == wanted
    assert decide_sparse(scores, rule, where=where).lists() == wanted


@given(problems(), st.integers(1, 8))
def test_lazy_scores_are_decided_like_dense_ones_whatever_the_chunks_are(problem, chunk_size):
    scores, rule, where = problem
    # A product with zeros in it cannot make infinities, so the weight carries finite scores and the bias is exact.
    finite = scores.nan_to_num(nan=0.25, posinf=2.0, neginf=-3.0)
    lazy = LinearScores(torch.eye(len(finite)), finite.T.contiguous(), torch.zeros(finite.shape[1]), chunk_size=chunk_size)
    if len(finite) == 0:
        lazy = LinearScores(torch.zeros(0, 2), torch.zeros(finite.shape[1], 2), chunk_size=chunk_size)
    wanted = decide(finite, rule, where=where)
    assert torch.equal(decide(lazy, rule, where=where), wanted)
    sparse = decide_sparse(lazy, rule, where=where)
    assert torch.equal(sparse.dense(), wanted)
    SparseLabels(sparse.indices, sparse.offsets, sparse.num_labels, validate=True)


def test_nan_and_minus_inf_and_excluded_labels_never_fill_up_a_row():
    scores = torch.tensor([[math.nan, -INF, -3.0, 5.0]])
    where = torch.tensor([[True, True, True, False]])
    assert decide(scores, DecisionRule(min_labels=3), where=where).tolist() == [[False, False, True, False]]
    assert decide(scores, DecisionRule(top_k=4)).tolist() == [[False, False, True, True]]


def test_a_label_with_an_infinite_threshold_is_never_predicted():
    scores = torch.tensor([[9.0, -1.0], [INF, -4.0]])
    rule = DecisionRule(threshold=(INF, 0.0), min_labels=1)
    assert decide(scores, rule).tolist() == [[False, True], [False, True]]


def test_of_equal_scores_the_lower_label_number_is_taken():
    scores = torch.zeros(3, 5)
    assert decide(scores, DecisionRule(top_k=2)).int().tolist() == [[1, 1, 0, 0, 0]] * 3


def test_the_best_under_per_label_thresholds_are_those_furthest_above_their_own():
    scores = torch.tensor([[3.0, 1.0, 2.0]])
    rule = DecisionRule(threshold=(2.9, -2.0, 1.0), max_labels=1)
    assert decide(scores, rule).int().tolist() == [[0, 1, 0]]


def test_a_threshold_per_row_goes_before_the_rules_own():
    scores = torch.tensor([[[1.0, 2.0], [1.0, 2.0]]])
    learned = torch.tensor([[1.5, 0.5]])
    wanted = [[[False, True], [True, True]]]
    assert decide(scores, DecisionRule(threshold=9.0), threshold=learned).tolist() == wanted
    assert decide(scores, threshold=1.5).tolist() == [[[False, True]] * 2]
    assert decide(scores, threshold=torch.tensor(1.5)).tolist() == [[[False, True]] * 2]
    lazy = LinearScores(torch.eye(2), torch.tensor([[1.0, 1.0], [2.0, 2.0]]), chunk_size=1)
    assert decide(lazy, threshold=learned[0]).tolist() == wanted[0]
    assert decide_sparse(lazy, DecisionRule(max_labels=1), threshold=learned[0]).lists() == [[1], [1]]


def test_more_axes_are_kept_by_the_dense_form_and_counted_through_by_the_sparse_one():
    scores = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(decide(scores), scores > 0)
    assert torch.equal(decide_sparse(scores).dense().reshape(2, 3, 4), scores > 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_threshold_between_two_neighbouring_numbers_is_not_rounded_onto_them(dtype):
    low = torch.tensor(1.1, dtype=dtype)
    high = torch.tensor(1.1 + 2 * torch.finfo(dtype).eps, dtype=dtype)
    between = (low.double() + 0.9999 * (high.double() - low.double())).item()
    scores = torch.stack([low, high]).reshape(1, 2)
    for rule in (DecisionRule(threshold=between), DecisionRule(threshold=(between, between))):
        assert decide(scores, rule).tolist() == [[False, True]]
    assert decide(scores, threshold=torch.tensor([between], dtype=torch.float64)).tolist() == [[False, True]]


def test_decisions_carry_no_gradient_and_leave_the_scores_alone():
    scores = torch.randn(3, 4, requires_grad=True)
    before = scores.detach().clone()
    assert not decide(scores, DecisionRule(min_labels=2, threshold=0.1)).requires_grad
    assert torch.equal(scores.detach(), before)


def test_no_labels_and_no_rows_are_fine():
    for shape in ((0, 3), (2, 0), (0, 0)):
        for rule in (None, DecisionRule(top_k=2), DecisionRule(min_labels=1, max_labels=2)):
            assert decide(torch.zeros(shape), rule).shape == shape
            assert len(decide_sparse(torch.zeros(shape), rule)) == shape[0]


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=5), st.integers(0, 2), st.none() | st.integers(2, 9))
def test_a_rule_survives_json_exactly(thresholds, low, high):
    for threshold in (tuple(thresholds), thresholds[0]):
        rule = DecisionRule(threshold=threshold, min_labels=low, max_labels=high)
        text = json.dumps(rule.to_json(), allow_nan=False)
        assert DecisionRule.from_json(text) == rule
        assert DecisionRule.from_json(json.loads(text)) == rule


def test_rules_take_lists_and_tensors_of_thresholds():
    assert DecisionRule(threshold=[1, 2]).threshold == (1.0, 2.0)
    assert DecisionRule(threshold=torch.tensor([0.5, 1.5])).threshold == (0.5, 1.5)
    assert hash(DecisionRule(threshold=[1, 2])) == hash(DecisionRule(threshold=(1.0, 2.0)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"threshold": math.nan}, "`threshold` must be a number"),
        ({"threshold": ()}, "empty list"),
        ({"threshold": "high"}, "`threshold` must be a number"),
        ({"top_k": 0}, "`top_k` must be a whole number >= 1 or None; got 0"),
        ({"top_k": 2.0}, "`top_k` must be a whole number"),
        ({"min_labels": -1}, "`min_labels` must be a whole number >= 0; got -1"),
        ({"min_labels": None}, "`min_labels` must be a whole number"),
        ({"max_labels": True}, "`max_labels` must be a whole number"),
        ({"min_labels": 3, "max_labels": 2}, "`max_labels` must be at least `min_labels`, 3; got 2"),
        ({"top_k": 2, "threshold": 1.0}, "`top_k` must be the only setting"),
        ({"top_k": 2, "max_labels": 3}, "`top_k` must be the only setting"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        DecisionRule(**settings)


def test_a_call_that_makes_no_sense_is_refused():
    scores = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="one threshold per label, 3; got 2"):
        decide(scores, DecisionRule(threshold=(0.0, 0.0)))
    with pytest.raises(ValueError, match="`threshold` must not be given with `top_k`"):
        decide(scores, DecisionRule(top_k=1), threshold=1.0)
    with pytest.raises(ValueError, match=r"`threshold` must be a number or one value per row.*\[2\]; got \[3\]"):
        decide(scores, threshold=torch.zeros(3))
    with pytest.raises(TypeError, match="`threshold` must be a number or a tensor"):
        decide(scores, threshold="a")
    with pytest.raises(TypeError, match="`rule` must be a DecisionRule"):
        decide(scores, 0.5)
    with pytest.raises(TypeError, match="bool tensor"):
        decide_sparse(scores, where=torch.ones(2, 3))
    with pytest.raises(TypeError, match="floating-point"):
        decide(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"unknown setting 'treshold'\. Did you mean 'threshold'"):
        DecisionRule.from_json({"treshold": 1.0})
    with pytest.raises(TypeError, match="JSON object"):
        DecisionRule.from_json("[1]")


@pytest.mark.gpu
def test_a_gpu_decides_as_the_cpu_does():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(-5, 6, (200, 60), generator=generator).float() / 2
    where = torch.rand(200, 60, generator=generator) < 0.8
    lazy = LinearScores(torch.eye(200), scores.T.contiguous(), chunk_size=7)
    fast = LinearScores(lazy.hidden.cuda(), lazy.weight.cuda(), chunk_size=7)
    rules = (
        DecisionRule(threshold=0.25),
        DecisionRule(top_k=4),
        DecisionRule(threshold=tuple(torch.linspace(-1, 3, 60).tolist()), min_labels=1, max_labels=5),
    )
    for rule in rules:
        wanted = decide(scores, rule, where=where)
        assert torch.equal(decide(scores.cuda(), rule, where=where.cuda()).cpu(), wanted)
        assert torch.equal(decide(fast, rule, where=where.cuda()).cpu(), wanted)
        assert torch.equal(decide_sparse(fast, rule, where=where.cuda()).dense().cpu(), wanted)


@pytest.mark.parametrize("masked", [False, True])
def test_a_softmax_rule_compares_the_threshold_with_the_logarithm_of_the_rows_softmax(masked):
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((6, 4), (40, 4), (40,)))
    where = torch.rand(6, 40, generator=generator) < 0.7 if masked else None
    lazy = LinearScores(hidden, weight, bias, chunk_size=7)
    dense = lazy.dense() if where is None else lazy.dense().masked_fill(~where, -float("inf"))
    rule = DecisionRule(threshold=-3.0, softmax=True, min_labels=1)
    wanted = decide(dense.log_softmax(dim=1), DecisionRule(threshold=-3.0, min_labels=1))
    assert wanted.sum() > 6
    assert torch.equal(decide(lazy, rule, where=where), wanted)
    assert torch.equal(decide(lazy.dense(), rule, where=where), wanted)
    assert decide_sparse(lazy, rule, where=where).lists() == SparseLabels.from_dense(wanted).lists()
    assert DecisionRule.from_json(rule.to_json()) == rule


def test_a_softmax_rule_has_one_threshold():
    for settings in ({"threshold": (0.0, 1.0)}, {"top_k": 2}):
        with pytest.raises(ValueError, match="DecisionRule"):
            DecisionRule(softmax=True, **settings)
    with pytest.raises(ValueError, match="only thresholds for SpanScores"):
        decide(SpanScores(torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4)), DecisionRule(softmax=True))


def test_thresholds_kept_on_a_device_are_not_part_of_the_rule():
    rule, scores = DecisionRule(threshold=(0.5, -1.0)), torch.tensor([[0.6, -2.0], [0.4, 0.0]])
    wanted = decide(scores, rule)
    assert wanted.tolist() == [[True, False], [False, True]]
    for other in (pickle.loads(pickle.dumps(rule)), copy.deepcopy(rule), replace(rule)):
        assert other == rule
        assert torch.equal(decide(scores, other), wanted)
    assert not pickle.loads(pickle.dumps(rule)).cuts.kept
    assert torch.equal(decide(scores.double(), rule), wanted)
    assert decide(scores, replace(rule, threshold=(0.0, 0.0))).tolist() == [[True, False], [True, False]]


def test_thresholds_may_be_a_tensor():
    assert DecisionRule(threshold=torch.tensor([0.5, -1.0])) == DecisionRule(threshold=(0.5, -1.0))
    assert DecisionRule(threshold=torch.tensor(0.5)) == DecisionRule(threshold=0.5)
    for wrong in (torch.tensor([0.5, torch.nan]), torch.zeros(0), torch.zeros(1, 2)):
        with pytest.raises(ValueError, match="`threshold` must be a number or one per label"):
            DecisionRule(threshold=wrong)
