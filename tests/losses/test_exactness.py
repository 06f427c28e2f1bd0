"""The exactness rules of the family, each with its own test, against a hundred-digit oracle, on every engine."""

import contextlib
import functools
import inspect
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracle
from manyhot import (
    SparseLabels,
    asymmetric_loss,
    bce_loss,
    decoupled_softmax_loss,
    dice_loss,
    focal_loss,
    lsep_loss,
    pairwise_loss,
    softmax_loss,
    tlpr_loss,
    two_sided_logsumexp,
    two_way_loss,
    zlpr_loss,
)

INF, NAN = float("inf"), float("nan")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def loss_and_gradient(logits, labels, loss=zlpr_loss, **settings):
    logits = logits.clone().requires_grad_()
    values = loss(logits, labels, reduction="none", **settings)
    values.sum().backward()
    return values.detach(), logits.grad


def as_kind(labels, kind):
    if kind == "sparse":
        return SparseLabels.from_dense(labels)
    return {"bool": labels.bool(), "uint8": labels.to(torch.uint8), "int64": labels.long(), "float": labels.float()}[kind]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["bool", "float", "sparse"])
@pytest.mark.parametrize("score", [5.0, 10.0, 15.0, 20.0, 30.0, 80.0])
def test_a_confident_positive_does_not_disturb_the_negatives(place, dtype, kind, score):
    logits = torch.full((1, 101), -8.0, dtype=dtype)
    logits[0, 0] = score
    labels = torch.zeros(1, 101, dtype=torch.bool)
    labels[0, 0] = True
    logits, labels = place.put(logits), place.put(as_kind(labels, kind))
    _, neg = two_sided_logsumexp(logits, labels, engine=place.engine)
    assert torch.nn.functional.softplus(neg).item() == pytest.approx(math.log1p(100 * math.exp(-8)), rel=1e-6)
    value, gradient = loss_and_gradient(logits, labels, engine=place.engine)
    exact = oracle.zlpr(logits[0].tolist(), [1.0] + [0.0] * 100)
    assert value.item() == pytest.approx(exact, rel=1e-6)
    assert gradient[0, 0].item() <= 0
    assert gradient[0, 1:].min().item() > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["bool", "float", "sparse"])
@pytest.mark.parametrize("garbage", [INF, -INF, NAN])
@pytest.mark.parametrize("truth", [False, True])
def test_excluded_entries_leave_both_sums_whatever_their_score(place, dtype, kind, garbage, truth):
    logits = torch.tensor([[1.0, garbage, -2.0, 0.5]], dtype=dtype)
    labels = torch.tensor([[True, truth, False, False]])
    where = torch.tensor([[True, False, True, True]])
    value, gradient = loss_and_gradient(
        place.put(logits), place.put(as_kind(labels, kind)), where=place.put(where), engine=place.engine
    )
    kept = [0, 2, 3]
    assert value.item() == pytest.approx(oracle.zlpr(logits[0, kept].tolist(), [1, 0, 0]), rel=1e-6)
    assert gradient[0, 1].item() == 0
    assert gradient[0, kept].tolist() == pytest.approx(oracle.zlpr_gradient(logits[0, kept].tolist(), [1, 0, 0]), rel=1e-2)


@pytest.mark.parametrize("kind", ["bool", "float", "sparse"])
@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1]])
@pytest.mark.parametrize("loss", [zlpr_loss, pairwise_loss])
def test_rows_without_positives_or_without_negatives_are_finite(place, kind, labels, loss):
    scores = [3.0, -1.0, 0.5]
    truth = torch.tensor([labels])
    logits = place.put(torch.tensor([scores]))
    value, gradient = loss_and_gradient(logits, place.put(as_kind(truth, kind)), loss=loss, engine=place.engine)
    if loss is pairwise_loss:
        assert value.item() == 0
        assert gradient.abs().max().item() == 0
    else:
        assert value.item() == pytest.approx(oracle.zlpr(scores, labels), rel=1e-6)
        assert gradient[0].tolist() == pytest.approx(oracle.zlpr_gradient(scores, labels), rel=1e-5)


@pytest.mark.parametrize("kind", ["bool", "float", "sparse"])
@pytest.mark.parametrize("loss", [zlpr_loss, pairwise_loss])
def test_rows_that_are_all_excluded_cost_nothing_and_pull_nowhere(place, kind, loss):
    logits = place.put(torch.tensor([[INF, NAN, -INF], [1.0, 2.0, 3.0]]))
    labels = place.put(as_kind(torch.tensor([[1, 0, 1], [1, 0, 0]]), kind))
    where = place.put(torch.tensor([[False], [True]]))
    value, gradient = loss_and_gradient(logits, labels, loss=loss, where=where, engine=place.engine)
    assert value[0].item() == 0
    assert gradient[0].tolist() == [0, 0, 0]
    assert gradient[1].isfinite().all()


@pytest.mark.parametrize("scale", [1e7, INF])
def test_labels_of_exactly_0_and_1_are_exact_inside_soft_labels(place, scale):
    logits = torch.tensor([[scale, -scale, 0.25, -1.5]])
    labels = torch.tensor([[1.0, 0.0, 0.3, 0.75]])
    value, gradient = loss_and_gradient(place.put(logits), place.put(labels), engine=place.engine)
    assert value.item() == pytest.approx(oracle.zlpr(logits[0].tolist(), labels[0].tolist()), rel=1e-6)
    assert gradient[0, :2].tolist() == [0, 0]
    assert gradient[0].tolist() == pytest.approx(oracle.zlpr_gradient(logits[0].tolist(), labels[0].tolist()), rel=1e-5)


@pytest.mark.parametrize("kind", ["bool", "float", "sparse"])
def test_a_score_that_is_infinitely_wrong_gives_an_infinite_loss_and_a_finite_gradient(place, kind):
    logits = place.put(torch.tensor([[INF, 1.0, -2.0], [-INF, 1.0, -2.0]]))
    labels = place.put(as_kind(torch.tensor([[0, 1, 0], [1, 0, 0]]), kind))
    value, gradient = loss_and_gradient(logits, labels, engine=place.engine)
    assert value.tolist() == [INF, INF]
    assert gradient[0, 0].item() == 1
    assert gradient[1, 0].item() == -1
    assert gradient.isfinite().all()


@pytest.mark.parametrize("loss", [bce_loss, focal_loss, asymmetric_loss])
def test_scores_that_are_infinitely_right_pull_nowhere_in_losses_of_single_labels(place, loss):
    logits = place.put(torch.tensor([[INF, -INF, 0.25]]))
    value, gradient = loss_and_gradient(logits, place.put(torch.tensor([[1.0, 0.0, 1.0]])), loss=loss, engine=place.engine)
    assert value.isfinite().all()
    assert gradient[0, :2].tolist() == [0, 0]
    assert gradient[0, 2].item() < 0


@pytest.mark.parametrize("scale", [1e7, 1e30])
def test_huge_finite_scores_are_not_masked_by_a_constant(place, scale):
    logits = torch.tensor([[scale, -scale, 1.0]])
    labels = torch.tensor([[0.0, 1.0, 0.5]])
    value, gradient = loss_and_gradient(place.put(logits), place.put(labels), engine=place.engine)
    assert value.item() == pytest.approx(2 * scale, rel=1e-6)
    assert gradient[0].tolist() == pytest.approx([1, -1, 0], abs=1e-6)


@pytest.mark.parametrize("shape", [(3, 0), (0, 5), (0, 0), (3, 1)])
@pytest.mark.parametrize("kind", ["bool", "float", "sparse"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_no_labels_one_label_and_no_rows(place, shape, kind, reduction):
    logits = place.put(torch.linspace(-1, 1, shape[0] * shape[1]).reshape(shape)).requires_grad_()
    labels = place.put(as_kind(torch.ones(shape, dtype=torch.bool), kind))
    values = zlpr_loss(logits, labels, reduction=reduction, engine=place.engine)
    values.sum().backward()
    assert values.isfinite().all()
    assert logits.grad.isfinite().all()
    if shape[1] == 1:
        expected = torch.nn.functional.softplus(-logits.detach()).squeeze(1)
        expected = {"mean": expected.mean(), "sum": expected.sum(), "none": expected}[reduction]
        torch.testing.assert_close(values.detach(), expected)
    else:
        assert values.sum().item() == 0


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES])
def test_sums_are_taken_in_float32_or_better_and_gradients_keep_the_type(place, dtype):
    if dtype == torch.float64 and place.engine != "torch":
        pytest.skip("float64 is served by the plain engine")
    logits = place.put(torch.randn(4, 300, generator=torch.Generator().manual_seed(0)).to(dtype)).requires_grad_()
    labels = place.put(torch.rand(4, 300, generator=torch.Generator().manual_seed(1)) < 0.1)
    value = zlpr_loss(logits, labels, engine=place.engine)
    value.backward()
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert logits.grad.dtype == dtype
    exact = sum(oracle.zlpr(logits[i].tolist(), labels[i].tolist()) for i in range(4)) / 4
    assert value.item() == pytest.approx(exact, rel=1e-14 if dtype == torch.float64 else 1e-6)


def test_soft_labels_are_never_rounded(place):
    logits = place.put(torch.zeros(1, 4))
    for label in (0.01, 0.49, 0.51, 0.99):
        value = zlpr_loss(logits, place.put(torch.full((1, 4), label)), engine=place.engine)
        assert value.item() == pytest.approx(oracle.zlpr([0] * 4, [label] * 4), rel=1e-6)


@pytest.mark.parametrize("kind", ["bool", "uint8", "int64", "float"])
def test_every_label_type_is_taken(place, kind):
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(5, 33, generator=generator), torch.rand(5, 33, generator=generator) < 0.3
    expected = zlpr_loss(logits, labels, engine="torch")
    got = zlpr_loss(place.put(logits), place.put(as_kind(labels, kind)), engine=place.engine)
    torch.testing.assert_close(got.cpu(), expected)


scores = st.one_of(
    st.floats(-30, 30, width=32), st.sampled_from([0.0, 1e7, -1e7, INF, -INF, 88.0, -88.0, 1e-30, -104.0, 1e38, -1e38])
)
weights = st.one_of(st.none(), st.lists(st.sampled_from([0.0, 0.5, 1.0, 20.0]), min_size=6, max_size=6))


@given(
    row=st.lists(scores, min_size=6, max_size=6),
    soft=st.lists(st.sampled_from([0.0, 1.0, 0.5, 0.125, 0.999]), min_size=6, max_size=6),
    where=st.one_of(st.none(), st.lists(st.booleans(), min_size=6, max_size=6)),
    pos_weight=weights,
    neg_weight=weights,
    sparse=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.0, 0.25]),
)
def test_hostile_rows_agree_with_the_oracle(place, row, soft, where, pos_weight, neg_weight, sparse, smoothing):
    logits = torch.tensor([row])
    labels = torch.tensor([soft])
    given_labels = SparseLabels.from_dense(labels) if sparse else labels
    tensors = {"where": where, "pos_weight": pos_weight, "neg_weight": neg_weight}
    tensors = {name: None if value is None else place.put(torch.tensor(value)) for name, value in tensors.items()}
    value, gradient = loss_and_gradient(
        place.put(logits), place.put(given_labels), smoothing=smoothing, engine=place.engine, **tensors
    )
    smooth = [label * (1 - smoothing) + smoothing / 2 for label in soft]
    settings = {"where": where, "pos_weight": pos_weight, "neg_weight": neg_weight}
    exact = oracle.zlpr(logits[0].tolist(), smooth, **settings)
    assert value.item() == pytest.approx(exact, rel=2e-6, abs=1e-37)
    if math.isinf(exact):
        assert gradient.isfinite().all()
    else:
        expected = oracle.zlpr_gradient(logits[0].tolist(), smooth, **settings)
        for got, wanted, label in zip(gradient[0].tolist(), expected, smooth, strict=True):
            # The two pulls on a soft label may cancel; what is left then has the error of the pulls.
            slack = 1e-30 if label in (0.0, 1.0) else 2e-7
            assert got == pytest.approx(wanted, rel=1e-4, abs=slack)


@given(row=st.lists(scores.filter(math.isfinite), min_size=5, max_size=5), threshold=st.floats(-20, 20, width=32))
def test_threshold_and_pairs_agree_with_the_oracle(place, row, threshold):
    labels = [1, 0, 1, 0, 0]
    logits, truth = place.put(torch.tensor([row])), place.put(torch.tensor([labels]))
    value = tlpr_loss(logits, truth, threshold, engine=place.engine)
    assert value.item() == pytest.approx(oracle.tlpr(logits[0].tolist(), labels, threshold), rel=1e-5, abs=1e-37)
    value = pairwise_loss(logits, truth, margin=0.25, engine=place.engine)
    assert value.item() == pytest.approx(oracle.pairwise(logits[0].tolist(), labels, margin=0.25), rel=1e-5, abs=1e-37)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_infinite_scores_have_finite_gradients_under_focal_and_asymmetric_loss(place, gamma, margin):
    logits = torch.tensor([[INF, -INF, 1.0, -2.0]])
    for labels, right in ((torch.tensor([[1, 0, 1, 0]]), True), (torch.tensor([[0, 1, 0, 1]]), False)):
        for loss in (
            functools.partial(focal_loss, gamma=gamma),
            functools.partial(asymmetric_loss, gamma_pos=gamma, gamma_neg=gamma, margin=margin),
        ):
            x = place.put(logits.clone()).requires_grad_()
            value = loss(x, place.put(labels), engine=place.engine)
            value.backward()
            assert x.grad.isfinite().all()
            assert value.isfinite() == right
            assert not right or x.grad[0, :2].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_integer_labels_are_hard_positive_where_above_0(place, dtype, smoothing):
    logits, truth = torch.randn(3, 40), torch.rand(3, 40) < 0.3
    high, low = (255, 0) if dtype == torch.uint8 else (100, -1)
    labels = torch.where(truth, high, low).to(dtype)
    for loss in (zlpr_loss, bce_loss, focal_loss):
        for reduction in ("mean", "none"):
            x = place.put(logits.clone()).requires_grad_()
            given = {"engine": place.engine, "reduction": reduction, "smoothing": smoothing}
            got = loss(x, place.put(labels), **given)
            torch.testing.assert_close(got, loss(x, place.put(truth), **given))


LISTED = [zlpr_loss, softmax_loss, dice_loss, lsep_loss, two_way_loss, bce_loss, pairwise_loss]


@pytest.mark.parametrize("loss", LISTED)
@pytest.mark.parametrize("offsets", [[0, 10**15, 3], [0, -(10**15), 3], [10**15, 2, 3], [-7, -7, -7], [0, 3, 10**12]])
def test_offsets_that_nobody_checked_read_no_memory_that_is_not_theirs(loss, offsets):
    labels = SparseLabels(torch.tensor([0, 3, 4]), torch.tensor(offsets), 5, validate=False)
    x = torch.randn(2, 5, requires_grad=True)
    for engine in ({"engine": "torch"}, {}):
        settings = engine if "engine" in inspect.signature(loss).parameters else {}
        with contextlib.suppress(IndexError):
            loss(x, labels, **settings).backward()
    assert labels.rows.ge(0).all()
    assert labels.rows.lt(2).all()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("kind", ["bool", "float", "sparse"])
@pytest.mark.parametrize("level", [0.0, 1e4, 1e7])
@pytest.mark.parametrize("loss", [pairwise_loss, lsep_loss, two_way_loss, tlpr_loss, decoupled_softmax_loss])
def test_a_level_that_all_scores_share_costs_no_digits(place, loss, level, kind, reduction):
    """At 1e7 float32 has no digits left beside the level: the level must cancel before anything small is added."""
    takes_engine = loss in (pairwise_loss, tlpr_loss)
    settings = {"engine": place.engine} if takes_engine else {}
    settings |= {"pos_temperature": 1.0, "neg_temperature": 1.0, "batch_weight": 0.0} if loss is two_way_loss else {}
    # Powers of two and whole numbers: every score and every difference of two scores is exact in float32.
    apart = torch.tensor([[3.0, 1.0, -2.0, 2.0, 0.0], [-1.0, 2.0, 3.0, 0.0, -3.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    labels = as_kind(torch.tensor([[1, 0, 0, 1, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0]]), kind)

    def compute(scores, threshold, **given):
        extra = (place.put(torch.tensor(threshold, dtype=scores.dtype)),) if loss is tlpr_loss else ()
        scores = place.put(scores).requires_grad_()
        value = loss(scores, place.put(labels), *extra, reduction=reduction, **given)
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        with torch.no_grad():
            unfused = loss(scores, place.put(labels), *extra, reduction=reduction, **given)
        return value.detach().double().cpu(), unfused.double().cpu(), gradient.double().cpu()

    exact, _, slope = compute(apart.double(), 0.0, **settings | ({"engine": "torch"} if takes_engine else {}))
    value, unfused, gradient = compute(apart + level, level, **settings)
    torch.testing.assert_close(value, exact, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(unfused, exact, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient, slope, rtol=1e-5, atol=1e-6)
