"""The native engine against the plain one in float64, on hostile inputs, for every instruction set that runs here."""

import math
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import manyhot
from engines.native.problems import INF, NAN, SCORES, assert_grad, fused_oracle, problems, sparse_terms
from manyhot.engines.native import engine as native
from manyhot.engines.native import library as native_library
from manyhot.engines.terms import DenseTerms, LogSum, SparseTerms
from manyhot.losses.bce import bce_loss
from manyhot.losses.core.labelwise import sum_over_labels, weigh
from manyhot.losses.core.layout import Rows
from manyhot.losses.core.reduction import softplus
from manyhot.losses.focal import asymmetric_loss, focal_loss

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(not native.available()[0], reason=native.available()[1])


@pytest.fixture(params=native.variants() or ["none"])
def variant(request):
    return request.param


@pytest.fixture(params=["torch", "own"])
def threads(request):
    """Sets the number of threads: torch's, or those of the pool that stands in for them."""
    library, before = native_library.load()[0], torch.get_num_threads()
    if request.param == "own":
        library.manyhot_share_threads(None)
    yield torch.set_num_threads
    torch.set_num_threads(before)
    library.manyhot_share_threads(native_library._torch_threads())


def assert_sides(x, terms, got):
    for ours, theirs in zip(got, terms.sides(x.double()), strict=True):
        assert ours.shift.isfinite().logical_or(theirs.value.isnan()).all()
        torch.testing.assert_close(ours.value.double(), theirs.value, rtol=2e-6, atol=2e-6, equal_nan=True)


@given(problems())
def test_sides_are_those_of_the_plain_engine(problem):
    x, terms = problem
    for name in native.variants():
        assert_sides(x, terms, native.sides(x, terms, variant=name))


@given(problems(), st.integers(0, 2**31))
def test_gradient_is_that_of_the_plain_engine(problem, seed):
    x, terms = problem
    grads = torch.randn(2, x.shape[0], generator=torch.Generator().manual_seed(seed))
    wanted = terms.gradient(x.double(), *terms.sides(x.double()), *grads.double())
    sums = terms.sides(x.float())
    for name in native.variants():
        assert_grad(native.gradient(x, terms, *native.sides(x, terms), *grads, variant=name), wanted, scale=4)
        assert_grad(native.gradient(x, terms, *sums, *grads, variant=name), wanted, scale=4)


@given(problems(), st.sampled_from(["split", "joint"]), st.integers(0, 2**31))
def test_fused_gives_the_loss_its_gradient_and_that_of_the_offset(problem, form, seed):
    x, terms = problem
    generator = torch.Generator().manual_seed(seed)
    offset, scale = torch.randn(x.shape[0], generator=generator), torch.rand(x.shape[0], generator=generator)
    values, grad, offset_grad = fused_oracle(x, terms, form, offset, scale)
    for name in native.variants():
        got = native.fused(x, terms, form, offset, scale, variant=name)
        torch.testing.assert_close(got[0].double(), values, rtol=2e-6, atol=2e-6, equal_nan=True)
        lost = (
            values.isnan()
        )  # in such a row the plain engine keeps some entries finite, which ones depends on the labels' kind
        assert got[1][lost].isnan().logical_or(~grad[lost].isnan()).all()
        assert_grad(got[1][~lost], grad[~lost])
        torch.testing.assert_close(got[2].double(), offset_grad, rtol=2e-6, atol=2e-6, equal_nan=True)


@given(
    problems(finite=True),
    st.sampled_from([("bce", 0.0, 0.0, 0.0), ("focal", 2.0, 2.0, 0.0), ("focal", 0.5, 0.5, 0.0), ("focal", 0.0, 0.0, 0.0)])
    | st.sampled_from([("asymmetric", 1.0, 4.0, 0.05), ("asymmetric", 0.0, 1.5, 0.2), ("asymmetric", 2.0, 3.0, 0.0)]),
)
def test_labelwise_losses_are_those_of_the_plain_engine(problem, kind):
    x, terms = problem
    name, gamma_pos, gamma_neg, margin = kind
    exact = x.double().requires_grad_()
    values = labelwise_oracle(exact, terms, *kind)
    (grad,) = torch.autograd.grad(values.sum(), exact)
    on_the_edge = (torch.sigmoid(x.double()) - margin).abs() < 1e-6
    for instructions in native.variants():
        got, slope = native.labelwise(
            x, terms, name, gamma_pos=gamma_pos, gamma_neg=gamma_neg, margin=margin, row_scale=0.5, variant=instructions
        )
        torch.testing.assert_close(got.double(), values.detach(), rtol=3e-6, atol=1e-5)
        wanted = torch.where(on_the_edge, slope.double(), grad * 0.5)
        assert_grad(slope, wanted, scale=4)


def labelwise_oracle(x, terms, name, gamma_pos, gamma_neg, margin):
    """Row sums in float64, by the formulas of manyhot.losses."""

    def term(x, pos, neg):
        log_p, log_q = -softplus(-x), -softplus(x)
        focus_pos, focus_neg, log_kept = torch.exp(gamma_pos * log_q), torch.exp(gamma_neg * log_p), log_q
        if margin:
            shifted = (torch.sigmoid(x) - margin).clamp(min=0)
            log_kept, focus_neg = torch.log1p(-shifted), shifted**gamma_neg
        return weigh(pos, -focus_pos * log_p) + weigh(neg, -focus_neg * log_kept)

    return sum_over_labels(Rows(x, terms, x.shape[:-1]), term)


def test_labelwise_losses_agree_with_the_public_functions(variant):
    generator = torch.Generator().manual_seed(1)
    x, labels = torch.randn(6, 50, generator=generator) * 3, torch.rand(6, 50, generator=generator) < 0.3
    few = {"label_reduction": "sum", "reduction": "none"}
    alpha = DenseTerms(labels, pos_weight=0.25, neg_weight=0.75)
    bce, _ = native.labelwise(x, DenseTerms(labels), "bce", variant=variant)
    focal, _ = native.labelwise(x, alpha, "focal", gamma_pos=2, gamma_neg=2, variant=variant)
    cut, _ = native.labelwise(x, DenseTerms(labels), "asymmetric", gamma_pos=1, gamma_neg=4, margin=0.05, variant=variant)
    torch.testing.assert_close(bce, bce_loss(x, labels, **few))
    torch.testing.assert_close(focal, focal_loss(x, labels, **few))
    torch.testing.assert_close(cut, asymmetric_loss(x, labels, **few))


def test_labelwise_losses_take_infinite_scores(variant):
    x, labels = torch.tensor([[INF, -INF, 1.0], [INF, -INF, 1.0]]), torch.tensor([[1, 0, 1], [0, 1, 1]])
    for kind, gamma in (("bce", 0.0), ("focal", 2.0), ("focal", 1.5)):
        values, grad = native.labelwise(x, DenseTerms(labels), kind, gamma_pos=gamma, gamma_neg=gamma, variant=variant)
        assert values[0].isfinite()
        assert values[1] == INF
        assert grad[:, :2].tolist() == [[0, 0], [1, -1]]


@pytest.mark.parametrize("dtype", SCORES, ids=str)
@pytest.mark.parametrize("soft", [False, True])
def test_the_error_is_at_most_three_times_that_of_the_plain_engine(variant, dtype, soft):
    generator = torch.Generator().manual_seed(7)
    x = (torch.randn(16, 9001, generator=generator) * 4).to(dtype)
    hard = torch.rand(x.shape, generator=generator) < 0.01
    terms = DenseTerms(torch.rand(x.shape, generator=generator) if soft else hard)
    zero, one = torch.zeros(16), torch.ones(16)
    values, grad, _ = fused_oracle(x, terms, "split", zero, 1.0)
    pos, neg = terms.sides(x.float())
    plain = softplus(pos.value) + softplus(neg.value)
    plain_grad = terms.gradient(x.float(), pos, neg, torch.sigmoid(pos.value), torch.sigmoid(neg.value)).to(dtype)
    got, got_grad, _ = native.fused(x, terms, "split", zero, one, variant=variant)
    assert (got - values).abs().max() <= 3 * (plain - values).abs().max() + 1e-7
    assert (got_grad - grad).abs().max() <= 3 * (plain_grad - grad).abs().max()


def test_exponentials_are_right_to_one_unit_in_the_last_place(variant):
    """With both parts of the total 0 and a weight of 1 the gradient of a negative is the exponential itself."""
    x, zero = torch.linspace(-87.2, 88.3, 200_003).unsqueeze(0), torch.zeros(1)
    for labels in (torch.zeros_like(x, dtype=torch.bool), torch.full_like(x, 1e-30)):
        total = LogSum(zero, zero)
        grad = native.gradient(x, DenseTerms(labels), total, total, zero, zero + 1, variant=variant)
        assert (grad.double() / x.double().exp() - 1).abs().max() < 2**-23


def test_excluded_entries_get_zero_whatever_their_score(variant):
    x = torch.tensor([[NAN, 1.0, INF, -2.0, -INF]])
    where, labels = torch.tensor([[False, True, False, True, False]]), torch.tensor([[1, 1, 0, 0, 1]])
    for terms in (DenseTerms(labels, where), DenseTerms(labels, where, smoothing=0.1), sparse_terms(labels, where=where)):
        values, grad, _ = native.fused(x, terms, variant=variant)
        assert values.isfinite().all()
        assert grad[~where].tolist() == [0, 0, 0]
        assert (grad[where] != 0).all()


def test_infinite_scores_on_the_right_side_cost_nothing(variant):
    x, labels = torch.tensor([[INF, -INF], [INF, INF], [-INF, -INF]]), torch.tensor([[1, 0], [1, 1], [0, 0]])
    for terms in (DenseTerms(labels), sparse_terms(labels)):
        values, grad, _ = native.fused(x, terms, variant=variant)
        assert values.tolist() == [0, 0, 0]
        assert grad.abs().max() == 0


def test_a_term_of_any_size_keeps_its_digits(variant):
    """One float for the log-sum would lose the rest at such scores: the shares must add up to one."""
    x = torch.full((1, 8), 1e7)
    _, neg = native.sides(x, DenseTerms(torch.zeros(1, 8)), variant=variant)
    assert neg.rest.item() == pytest.approx(math.log(8))
    _, grad, _ = native.fused(x, DenseTerms(torch.zeros(1, 8)), variant=variant)
    torch.testing.assert_close(grad, torch.full((1, 8), 0.125))


def test_inputs_that_are_not_contiguous_are_read_in_place_or_copied(variant):
    generator = torch.Generator().manual_seed(3)
    wide, labels = torch.randn(6, 90, generator=generator), torch.rand(40, 6, generator=generator) < 0.2
    x, where = wide[:, 10:50], torch.tensor([True, False]).repeat(20).expand(6, 40)
    terms = DenseTerms(labels.T, where)
    for kind in (x, wide.T[10:50].T):
        assert_sides(kind, terms, native.sides(kind, terms, variant=variant))
        _, grad, _ = native.fused(kind, terms, variant=variant)
        assert_grad(grad, fused_oracle(kind, terms, "split", torch.zeros(6), 1.0)[1])


@pytest.mark.parametrize("dtype", SCORES, ids=str)
@pytest.mark.parametrize("shape", [(300, 70), (12, 5000), (2, 40_000)])
def test_results_are_the_same_for_every_number_of_threads(threads, dtype, shape):
    generator = torch.Generator().manual_seed(5)
    x, labels = torch.randn(shape, generator=generator).to(dtype), torch.rand(shape, generator=generator) < 0.01
    terms, soft = sparse_terms(labels), DenseTerms(labels, smoothing=0.1)
    runs = []
    for number in (1, 2, 7):
        threads(number)
        sides = native.sides(x, terms)
        grads = native.gradient(x, terms, *sides, torch.ones(shape[0]), torch.ones(shape[0]))
        fused = [*native.fused(x, terms, offset=x[:, 0].float()), *native.fused(x, soft)[:2], *native.labelwise(x, soft, "bce")]
        runs.append([*sides[0], *sides[1], grads, *fused])
    for run in runs[1:]:
        assert all(torch.equal(one, other) for one, other in zip(runs[0], run, strict=True))


def test_rows_of_a_gradient_in_large_pages_are_those_of_small_ones():
    """Memory is asked for in another way from 4 MB on; a row does not depend on its neighbours."""
    x = torch.randn(1100, 1024, generator=torch.Generator().manual_seed(6))
    whole = native.fused(x, DenseTerms(x > 2))[:2]
    parts = [native.fused(half, DenseTerms(half > 2))[:2] for half in x.split(550)]
    for all_rows, *some in zip(whole, *parts, strict=True):
        assert torch.equal(all_rows, torch.cat(some))


def test_calls_from_several_threads_at_once_do_not_disturb_each_other(threads):
    threads(3)
    generator = torch.Generator().manual_seed(11)
    tasks = [torch.randn(64, 3000, generator=generator) for _ in range(4)]
    wanted = [native.fused(x, DenseTerms(x > 1))[1] for x in tasks]
    wrong = []

    def work(x, expected):
        grads = [native.fused(x, DenseTerms(x > 1))[1] for _ in range(10)]
        wrong.extend(grad for grad in grads if not torch.equal(grad, expected))

    workers = [threading.Thread(target=work, args=pair) for pair in zip(tasks, wanted, strict=True)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


FORKED = """
import os, sys, torch, zlib
from manyhot.engines.native import engine as native
from manyhot.engines.terms import DenseTerms
torch.set_num_threads(3)
x = torch.randn(64, 4096)
terms = DenseTerms(x.exp() > 8)  # torch's threads are at work
values = lambda: zlib.crc32(native.fused(x, terms)[0].numpy().tobytes())
if sys.argv[1] == "used":
    values()
if sys.argv[1] == "loaded":
    native.available()
child = os.fork()  # torch's own threads do not survive this: the child must not ask torch for arithmetic
if child == 0:
    os.write(1, f"{values()} {values()} ".encode())
    os._exit(0)
os.waitpid(child, 0)
print(values())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("before", ["used", "loaded", "untouched"])
def test_a_forked_child_starts_threads_of_its_own(before):
    done = subprocess.run([sys.executable, "-c", FORKED, before], capture_output=True, text=True, timeout=60, check=False)
    found = done.stdout.split()
    assert (len(found), len(set(found)), done.returncode) == (3, 1, 0), done.stderr


def test_index_lists_of_other_rows_are_refused():
    terms = sparse_terms(torch.ones(3, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="must list 2 rows"):
        native.sides(torch.zeros(2, 4), terms)


def test_index_lists_that_break_the_rules_never_leave_the_memory():
    """Values are not looked at on the way here, so that the engine must bear them."""
    indices, offsets = torch.tensor([-7, 10**12, 3, 2, 99]), torch.tensor([-5, 3, 10**9])
    values, grad, _ = native.fused(torch.zeros(2, 5000), SparseTerms(indices, offsets))
    assert values.isfinite().all()
    assert grad.isfinite().all()


def test_types_and_devices_it_does_not_serve_are_told():
    labels = torch.zeros(2, 3)
    assert native.supports(torch.zeros(2, 3), DenseTerms(labels))
    assert not native.supports(torch.zeros(2, 3, dtype=torch.float64), DenseTerms(labels))
    assert not native.supports(torch.zeros(2, 3, device="meta"), DenseTerms(labels))


def test_without_the_library_the_package_works_and_says_why(tmp_path):
    package = tmp_path / "manyhot"
    shutil.copytree(Path(manyhot.__file__).parent, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    script = (
        "import torch, manyhot; from manyhot.engines.native import engine as native;"
        "print(manyhot.zlpr_loss(torch.zeros(1, 2), torch.tensor([[1, 0]])).item() > 0);"
        "print(*native.available())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    works, state = done.stdout.splitlines()
    assert works == "True"
    assert state == "False _native.so was not built with this package: no C compiler was found, or the build failed."


def test_a_library_of_other_sources_is_not_used(tmp_path, monkeypatch):
    for path in (native_library.LIBRARY, *native_library.LIBRARY.parent.glob("*.[ch]")):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(native_library, "LIBRARY", tmp_path / native_library.LIBRARY.name)
    assert native_library.load.__wrapped__()[0] is not None
    with (tmp_path / "tree.h").open("a") as file:
        file.write("// Changed after the build.\n")
    library, why = native_library.load.__wrapped__()
    assert library is None
    assert "python hatch_build.py" in why


@pytest.mark.skipif(not (ROOT / "hatch_build.py").exists(), reason="the build hook is not beside the tests")
def test_a_build_without_a_compiler_says_so():
    pytest.importorskip("hatchling")
    empty = {key: value for key, value in os.environ.items() if key != "CC"} | {"PATH": ""}
    done = subprocess.run(
        [sys.executable, str(ROOT / "hatch_build.py")], capture_output=True, text=True, check=False, env=empty
    )
    assert done.returncode == 1
    assert done.stdout == "not built: no C compiler was found (looked for CC, cc, gcc, clang)\n"
