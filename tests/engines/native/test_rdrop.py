"""Two predictions at once by the native engine, against the plain form in float64, for every instruction set that runs here."""

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engines.native.problems import INF, NAN, SCORES, STEP, fused_oracle, problems, sparse_terms
from engines.pairs_oracle import check_operator, check_pairs, check_sure_pairs, check_whole_graph, pair_problem, plain_pair
from manyhot import SparseLabels, prediction_divergence, rdrop_loss
from manyhot.engines.native import engine as native
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.losses.core.pairs import left_out_as_zero

pytestmark = pytest.mark.skipif(not native.available()[0], reason=native.available()[1])


@pytest.fixture(params=native.variants() or ["none"])
def variant(request):
    return request.param


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def divergence_oracle(a, b, link):
    """Values and both gradients in float64; the probability of either side is asked for where it is small."""
    (p, p_lack), (q, q_lack) = ((torch.sigmoid(link * x), torch.sigmoid(-link * x)) for x in (a, b))
    between, far = torch.where(a + b > 0, q_lack - p_lack, p - q), link * (a - b)
    return (between * far).sum(dim=1), link * (between + p * p_lack * far), -link * (between + q * q_lack * far)


def pair_oracle(a, b, terms, where, alpha, link, scale):
    """Values and both gradients in float64: each loss as for one prediction alone, and the divergence."""
    values, *grads = divergence_oracle(*left_out_as_zero(where, a.double(), b.double()), link)
    values, grads = alpha * values, [alpha * scale.unsqueeze(1) * grad for grad in grads]
    for place, each in enumerate((a, b) if terms is not None else ()):
        loss, grad, _ = fused_oracle(each, terms, "split", torch.zeros(a.shape[0]), scale / 2)
        values, grads[place] = values + loss / 2, grads[place] + grad
    return values, *grads


def assert_within(got, wanted, slack):
    close = (got - wanted).abs() <= slack
    assert (close | (got == wanted) | (got.isnan() & wanted.isnan())).all()


def assert_pair(got, wanted, a, b):
    """As close as one loss is, but for this: a probability below all float32 is 0, which shows beside a score of 1e38."""
    lost = 1e-37 * (a.double() - b.double()).abs().nan_to_num(nan=0.0, posinf=0.0).sum(dim=1)
    values = wanted[0].float().double()
    assert_within(got[0].double(), values, 4e-6 + 4e-6 * values.abs() + lost)
    nan = values.isnan()  # in such rows the plain engine keeps some entries finite, which ones depends on the labels' kind
    for ours, theirs in zip(got[1:], wanted[1:], strict=True):
        right, mine = theirs.to(ours.dtype).double(), ours.double()
        assert mine[nan].isnan().logical_or(~right[nan].isnan()).all()
        slack = 8e-6 + 2 * STEP[ours.dtype] * right.abs() + lost.unsqueeze(1)
        assert_within(mine[~nan], right[~nan], slack[~nan])


@st.composite
def pairs(draw):
    """A problem, and a second prediction: near the first, far from it, or strange by itself.

    An infinite score stands beside a moderate one: beside a probability below all float32 it is 0 times infinity.
    """
    a, terms = draw(problems())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    noise = torch.randn(a.shape, generator=generator) * draw(st.sampled_from([0.0, 0.01, 1.0, 30.0]))
    b = a.float() + noise if draw(st.booleans()) else 3 * noise
    b = torch.where(a.isinf() & b.isfinite(), b.clamp(-40, 40), b)
    if draw(st.booleans()):
        strange = torch.tensor([INF, -INF, NAN, 1e38, -1e38, 0.0])
        chosen = strange[torch.randint(len(strange), a.shape, generator=generator)]
        b = torch.where((torch.rand(a.shape, generator=generator) < 0.05) & (a.abs() < 40), chosen, b)
    return a, b.to(a.dtype), terms


@given(pairs(), st.sampled_from([1.0, 2.0, 0.7]), st.booleans(), st.integers(0, 2**31))
def test_both_losses_and_the_divergence_are_those_of_the_plain_form(problem, link, losses, seed):
    a, b, terms = problem
    scale = torch.rand(a.shape[0], generator=torch.Generator().manual_seed(seed))
    given_terms, where = (terms, None) if losses else (None, terms.where)
    wanted = pair_oracle(a, b, given_terms, terms.where, 1.5, link, scale)
    for name in native.variants():
        got = native.rdrop(a, b, given_terms, where, alpha=1.5, link=link, row_scale=scale, variant=name)
        assert_pair(got, wanted, a, b)


@pytest.mark.parametrize("dtype", SCORES, ids=str)
def test_pairs_of_every_kind_of_labels_agree_with_autograd_through_the_plain_form(variant, dtype):
    class Engine:
        rdrop = staticmethod(functools.partial(native.rdrop, variant=variant))

    check_sure_pairs(Engine, "cpu", dtype)
    check_pairs(Engine, "cpu", dtype, shapes=((5, 1), (40, 20), (7, 33), (2, 4100)))


@pytest.mark.parametrize("dtype", SCORES, ids=str)
@pytest.mark.parametrize("link", [1.0, 2.0])
def test_the_error_is_at_most_three_times_that_of_the_plain_form(variant, dtype, link):
    generator = torch.Generator().manual_seed(7)
    a, b = ((torch.randn(16, 9001, generator=generator) * 4).to(dtype) for _ in range(2))
    terms, one = DenseTerms(torch.rand(a.shape, generator=generator) < 0.01), torch.ones(16)
    exact = pair_oracle(a, b, terms, None, 1.0, link, one)
    x, y = (each.float().requires_grad_() for each in (a, b))
    values = plain_pair(x, y, terms, None, 1.0, link)
    plain = [values.detach(), *(grad.to(dtype) for grad in torch.autograd.grad(values.sum(), (x, y)))]
    for ours, theirs, right in zip(native.rdrop(a, b, terms, link=link, variant=variant), plain, exact, strict=True):
        assert (ours - right).abs().max() <= 3 * (theirs - right).abs().max() + 1e-7


@pytest.mark.parametrize("dtype", SCORES, ids=str)
@pytest.mark.parametrize("shape", [(300, 70), (12, 5000), (2, 40_000)])
def test_results_are_the_same_for_every_number_of_threads(threads, dtype, shape):
    generator = torch.Generator().manual_seed(5)
    a, b = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    labels = torch.rand(shape, generator=generator) < 0.01
    runs = []
    for number in (1, 2, 7):
        threads(number)
        terms = (None, DenseTerms(labels), sparse_terms(labels), DenseTerms(labels, smoothing=0.1))
        runs.append([part for each in terms for part in native.rdrop(a, b, each)])
    for run in runs[1:]:
        assert all(torch.equal(one, other) for one, other in zip(runs[0], run, strict=True))


def test_parts_of_rows_with_scores_out_of_range_are_put_together(threads):
    """Some chunks of a long row need a shift and others do not."""
    threads(2)
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randn(2, 40_000, generator=generator) for _ in range(2))
    a[0, 5000:5010], b[1, 30_000], a[1, 2] = 200.0, -300.0, 1e30
    terms = DenseTerms(torch.rand(a.shape, generator=generator) < 0.01)
    for dtype in SCORES[:2]:
        x, y = a.to(dtype), b.to(dtype)
        wanted = pair_oracle(x, y, terms, None, 1.0, 1.0, torch.ones(2))
        assert_pair(native.rdrop(x, y, terms), wanted, x, y)


def test_rows_that_are_not_contiguous_are_read_in_place_or_copied(variant):
    generator = torch.Generator().manual_seed(3)
    wide, other = (torch.randn(6, 90, generator=generator) for _ in range(2))
    labels, where = torch.rand(40, 6, generator=generator) < 0.2, torch.tensor([True, False]).repeat(20).expand(6, 40)
    for a, b in (
        (wide[:, 10:50], other[:, :40]),
        (wide.T[10:50].T, other[:, 2:82:2]),
        (wide[:, :40], wide[:1, 50:].expand(6, 40)),
    ):
        for terms, counts in ((DenseTerms(labels.T, where), None), (DenseTerms(labels.T), None), (None, where)):
            wanted = pair_oracle(a, b, terms, counts if terms is None else terms.where, 1.0, 1.0, torch.ones(6))
            assert_pair(native.rdrop(a, b, terms, counts, variant=variant), wanted, a, b)


def test_excluded_entries_get_zero_whatever_their_scores(variant):
    a = torch.tensor([[NAN, 1.0, INF, -2.0, -INF]])
    b, where, labels = a.flip(1), torch.tensor([[False, True, False, True, False]]), torch.tensor([[1, 1, 0, 0, 1]])
    soft = DenseTerms(labels, where, smoothing=0.1)
    for terms in (DenseTerms(labels, where), soft, sparse_terms(labels, where=where), None):
        values, *grads = native.rdrop(a, b, terms, where if terms is None else None, variant=variant)
        assert values.isfinite().all()
        for grad in grads:
            assert grad[~where].tolist() == [0, 0, 0]
            assert (grad[where] != 0).all()


def test_equal_predictions_have_the_loss_of_one(variant):
    x = torch.randn(5, 300, generator=torch.Generator().manual_seed(4))
    for terms in (DenseTerms(x > 1), DenseTerms(x > 1, smoothing=0.2)):
        values, grad_a, grad_b = native.rdrop(x, x, terms, alpha=3.0, variant=variant)
        alone, grad, _ = native.fused(x, terms, variant=variant)
        torch.testing.assert_close(values, alone)
        torch.testing.assert_close(grad_a, grad / 2)
        assert torch.equal(grad_a, grad_b)


def test_index_lists_that_break_the_rules_never_leave_the_memory():
    indices, offsets = torch.tensor([-7, 10**12, 3, 2, 99]), torch.tensor([-5, 3, 10**9])
    for part in native.rdrop(torch.zeros(2, 5000), torch.ones(2, 5000), SparseTerms(indices, offsets)):
        assert part.isfinite().all()


@pytest.mark.parametrize("engine", ["native", "auto"])
def test_the_losses_take_both_gradients_from_one_read(engine, monkeypatch):
    """The engine is asked once for each; afterwards only the factor of the backward pass is put on."""
    calls = []
    rdrop = native.rdrop
    monkeypatch.setattr(native, "rdrop", lambda *args, **rest: calls.append(args[2] is None) or rdrop(*args, **rest))
    a, b, labels = pair_problem("cpu", 6, 50, torch.bfloat16)
    for truth in (labels, SparseLabels.from_dense(labels)):
        got = torch.autograd.grad(3 * rdrop_loss(a, b, truth, alpha=2.0, engine=engine), (a, b))
        wanted = torch.autograd.grad(3 * rdrop_loss(a, b, truth, alpha=2.0, engine="torch"), (a, b))
        torch.testing.assert_close(got, wanted)
    torch.autograd.grad(prediction_divergence(a, b, engine=engine), (a, b))
    assert calls == [False, False, True]


@pytest.mark.parametrize("num_labels", [1, 50, 20_000])
def test_the_operator_for_pairs_passes_opcheck(num_labels):
    check_operator("cpu", num_labels)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_whole_graph_with_rdrop_compiles():
    check_whole_graph("cpu")
