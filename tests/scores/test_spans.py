"""Span sums without the grid, against the dense reference in float64."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyhot import LazyScores, pairwise_loss, tlpr_loss, two_sided_logsumexp, zlpr_loss
from manyhot.engines.plain_spans import factorised as span_factorised
from manyhot.engines.plain_spans import tiles as span_tiles
from manyhot.labels.spans import SpanLabels
from manyhot.scores.spans import SpanScores

TYPED, SHARED = "typed", "shared"
METHODS = [(TYPED, "tiles"), (SHARED, "tiles"), (SHARED, "factorised")]


def make_parts(form, rows=3, types=4, tokens=9, size=6, *, seed=0, dtype=torch.float64, spread=1.0):
    source = torch.Generator().manual_seed(seed)

    def draw(*shape):
        drawn = torch.randn(*shape, generator=source, dtype=torch.float64) * spread
        return drawn.to(dtype).requires_grad_()

    if form == TYPED:
        return [draw(rows, types, tokens, size) for _ in range(2)]
    return [draw(rows, tokens, size) for _ in range(2)] + [draw(rows, types, tokens) for _ in range(2)]


def reference(scores, labels, loss=zlpr_loss, dim=(-2, -1), **settings):
    return loss(scores.dense(), labels.dense(), where=scores.where(), dim=dim, engine="torch", reduction="none", **settings)


def assert_same(parts, ours, theirs, tolerance):
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    pull = torch.linspace(0.5, 1.5, ours.numel(), dtype=ours.dtype).reshape(ours.shape)
    mine = torch.autograd.grad((ours * pull).sum(), parts, retain_graph=True)
    wanted = torch.autograd.grad((theirs * pull).sum(), parts)
    for own, want in zip(mine, wanted, strict=True):
        assert own.dtype == want.dtype
        torch.testing.assert_close(own, want, rtol=tolerance, atol=tolerance * max(1.0, want.abs().max().item()))


LISTS = [[(0, 0, 0), (0, 0, 3), (0, 2, 3), (3, 4, 8), (1, 8, 8), (2, 0, 8)], [(2, 0, 0)], []]
SOFT = [[0.3, 1.0, 0.0, 0.9, 0.5, 1.0], [0.2], []]
LENGTHS = [9, 1, 0]


def make_labels(values=None, **settings):
    return SpanLabels.from_lists(LISTS, num_types=4, lengths=LENGTHS, values=values, **settings)


def test_span_scores_are_lazy_scores():
    scores = SpanScores(*make_parts(SHARED))
    assert isinstance(scores, LazyScores)
    assert scores.shape == scores.dense().shape == (3, 4, 9, 9)
    assert repr(scores) == "SpanScores([3, 4, 9, 9], shared, head size 6, triangle=True)"


def test_dense_scores_follow_the_formula():
    q, k, u, v = make_parts(SHARED)
    shared = SpanScores(q, k, u, v, scale=0.5).dense()
    assert shared[1, 2, 3, 7].item() == pytest.approx((0.5 * q[1, 3] @ k[1, 7] + u[1, 2, 3] + v[1, 2, 7]).item())
    q, k = make_parts(TYPED)
    assert SpanScores(q, k, scale=0.5).dense()[1, 2, 3, 7].item() == pytest.approx((0.5 * q[1, 2, 3] @ k[1, 2, 7]).item())


def test_cells_count_by_length_and_triangle():
    parts = make_parts(TYPED, tokens=3)
    where = SpanScores(*parts, lengths=[3, 2, 0]).where()
    assert where.shape == (3, 1, 3, 3)
    assert where[1, 0].int().tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]
    assert where.sum(dim=(1, 2, 3)).tolist() == [6, 3, 0]
    assert SpanScores(*parts, lengths=[3, 2, 0], triangle=False).where().sum(dim=(1, 2, 3)).tolist() == [9, 4, 0]


@pytest.mark.parametrize("values", [None, SOFT], ids=["hard", "soft"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("triangle", [True, False])
@pytest.mark.parametrize(("form", "method"), METHODS)
def test_every_method_is_the_dense_reference_in_float64(form, method, triangle, smoothing, values):
    parts = make_parts(form)
    scores = SpanScores(*parts, lengths=LENGTHS, triangle=triangle, scale=0.4, method=method)
    labels = make_labels(values)
    ours = zlpr_loss(scores, labels, smoothing=smoothing, reduction="none")
    assert ours.shape == (3, 4)
    assert_same(parts, ours, reference(scores, labels, smoothing=smoothing), 1e-12)


@pytest.mark.parametrize("dim", [-1, (-2, -1), (-3, -2, -1), (1, 2, 3), (0, 2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize(("form", "method"), METHODS)
def test_types_and_rows_can_be_joined(form, method, dim):
    parts = make_parts(form)
    scores = SpanScores(*parts, lengths=LENGTHS, method=method)
    ours = zlpr_loss(scores, make_labels(), dim=dim, reduction="none")
    grid = (-2, -1) if dim == -1 else dim
    assert_same(parts, ours, reference(scores, make_labels(), dim=grid), 1e-12)


@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_the_types_of_a_cell_are_one_problem_on_request(form):
    parts = make_parts(form)
    scores = SpanScores(*parts, lengths=LENGTHS)
    ours = zlpr_loss(scores, make_labels(), dim=-3, reduction="none")
    assert ours.shape == (3, 9, 9)
    assert ours[2].abs().max() == 0
    assert_same(parts, ours, reference(scores, make_labels(), dim=1), 1e-12)


@pytest.mark.parametrize(("form", "method"), METHODS)
def test_the_default_is_the_mean_over_rows_and_types(form, method):
    scores = SpanScores(*make_parts(form), lengths=LENGTHS, method=method)
    wanted = reference(scores, make_labels()).mean().item()
    assert zlpr_loss(scores, make_labels()).item() == pytest.approx(wanted, abs=1e-13)


@pytest.mark.parametrize(("form", "method"), METHODS)
@pytest.mark.parametrize(
    ("loss", "settings"),
    [(tlpr_loss, {"threshold": -3.0}), (tlpr_loss, {"threshold": 40.0}), (pairwise_loss, {"scale": 2.0, "margin": 0.3})],
)
def test_the_other_losses_of_the_family_take_them_too(form, method, loss, settings):
    parts = make_parts(form)
    scores = SpanScores(*parts, lengths=LENGTHS, method=method)
    ours = loss(scores, make_labels(), reduction="none", **settings)
    assert_same(parts, ours, reference(scores, make_labels(), loss, **settings), 1e-12)


@pytest.mark.parametrize("method", ["auto", "dense"])
@pytest.mark.parametrize("dim", [-1, (-3, -2, -1), -3])
@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_weights_are_numbers_or_one_for_each_type(form, dim, method):
    parts = make_parts(form, spread=3.0)
    scores = SpanScores(*parts, lengths=LENGTHS, method=method)
    weight = torch.tensor([2.0, 1.0, 0.0, 3.0], dtype=torch.float64)
    ours = two_sided_logsumexp(scores, make_labels(SOFT), pos_weight=weight, neg_weight=2.5, dim=dim)
    truth, where = make_labels(SOFT).dense().double(), scores.where()
    x, wide = scores.dense(), weight.reshape(4, 1, 1)
    axes = {-1: (2, 3), -3: (1,), (-3, -2, -1): (1, 2, 3)}[dim]

    def log_sum(x, terms):
        x = torch.where((terms > 0) & where, x, -math.inf) + terms.log().clamp(min=-1e3)
        return torch.logsumexp(x, dim=axes)

    for side, want in zip(ours, (log_sum(-x, truth * wide), log_sum(x, (1 - truth) * 2.5)), strict=True):
        torch.testing.assert_close(side.detach(), want.detach(), rtol=1e-12, atol=1e-12)
    loss = torch.nn.functional.softplus(ours[0]).sum() + torch.nn.functional.softplus(ours[1]).sum()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(loss, parts))


@pytest.mark.parametrize("method", ["auto", "dense"])
@pytest.mark.parametrize("dim", [-1, (-3, -2, -1), -3])
def test_weights_do_not_change_the_type_of_the_loss(dim, method):
    scores = SpanScores(*make_parts(SHARED, dtype=torch.float32), lengths=LENGTHS, method=method)
    for weight in (2.0, torch.ones(4, dtype=torch.float64), torch.ones(4, 1, 1)):
        loss = zlpr_loss(scores, make_labels(), pos_weight=weight, neg_weight=weight, dim=dim)
        assert loss.dtype == torch.float32


def test_a_type_of_weight_zero_pulls_nothing_even_far_above_the_others():
    q, k = make_parts(TYPED)
    with torch.no_grad():
        q[:, 2] *= 400
    scores = SpanScores(q, k, lengths=LENGTHS)
    weight = torch.tensor([1.0, 1.0, 0.0, 1.0])
    loss = zlpr_loss(scores, make_labels(), pos_weight=weight, neg_weight=weight, dim=(-3, -2, -1), smoothing=0.1)
    loss.backward()
    assert loss.isfinite()
    assert q.grad.isfinite().all()
    assert q.grad[:, 2].abs().max() == 0


@pytest.mark.parametrize(("form", "method"), METHODS)
def test_gradients_pass_gradcheck(form, method):
    parts = make_parts(form, rows=2, types=2, tokens=4, size=2)
    labels = SpanLabels.from_lists([[(0, 0, 1), (0, 0, 2), (1, 3, 3)], [(1, 0, 0)]], num_types=2, lengths=[4, 2])

    def sides(*parts):
        scores = SpanScores(*parts, lengths=[4, 2], method=method)
        return two_sided_logsumexp(scores, labels, smoothing=0.1)

    assert torch.autograd.gradcheck(sides, parts)


@pytest.mark.parametrize(("form", "method"), METHODS)
def test_float32_agrees_with_float64(form, method):
    labels = SpanLabels.from_lists(
        [[(0, 3, 5), (9, 0, 139), (4, 70, 70)], [], [(0, 0, 0)], [(5, 12, 90)]], num_types=10, num_tokens=140
    )
    values = []
    for dtype in (torch.float32, torch.float64):
        parts = make_parts(form, rows=4, types=10, tokens=140, size=16, dtype=dtype)
        scores = SpanScores(*parts, lengths=[140, 77, 1, 128], scale=0.25, method=method)
        loss = zlpr_loss(scores, labels)
        assert loss.dtype == dtype
        values.append((loss.double(), *(grad.double() for grad in torch.autograd.grad(loss, parts))))
    for single, double in zip(*values, strict=True):
        torch.testing.assert_close(single, double, rtol=1e-5, atol=1e-5 * double.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("form", "method"), METHODS)
def test_half_precision_is_summed_in_float32_and_gets_half_gradients(form, method, dtype):
    parts = make_parts(form, dtype=dtype)
    loss = zlpr_loss(SpanScores(*parts, lengths=LENGTHS, method=method), make_labels())
    assert loss.dtype == torch.float32
    exact = [part.detach().double().requires_grad_() for part in parts]
    wanted = zlpr_loss(SpanScores(*exact, lengths=LENGTHS, method="dense"), make_labels(), engine="torch")
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-5)
    pairs = zip(torch.autograd.grad(loss, parts), torch.autograd.grad(wanted, exact), strict=True)
    for half, double in pairs:
        assert half.dtype == dtype
        torch.testing.assert_close(half.double(), double, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(("form", "method"), METHODS)
def test_autocast_changes_nothing(form, method):
    parts = make_parts(form, dtype=torch.float32)
    scores = SpanScores(*parts, lengths=LENGTHS, method=method)
    plain = zlpr_loss(scores, make_labels())
    with torch.autocast("cpu", torch.bfloat16):
        cast = zlpr_loss(scores, make_labels())
    assert torch.equal(plain, cast)


@pytest.mark.parametrize("rubbish", [math.nan, math.inf, -math.inf, 1e38])
@pytest.mark.parametrize(("form", "method"), METHODS)
def test_what_stands_in_the_padding_does_not_matter(form, method, rubbish):
    parts = make_parts(form)
    clean = zlpr_loss(SpanScores(*parts, lengths=LENGTHS, method=method), make_labels(), smoothing=0.1)
    wanted = torch.autograd.grad(clean, parts)
    dirty = [part.detach().clone() for part in parts]
    for part in dirty:
        tokens = part.dim() - (2 if part.shape[-1] == 6 else 1)
        for row, length in enumerate(LENGTHS):
            part[row].narrow(tokens - 1, length, 9 - length).fill_(rubbish)
        part.requires_grad_()
    loss = zlpr_loss(SpanScores(*dirty, lengths=LENGTHS, method=method), make_labels(), smoothing=0.1)
    assert torch.equal(loss, clean)
    for own, want in zip(torch.autograd.grad(loss, dirty), wanted, strict=True):
        assert torch.equal(own, want)


@pytest.mark.parametrize(("form", "method"), METHODS)
def test_nothing_that_counts_gives_a_loss_of_zero_and_no_gradient(form, method):
    parts = make_parts(form)
    empty = SpanLabels.from_lists([[], [], []], num_types=4, num_tokens=9)
    loss = zlpr_loss(SpanScores(*parts, lengths=[0, 0, 0], method=method), empty, smoothing=0.1)
    assert loss == 0
    assert all(grad.abs().max() == 0 for grad in torch.autograd.grad(loss, parts))


@pytest.mark.parametrize("sizes", [(0, 4, 9), (3, 4, 0), (3, 0, 9)])
@pytest.mark.parametrize(("form", "method"), METHODS)
def test_no_rows_no_types_or_no_tokens(form, method, sizes):
    rows, types, tokens = sizes
    parts = make_parts(form, rows=rows, types=types, tokens=tokens)
    labels = SpanLabels.from_lists([[]] * rows, num_types=types, num_tokens=tokens)
    loss = zlpr_loss(SpanScores(*parts, method=method), labels)
    assert loss == 0
    assert all(grad.shape == part.shape for grad, part in zip(torch.autograd.grad(loss, parts), parts, strict=True))


@pytest.mark.parametrize(("form", "method"), METHODS)
def test_a_lone_token_that_is_a_span_has_no_negatives(form, method):
    parts = make_parts(form, rows=1, types=1, tokens=1)
    scores = SpanScores(*parts, method=method)
    labels = SpanLabels.from_lists([[(0, 0, 0)]], num_types=1, num_tokens=1)
    pos, neg = two_sided_logsumexp(scores, labels)
    assert pos.item() == pytest.approx(-scores.dense().item())
    assert neg.item() == -math.inf
    assert_same(parts, zlpr_loss(scores, labels, reduction="none"), reference(scores, labels), 1e-12)


@pytest.mark.parametrize(("form", "method"), METHODS)
def test_a_confident_positive_does_not_disturb_the_negatives(form, method):
    parts = make_parts(form, rows=1, types=1, tokens=3, dtype=torch.float32, spread=0.01)
    with torch.no_grad():
        parts[0][..., 0, :], parts[1][..., 2, :] = 6.0, 6.0
    scores = SpanScores(*parts, scale=0.3, method=method)
    labels = SpanLabels.from_lists([[(0, 0, 2)]], num_types=1, num_tokens=3)
    _, neg = two_sided_logsumexp(scores, labels)
    assert scores.dense()[0, 0, 0, 2] > 60
    where = scores.where() & ~labels.dense()
    torch.testing.assert_close(neg, scores.dense().double()[where].logsumexp(0).float().reshape(1, 1), rtol=1e-5, atol=1e-5)


@given(data=st.data())
def test_hostile_problems_agree_with_the_reference(data):
    rows, types, tokens = (data.draw(st.integers(1, top)) for top in (3, 3, 5))
    triangle = data.draw(st.booleans())
    cells = [
        cell for cell in itertools.product(range(types), range(tokens), range(tokens)) if not triangle or cell[1] <= cell[2]
    ]
    lists = [data.draw(st.lists(st.sampled_from(cells), unique=True, max_size=8)) for _ in range(rows)]
    values = None
    if data.draw(st.booleans()):
        values = [[data.draw(st.sampled_from([0.0, 1e-30, 0.4, 1.0])) for _ in row] for row in lists]
    labels = SpanLabels.from_lists(lists, num_types=types, num_tokens=tokens, triangle=triangle, values=values)
    lengths = [data.draw(st.integers(0, tokens)) for _ in range(rows)]
    form, method = data.draw(st.sampled_from(METHODS))
    spread = data.draw(st.sampled_from([1e-3, 1.0, 12.0, 100.0]))
    parts = make_parts(form, rows, types, tokens, 2, seed=data.draw(st.integers(0, 99)), spread=spread)
    scores = SpanScores(*parts, lengths=lengths, triangle=triangle, method=method)
    smoothing = data.draw(st.sampled_from([0.0, 0.2]))
    ours = zlpr_loss(scores, labels, smoothing=smoothing, reduction="none")
    assert_same(parts, ours, reference(scores, labels, smoothing=smoothing), 1e-11)


def test_a_where_of_ones_own_and_dense_labels_go_through_the_dense_tensor():
    parts = make_parts(SHARED)
    scores = SpanScores(*parts, lengths=LENGTHS)
    where = torch.rand(3, 4, 9, 9, generator=torch.Generator().manual_seed(3)) < 0.5
    ours = zlpr_loss(scores, make_labels(), where=where, reduction="none")
    both = zlpr_loss(scores.dense(), make_labels().dense(), where=where & scores.where(), dim=(-2, -1), reduction="none")
    assert_same(parts, ours, both, 1e-13)
    assert torch.equal(zlpr_loss(scores, make_labels().dense()), reference(scores, make_labels()).mean())


def test_narrower_labels_fit_wider_scores():
    scores = SpanScores(*make_parts(TYPED))
    narrow = SpanLabels.from_lists([[(0, 1, 3)], [], []], num_types=4, num_tokens=5)
    wide = SpanLabels.from_lists([[(0, 1, 3)], [], []], num_types=4, num_tokens=9)
    assert torch.equal(zlpr_loss(scores, narrow), zlpr_loss(scores, wide))


@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_scores_times_a_number_are_the_dense_scores_times_it(form):
    scores = SpanScores(*make_parts(form), lengths=LENGTHS, scale=0.3)
    counts = scores.where().expand(scores.shape)
    torch.testing.assert_close((scores * -2.5).dense()[counts], scores.dense()[counts] * -2.5)
    assert (scores * 2).lengths.tolist() == LENGTHS


@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_dense_scores_show_no_cell_that_does_not_count(form):
    parts = [part.detach().abs().requires_grad_() for part in make_parts(form)]
    scores = SpanScores(*parts, lengths=LENGTHS)
    assert torch.equal(scores.dense() > 0, scores.where().expand(scores.shape))
    scores.dense().sigmoid().sum().backward()
    assert all(part.grad.isfinite().all() for part in parts)


def test_a_gradient_of_the_gradient_is_refused():
    parts = make_parts(TYPED)
    loss = zlpr_loss(SpanScores(*parts), SpanLabels.from_lists([[], [], []], num_types=4, num_tokens=9))
    (grad,) = torch.autograd.grad(loss, parts[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize(("form", "method"), METHODS)
def test_no_grid_is_kept_for_backward(form, method):
    parts = make_parts(form, rows=2, types=20, tokens=96, size=4)
    scores = SpanScores(*parts, method=method)
    labels = SpanLabels.from_lists([[(0, 0, 0)], []], num_types=20, num_tokens=96)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda part: kept.append(part.numel()) or part, lambda part: part):
        zlpr_loss(scores, labels)
    assert max(kept) <= max(part.numel() for part in parts)


@pytest.mark.parametrize("module", [span_tiles, span_factorised])
@pytest.mark.parametrize(("rows", "elements"), [(1, 1), (2, 40), (7, 300)])
@pytest.mark.parametrize("triangle", [True, False])
def test_the_size_of_tiles_does_not_matter(monkeypatch, module, rows, elements, triangle):
    monkeypatch.setattr(module, "BLOCK_ROWS", rows)
    monkeypatch.setattr(module, "CPU_ELEMENTS", elements)
    form = TYPED if module is span_tiles else SHARED
    parts = make_parts(form)
    scores = SpanScores(*parts, lengths=[9, 4, 6], triangle=triangle)
    labels = SpanLabels.from_lists(
        [[(0, 0, 0), (0, 0, 3), (3, 4, 8)], [(2, 0, 0), (2, 3, 3)], [(1, 2, 5)]], num_types=4, num_tokens=9
    )
    ours = zlpr_loss(scores, labels, smoothing=0.1, reduction="none")
    assert_same(parts, ours, reference(scores, labels, smoothing=0.1), 1e-12)


@pytest.mark.parametrize("form", [TYPED, SHARED])
def test_tiles_cover_every_cell_that_counts_once(monkeypatch, form):
    monkeypatch.setattr(span_tiles, "BLOCK_ROWS", 2)
    monkeypatch.setattr(span_tiles, "CPU_ELEMENTS", 50)
    scores = SpanScores(*make_parts(form), lengths=[9, 4, 0])
    whole = torch.full(scores.shape, -math.inf, dtype=torch.float64)
    seen = torch.zeros(scores.shape)
    for tile in scores.tiles():
        whole[tile.batch, tile.types, tile.rows, tile.columns] = tile.scores
        seen[tile.batch, tile.types, tile.rows, tile.columns] += 1
    assert seen.max() == 1
    wanted = torch.where(scores.where(), scores.dense(), -math.inf)
    torch.testing.assert_close(whole, wanted.detach())


@pytest.mark.gpu
@pytest.mark.parametrize("values", [None, SOFT], ids=["hard", "soft"])
@pytest.mark.parametrize(("form", "method"), METHODS)
def test_every_method_runs_on_a_gpu(form, method, values):
    parts = [part.detach().cuda().requires_grad_() for part in make_parts(form)]
    scores = SpanScores(*parts, lengths=LENGTHS, scale=0.4, method=method)
    labels = make_labels(values).to("cuda")
    ours = zlpr_loss(scores, labels, smoothing=0.1, dim=(-3, -2, -1), reduction="none")
    theirs = reference(scores, labels, dim=(-3, -2, -1), smoothing=0.1)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for own, want in zip(torch.autograd.grad(ours.sum(), parts), torch.autograd.grad(theirs.sum(), parts), strict=True):
        torch.testing.assert_close(own, want, rtol=1e-11, atol=1e-12)
