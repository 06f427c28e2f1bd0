"""The Triton engine for spans beside float64: in the interpreter everywhere, on the device where there is one."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from manyhot import pairwise_loss, tlpr_loss, two_sided_logsumexp, zlpr_loss
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton.spans import plans as triton_span_plans
from manyhot.engines.triton.spans.workspace import SpanCells
from manyhot.heads.global_pointer import EfficientGlobalPointer, GlobalPointer
from manyhot.labels.spans import SpanLabels
from manyhot.scores.spans import SpanScores

ROOT = Path(__file__).parents[4]
TYPED, SHARED = "typed", "shared"
DEVICE = "cpu" if triton_engine.interpreted() else "cuda"
# The same tests run on a device and, in a process of their own, in the interpreter.
on_device = pytest.mark.slow if triton_engine.interpreted() else pytest.mark.gpu
gpu = pytest.mark.gpu

LENGTHS = [20, 1, 0]
LISTS = [[(0, 0, 0), (0, 0, 3), (0, 0, 18), (0, 2, 17), (1, 4, 8), (1, 19, 19), (2, 0, 8), (2, 17, 19)], [(1, 0, 0)], []]
SOFT = [[0.3, 1.0, 0.0, 0.9, 0.5, 1.0, 0.7, 1.0], [0.2], []]


@pytest.mark.slow
@pytest.mark.skipif(triton_engine.interpreted(), reason="this is the interpreter")
def test_everything_holds_in_the_interpreter():
    pytest.importorskip("triton", reason="triton is not installed")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning", "-m", "not gpu"]
    done = subprocess.run([*command, __file__], capture_output=True, text=True, env=environment, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "[100%]" in done.stdout


@pytest.fixture(autouse=True)
def _small_tiles_in_the_interpreter(monkeypatch):
    """So that small grids have several tiles and several blocks of types."""
    if triton_engine.interpreted():
        for name in ("TYPED_SUMS", "TYPED_PULLS"):
            monkeypatch.setattr(triton_span_plans, name, ((16, 16), (16, 16)))
        monkeypatch.setattr(triton_span_plans, "SHARED", 16)
        monkeypatch.setattr(triton_span_plans, "TYPES", 16)


def make_parts(form, rows=3, types=3, tokens=20, size=6, *, seed=0, dtype=torch.float32, spread=1.0):
    source = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return (torch.randn(*shape, generator=source) * spread).to(DEVICE, dtype).requires_grad_()

    if form == TYPED:
        return [draw(rows, types, tokens, size) for _ in range(2)]
    return [draw(rows, tokens, size) for _ in range(2)] + [draw(rows, types, tokens) for _ in range(2)]


def random_labels(rows, types, tokens, spans, *, lengths=None, seed=1):
    source = torch.Generator().manual_seed(seed)
    lists = []
    for row in range(rows):
        limit = tokens if lengths is None else lengths[row]
        ends = torch.randint(limit, (spans, 2), generator=source).sort(dim=1).values
        kinds = torch.randint(types, (spans, 1), generator=source)
        lists.append(sorted({tuple(span) for span in torch.cat([kinds, ends], dim=1).tolist()}))
    return SpanLabels.from_lists(lists, num_types=types, num_tokens=tokens).to(DEVICE)


def assert_exact(parts, labels, tolerance=1e-5, *, loss=zlpr_loss, loss_scale=256.0, settings=None, **kwargs):
    """Loss and gradients beside float64, each by its norm."""
    settings = settings or {}
    ours = loss(SpanScores(*parts, **kwargs), labels, reduction="none", engine="triton", **settings)
    exact = [part.detach().cpu().double().requires_grad_() for part in parts]
    settings = {name: value.cpu() if isinstance(value, torch.Tensor) else value for name, value in settings.items()}
    wanted = loss(SpanScores(*exact, **kwargs), labels.to("cpu"), reduction="none", engine="torch", **settings)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.cpu().double(), wanted, rtol=1e-5, atol=1e-5)
    pull = torch.linspace(0.5, 1.5, ours.numel()).reshape(ours.shape) * loss_scale
    got = torch.autograd.grad((ours * pull.to(DEVICE)).sum(), parts)
    want = torch.autograd.grad((wanted * pull).sum(), exact)
    for own, other, part in zip(got, want, parts, strict=True):
        assert own.dtype == part.dtype
        assert own.shape == part.shape
        error = (own.cpu().double() - other).norm().item()
        assert error <= tolerance * max(other.norm().item(), 1e-6 * loss_scale), (error, other.norm().item())


CASES = [(True, 0.0, None), (False, 0.1, SOFT)]
if not triton_engine.interpreted():
    CASES += [(True, 0.0, SOFT), (True, 0.1, None), (True, 1.0, SOFT), (False, 0.0, None)]


@on_device
@pytest.mark.parametrize(("triangle", "smoothing", "values"), CASES)
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_small_grids_agree_with_float64(form, triangle, smoothing, values):
    labels = SpanLabels.from_lists(LISTS, num_types=3, lengths=LENGTHS, values=values).to(DEVICE)
    kwargs = {"lengths": LENGTHS, "triangle": triangle, "scale": 0.4}
    assert_exact(make_parts(form), labels, settings={"smoothing": smoothing}, **kwargs)


@on_device
def test_blocks_of_types_come_together():
    types = 18 if triton_engine.interpreted() else 150
    assert_exact(make_parts(SHARED, 1, types, 17), random_labels(1, types, 17, 6))


def adversarial(size, dtype=torch.float32):
    """Every cell scores 0; where S is high v is low, and the products of the first four rows all underflow."""
    side = torch.tensor([1.0] * 4 + [-1.0] * 4) * size
    q, k = torch.ones(1, 8, 1), side.reshape(1, 8, 1)
    u, v = torch.zeros(1, 1, 8), -side.reshape(1, 1, 8)
    return [part.to(DEVICE, dtype).requires_grad_() for part in (q, k, u, v)]


def none_listed(types=1, tokens=8, rows=1):
    return SpanLabels.from_lists([[]] * rows, num_types=types, num_tokens=tokens).to(DEVICE)


@on_device
@pytest.mark.parametrize("size", [60.0, 1000.0])
def test_the_adversarial_case_is_exact(size):
    loss = zlpr_loss(SpanScores(*adversarial(size)), none_listed(), engine="triton")
    assert loss.item() == pytest.approx(math.log(37), abs=2e-6)
    assert round(loss.item(), 3) == 3.611


@on_device
def test_without_the_guard_the_adversarial_case_is_wrong(monkeypatch):
    monkeypatch.setattr(triton_span_plans, "DOUBT", -1.0)
    monkeypatch.setattr(triton_span_plans, "_PLANS", {})  # a loss of this layout that was replayed has its guard
    loss = zlpr_loss(SpanScores(*adversarial(60.0)), none_listed(), engine="triton")
    assert loss.item() == pytest.approx(math.log(11), abs=2e-6)
    assert round(loss.item(), 3) == 2.398


@on_device
@pytest.mark.parametrize("values", [None, [[0.25, 0.5, 1.0]]], ids=["hard", "soft"])
def test_gradients_of_the_adversarial_case_are_exact(values):
    labels = SpanLabels.from_lists([[(0, 0, 0), (0, 0, 5), (0, 6, 6)]], num_types=1, num_tokens=8, values=values).to(DEVICE)
    assert_exact(adversarial(60.0), labels, settings={"smoothing": 0.1})


@on_device
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_one_token_and_nothing_listed(form):
    labels = none_listed(types=3, tokens=1, rows=2)
    parts = make_parts(form, 2, 3, 1)
    assert_exact(parts, labels)


@on_device
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_excluded_cells_leave_sums_and_get_no_gradient_whatever_stands_there(form):
    parts = make_parts(form, 2, 2, 5, 3)
    with torch.no_grad():
        for part in parts:
            if part.shape[-1] == 5:
                part[0, :, 3:], part[1] = math.nan, math.inf
            else:
                part[0, ..., 3:, :], part[1] = math.nan, math.inf
    labels = SpanLabels.from_lists([[(0, 1, 2), (1, 3, 4)], [(1, 0, 0)]], num_types=2, num_tokens=5).to(DEVICE)
    loss = zlpr_loss(SpanScores(*parts, lengths=[3, 0]), labels, reduction="none", engine="triton")
    assert loss[0].isfinite().all()
    assert loss[1].tolist() == [0.0, 0.0]
    for part, grad in zip(parts, torch.autograd.grad(loss.sum(), parts), strict=True):
        tokens = grad[0, :, 3:] if part.shape[-1] == 5 else grad[0, ..., 3:, :]
        assert tokens.abs().max() == 0
        assert grad[1].abs().max() == 0
        assert grad.isfinite().all()


@on_device
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_a_grid_full_of_spans_has_no_negatives(form):
    every = [(0, first, last) for first in range(3) for last in range(first, 3)]
    labels = SpanLabels.from_lists([every], num_types=1, num_tokens=3).to(DEVICE)
    parts = make_parts(form, 1, 1, 3, 2)
    neg = two_sided_logsumexp(SpanScores(*parts), labels, engine="triton")[1]
    assert neg.item() == -math.inf
    assert_exact(parts, labels)


@on_device
def test_a_confident_span_hides_no_negative_of_its_own_row():
    q, k = torch.ones(1, 2, 1), torch.tensor([[[-30.0], [30.0]]])
    parts = [part.to(DEVICE) for part in (q, k, torch.zeros(1, 1, 2), torch.zeros(1, 1, 2))]
    labels = SpanLabels.from_lists([[(0, 0, 1), (0, 1, 1)]], num_types=1, num_tokens=2).to(DEVICE)
    neg = two_sided_logsumexp(SpanScores(*parts), labels, engine="triton")[1]
    assert neg.item() == pytest.approx(-30.0, abs=1e-5)


@on_device
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_scores_far_from_zero_keep_their_shares(form):
    parts = make_parts(form, 1, 2, 18, 3)
    with torch.no_grad():
        parts[0][..., 0], parts[1][..., 0] = 1e6, 1.0
    loss = two_sided_logsumexp(SpanScores(*parts), random_labels(1, 2, 18, 3), engine="triton")[1]
    grad = torch.autograd.grad(loss.sum(), parts)[0]
    # k's first feature is 1 throughout, so q's gradient there adds up the shares of all cells: one for each type.
    assert grad[..., 0].sum().item() == pytest.approx(2, abs=1e-4)


@on_device
@pytest.mark.parametrize(("threshold", "smoothing", "values"), [(0.0, 0.0, None), (-1.5, 0.1, SOFT)])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_a_loss_in_one_go_is_that_of_its_sides(form, reduction, threshold, smoothing, values):
    labels = SpanLabels.from_lists(LISTS, num_types=3, lengths=LENGTHS, values=values).to(DEVICE)
    parts = make_parts(form)
    scores = SpanScores(*parts, lengths=LENGTHS, scale=0.4)
    kwargs = {"smoothing": smoothing, "reduction": reduction, "engine": "triton"}
    loss = scores.side_loss("zlpr_loss", "split", labels, threshold, **kwargs)
    pos, neg = two_sided_logsumexp(scores, labels, smoothing=smoothing, engine="triton")
    values = torch.nn.functional.softplus(pos + threshold) + torch.nn.functional.softplus(neg - threshold)
    wanted = getattr(values, reduction)()
    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-6)
    want = torch.autograd.grad(wanted * 3, parts)
    # Twice, for what is remembered must outlive a backward pass whose graph is kept.
    for _ in range(2):
        got = torch.autograd.grad(loss * 3, parts, retain_graph=True)
        for own, other in zip(got, want, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


@on_device
def test_small_losses_keep_their_digits():
    q = torch.tensor([[[[9.0], [9.0]]]], device=DEVICE)
    labels = SpanLabels.from_lists([[]], num_types=1, num_tokens=2).to(DEVICE)
    scores = SpanScores(q, -q, scale=0.25)
    loss = scores.side_loss("zlpr_loss", "split", labels, 0.0, engine="triton")
    assert loss.item() == pytest.approx(math.log1p(3 * math.exp(-20.25)), rel=1e-5)


@gpu
@pytest.mark.parametrize("form", [TYPED, SHARED])
@pytest.mark.parametrize("dim", [-1, (-3, -2, -1), (0, 2, 3), (0, 1, 2, 3)])
def test_types_and_rows_can_be_joined_and_weighed(form, dim):
    labels = SpanLabels.from_lists(LISTS, num_types=3, lengths=LENGTHS).to(DEVICE)
    weights = {"pos_weight": torch.tensor([1.0, 2.0, 0.5], device=DEVICE), "neg_weight": 0.25}
    assert_exact(make_parts(form), labels, lengths=LENGTHS, settings={"dim": dim, **weights})


@gpu
@pytest.mark.parametrize("form", [TYPED, SHARED])
@pytest.mark.parametrize(("loss", "settings"), [(tlpr_loss, {"threshold": -3.0}), (pairwise_loss, {})])
def test_other_losses_of_the_family_are_served(form, loss, settings):
    labels = SpanLabels.from_lists(LISTS, num_types=3, lengths=LENGTHS).to(DEVICE)
    assert_exact(make_parts(form), labels, lengths=LENGTHS, loss=loss, settings=settings)


# Beside the rounding of the output, half types round the pulls once before a matrix product.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 4e-3, torch.float16: 1e-3}


@gpu
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("rows", "types", "tokens"), [(4, 10, 128), (3, 64, 512), (2, 70, 200), (1, 3, 2048)])
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_large_grids_agree_with_float64(form, rows, types, tokens, dtype):
    parts = make_parts(form, rows, types, tokens, 64, dtype=dtype)
    lengths = [tokens, tokens - 37, tokens // 2, 5][:rows]
    labels = random_labels(rows, types, tokens, 40, lengths=lengths)
    assert_exact(parts, labels, TOLERANCE[dtype], lengths=lengths, scale=0.125)


@gpu
@pytest.mark.parametrize("spread", [4.0, 12.0])
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_wide_scores_agree_with_float64(form, spread):
    parts = make_parts(form, 2, 20, 150, 24, spread=spread)
    assert_exact(parts, random_labels(2, 20, 150, 300), 3e-5)


@gpu
@pytest.mark.parametrize("size", [1, 40, 128])
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_every_head_size_is_served(form, size):
    assert_exact(make_parts(form, 2, 5, 100, size), random_labels(2, 5, 100, 9), 1e-5)


@gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_half_types_are_nearly_as_exact_as_the_plain_engine(form, dtype):
    parts = make_parts(form, 2, 8, 256, 64, dtype=dtype)
    labels = random_labels(2, 8, 256, 12)
    exact = [part.detach().cpu().double().requires_grad_() for part in parts]
    want = torch.autograd.grad(zlpr_loss(SpanScores(*exact, scale=0.125), labels.to("cpu")) * 4096, exact)
    errors = []
    for engine in ("triton", "torch"):
        got = torch.autograd.grad(zlpr_loss(SpanScores(*parts, scale=0.125), labels, engine=engine) * 4096, parts)
        errors.append([(own.cpu().double() - other).norm() / other.norm() for own, other in zip(got, want, strict=True)])
    assert all(ours <= 3 * plain for ours, plain in zip(*errors, strict=True))


@gpu
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_results_are_the_same_bit_by_bit_every_time(form):
    parts = make_parts(form, 4, 30, 300, 64, dtype=torch.bfloat16)
    labels = random_labels(4, 30, 300, 50)
    first = None
    for _ in range(10):
        loss = zlpr_loss(SpanScores(*parts, scale=0.125), labels)
        found = (loss.detach(), *torch.autograd.grad(loss, parts))
        first = found if first is None else first
        assert all(torch.equal(one, two) for one, two in zip(first, found, strict=True))


@gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_nothing_waits_for_the_device_and_a_graph_can_be_captured(form):
    parts = make_parts(form, 2, 4, 70, 32)
    labels = random_labels(2, 4, 70, 5)
    lengths = torch.tensor([70, 33], device="cuda")

    def step():
        return torch.autograd.grad(zlpr_loss(SpanScores(*parts, lengths=lengths), labels), parts)

    step()
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        wanted = step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    assert all(torch.equal(one, two) for one, two in zip(captured, wanted, strict=True))


@gpu
@pytest.mark.parametrize("head", [GlobalPointer, EfficientGlobalPointer])
@pytest.mark.parametrize("triangle", [True, False])
def test_heads_train_under_autocast_in_their_own_layout(head, triangle):
    torch.manual_seed(0)
    module = head(48, num_types=6, head_size=32, triangle=triangle).cuda()
    hidden = torch.randn(3, 90, 48, device="cuda", requires_grad=True)
    labels = random_labels(3, 6, 90, 7, lengths=[90, 50, 3])
    grads = []
    for engine in ("triton", "torch"):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = zlpr_loss(module(hidden, [90, 50, 3]), labels, engine=engine)
        assert loss.dtype == torch.float32
        grads.append((loss, *torch.autograd.grad(loss, (hidden, *module.parameters()))))
    for ours, plain in zip(*grads, strict=True):
        assert (ours - plain).norm() <= 2e-2 * plain.norm()


@gpu
def test_memory_is_that_of_the_gradients():
    parts = make_parts(TYPED, 2, 16, 2048, 64, dtype=torch.bfloat16)
    labels = random_labels(2, 16, 2048, 8)
    own = sum(part.nbytes for part in parts)
    torch.autograd.grad(zlpr_loss(SpanScores(*parts), labels), parts)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    torch.autograd.grad(zlpr_loss(SpanScores(*parts), labels), parts)
    assert torch.cuda.max_memory_allocated() - before < 1.2 * own


@gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_a_compiled_step_gives_the_same(form):
    torch._dynamo.reset()
    parts = make_parts(form, 2, 4, 40, 16)
    labels = random_labels(2, 4, 40, 5)

    def step(*parts):
        return zlpr_loss(SpanScores(*(part * 1.5 for part in parts)), labels) * 2

    wanted = torch.autograd.grad(step(*parts), parts)
    got = torch.autograd.grad(torch.compile(step)(*parts), parts)
    for own, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


@gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_the_sides_compile_into_a_whole_graph(form):
    torch._dynamo.reset()
    parts = make_parts(form, 2, 4, 40, 16)
    labels = random_labels(2, 4, 40, 5)

    def step(*parts):
        pos, neg = SpanScores(*(part * 1.5 for part in parts)).two_sided_logsumexp(labels, smoothing=0.1)
        return (2 * pos + neg).sum()

    wanted = torch.autograd.grad(step(*parts), parts)
    got = torch.autograd.grad(torch.compile(step, fullgraph=True)(*parts), parts)
    for own, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


@gpu
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_operators_pass_opcheck(form):
    parts = make_parts(form, 2, 4, 40, 16)
    labels = random_labels(2, 4, 40, 5)
    q, k, u, v = [part.detach() for part in parts] + [None] * (4 - len(parts))
    lengths = torch.tensor([40, 7], device="cuda")
    arguments = (q, k, u, v, 0.25, lengths, True, labels.cells.indices, labels.cells.offsets, None, 0.0)
    torch.library.opcheck(torch.ops.manyhot.span_sides, arguments)


def test_what_cannot_be_served_says_why():
    parts = [part.double() for part in make_parts(TYPED, 1, 1, 3, 2)] if DEVICE == "cpu" or torch.cuda.is_available() else [
        torch.zeros(1, 1, 3, 2, dtype=torch.float64) for _ in range(2)
    ]  # fmt: skip
    labels = SpanLabels.from_lists([[]], num_types=1, num_tokens=3).to(parts[0].device)
    with pytest.raises(ValueError, match=r"zlpr_loss: engine 'triton' cannot serve these scores: .* Use engine='auto'\."):
        zlpr_loss(SpanScores(*parts), labels, engine="triton")


@on_device
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_repeated_losses_agree_with_float64(form):
    """The reduced loss of further calls of one layout, whatever is listed: the first is launched as a whole, the others are
    replayed."""
    settings = [(spans, reduction) for reduction in ("mean", "sum") for spans in (3, 3, 0, 9, 0, 1, 40)]
    if triton_engine.interpreted():
        settings = [(3, "mean")]  # nothing is replayed there
    for seed, (spans, reduction) in enumerate(settings):
        parts = make_parts(form, seed=seed)
        labels = random_labels(3, 3, 20, spans, lengths=[20, 13, 1], seed=seed)
        kwargs = {"lengths": [20, 13, 1], "scale": 0.4}
        exact = [part.detach().cpu().double().requires_grad_() for part in parts]
        ours = zlpr_loss(SpanScores(*parts, **kwargs), labels, reduction=reduction, engine="triton")
        wanted = zlpr_loss(SpanScores(*exact, **kwargs), labels.to("cpu"), reduction=reduction, engine="torch")
        torch.testing.assert_close(ours.cpu().double(), wanted, rtol=1e-5, atol=1e-5)
        factor = 1.0 + seed
        got = torch.autograd.grad(factor * ours, parts, retain_graph=True)
        again = torch.autograd.grad(factor * ours, parts)
        for own, twice, other in zip(got, again, torch.autograd.grad(factor * wanted, exact), strict=True):
            assert torch.equal(own, twice)
            assert (own.cpu().double() - other).norm().item() <= 1e-5 * max(other.norm().item(), 1e-3)
    if not triton_engine.interpreted():
        plan, _ = triton_span_plans.planned(SpanScores(*parts, **kwargs)._parts(), _cells_of(parts, labels, kwargs))
        assert None not in plan.losses.values()
        assert len(plan.losses) == 4
        assert set(plan.gradients) == {False, True}
        assert None not in plan.gradients.values()


def _cells_of(parts, labels, kwargs):
    from manyhot.engines.span_registry import _listed_cells

    scores = SpanScores(*parts, **kwargs)
    return _listed_cells(scores.lengths, scores.triangle, labels, 0.0)


# Types, tokens and head sizes that meet every tile the plans can choose: half of what is held and all of it, every width of
# heads, and of shared heads every width of types.
TILED = [(TYPED, 5, tokens, size) for size in (16, 32, 64, 128) for tokens in (20, 40, 100)]
TILED += [(SHARED, types, 40, size) for size in (16, 32, 64, 128) for types in (5, 20, 40, 70)]


@pytest.mark.slow
@gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("form", "types", "tokens", "size"), TILED)
def test_every_tile_that_can_be_chosen_agrees_with_float64(form, types, tokens, size, dtype):
    parts = make_parts(form, 2, types, tokens, size, dtype=dtype, spread=0.3)
    assert_exact(parts, random_labels(2, types, tokens, 6), TOLERANCE[dtype])


def tile_of(form, types, tokens, size, dtype):
    """All that the tiles of a layout are made of."""
    parts = [torch.empty(1, dtype=dtype).expand(*shape) for shape in shapes_of(form, types, tokens, size)]
    none = torch.zeros(0, dtype=torch.int64)
    plan = triton_span_plans.SpanPlan(SpanScores(*parts)._parts(), SpanCells(torch.zeros(1), True, none, none))
    pulls = plan._cut(triton_span_plans.TYPED_PULLS)
    return form, dtype, plan.width, plan.held, plan.step, pulls, plan.type_width, plan.type_blocks > 1


def shapes_of(form, types, tokens, size):
    return [(1, types, tokens, size)] * 2 if form == TYPED else [(1, tokens, size)] * 2 + [(1, types, tokens)] * 2


def test_the_layouts_that_are_tried_meet_every_tile():
    types = {torch.float32, torch.bfloat16}
    tried = {tile_of(*layout, dtype) for layout in TILED for dtype in types}
    sizes, tokens = (1, 6, 16, 17, 32, 33, 64, 65, 100, 128), (1, 16, 17, 32, 33, 64, 65, 128, 129, 600)
    possible = {
        tile_of(TYPED, kinds, count, size, dtype) for kinds in (1, 9) for count in tokens for size in sizes for dtype in types
    }
    typed = {each for each in tried if each[0] == TYPED}
    assert {each[:-2] for each in possible} == {each[:-2] for each in typed}
    every = (1, 15, 16, 17, 32, 33, 63, 64, 65, 200)
    possible = {
        tile_of(SHARED, kinds, count, size, dtype) for kinds in every for count in (7, 600) for size in sizes for dtype in types
    }
    # How many tokens are pulled at once is a matter of the other form.
    shared = {each[:5] + each[6:] for each in tried if each[0] == SHARED}
    assert {each[:5] + each[6:] for each in possible} == shared


def test_no_tile_is_chosen_that_was_wrong_on_a_device():
    """Tiles of 64 with 8 warps in the kernel of shared heads; see ``plans.SHARED``. A change of a tile belongs into TILED."""
    plans = triton_span_plans
    if not triton_engine.interpreted():
        assert (plans.SHARED, plans.SHARED_WARPS) == (32, 4)
        assert {*plans.TYPED_SUMS, *plans.TYPED_PULLS} == {(128, 64), (64, 64), (64, 32)}
    assert [plans._warps(held) for held in (16, 32, 64, 128)] == [4, 4, 4, 8]
