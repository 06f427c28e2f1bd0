"""LinearScores through its engines: by name, compiled, captured, under autocast, and when one of them fails."""

import pytest
import torch

from manyhot import LinearScores, SparseLabels, pairwise_loss, tlpr_loss, two_way_loss, zlpr_loss
from manyhot.engines import registry, totals
from manyhot.engines.linear import plain
from manyhot.engines.native import linear as native_linear
from manyhot.engines.terms import in_one_part
from manyhot.engines.triton.launch.gate import LaunchError
from manyhot.engines.triton.linear import engine as triton_linear
from manyhot.losses.core.forms import FORMS
from manyhot.scores.linear_checks import kept_labels

needs_native = pytest.mark.skipif(not native_linear.available()[0], reason="the native engine is not built")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LOSSES = {
    "zlpr": zlpr_loss,
    "tlpr": lambda scores, labels, **settings: tlpr_loss(scores, labels, 0.7, **settings),
    "pairwise": lambda scores, labels, **settings: pairwise_loss(scores, labels, scale=2.0, margin=0.1, **settings),
    "two-way": lambda scores, labels, **settings: two_way_loss(scores, labels, batch_weight=0.0, **settings),
}


@pytest.fixture(autouse=True)
def _no_engine_has_failed(monkeypatch):
    for entry in registry.ENTRIES:
        monkeypatch.setattr(entry.gate, "failure", "")
        monkeypatch.setattr(entry.gate, "warned", False)


def problem(device="cpu", dtype=torch.float32, rows=6, num_labels=5000, size=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(*shape, generator=generator) for shape in ((rows, size), (num_labels, size))]
    bias = torch.randn(num_labels, generator=generator) - 8
    lists = [torch.randperm(num_labels, generator=generator)[:4].tolist() for _ in range(rows - 1)] + [[]]
    labels = SparseLabels.from_lists(lists, num_labels=num_labels).to(device)
    return [part.to(device, dtype).requires_grad_() for part in parts] + [bias.to(device).requires_grad_()], labels


def gradients(loss, parts):
    return torch.autograd.grad(loss, parts)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("budget", [None, 0, 60_000])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_every_loss_is_that_of_the_dense_tensor_by_the_fast_engine(device, name, budget, reduction):
    parts, labels = problem(device)
    weight = torch.rand(6, device=device)
    settings = {"reduction": reduction, "sample_weight": weight}
    lazy = LOSSES[name](LinearScores(*parts, chunk_size=2048, memory_budget=budget), labels, **settings)
    dense = LOSSES[name](LinearScores(*(part.double() for part in parts)).dense(), labels, **settings)
    torch.testing.assert_close(lazy.double(), dense, rtol=1e-4, atol=1e-5)
    for got, wanted in zip(gradients(lazy.sum(), parts), gradients(dense.sum(), parts), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_a_learned_threshold_gets_its_gradient(device):
    parts, labels = problem(device)
    for shape in ((), (6,)):
        threshold = torch.full(shape, 0.3, device=device, requires_grad=True)
        lazy = tlpr_loss(LinearScores(*parts, chunk_size=2048), labels, threshold)
        dense = tlpr_loss(LinearScores(*parts).dense(), labels, threshold)
        torch.testing.assert_close(*(gradients(loss, threshold)[0] for loss in (lazy, dense)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_backward_can_be_taken_twice_through_kept_scores(device):
    parts, labels = problem(device)
    loss = zlpr_loss(LinearScores(*parts, chunk_size=2048), labels)
    first = torch.autograd.grad(loss, parts, retain_graph=True)
    for one, two in zip(first, torch.autograd.grad(loss, parts), strict=True):
        assert torch.equal(one, two)


@needs_native
def test_an_engine_can_be_asked_for_by_name():
    parts, labels = problem()
    values = {name: zlpr_loss(LinearScores(*parts), labels, engine=name) for name in ("torch", "native", "auto")}
    assert torch.equal(values["native"], values["auto"])
    torch.testing.assert_close(values["torch"], values["auto"])
    with pytest.raises(ValueError, match=r"engine 'native' cannot serve LinearScores: it cannot serve torch\.float64"):
        zlpr_loss(LinearScores(*(part.double() for part in parts)), labels, engine="native")


def test_types_that_differ_are_named_outside_of_autocast():
    parts, labels = problem()
    with pytest.raises(TypeError, match=r"must have one type outside of autocast; got torch.bfloat16 and torch.float32"):
        zlpr_loss(LinearScores(parts[0].bfloat16(), *parts[1:]), labels)


@needs_native
@pytest.mark.parametrize("step", ["sums", "gradient"])
def test_an_engine_that_fails_is_replaced_with_one_warning(monkeypatch, step):
    def fails(*_):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(native_linear, step, fails)
    parts, labels = problem()
    wanted = zlpr_loss(LinearScores(*parts), labels, engine="torch")
    with pytest.warns(RuntimeWarning, match="the native engine is off, and CPU scores .* RuntimeError: no such instruction"):
        made = gradients(zlpr_loss(LinearScores(*parts), labels), parts)
    torch.testing.assert_close(made, gradients(wanted, parts))
    zlpr_loss(LinearScores(*parts), labels).backward()  # no second warning, which would be an error here
    if step == "sums":
        with pytest.raises(ValueError, match="cannot serve LinearScores: RuntimeError: no such instruction"):
            zlpr_loss(LinearScores(*parts), labels, engine="native")


def fails(*_):
    raise LaunchError("no such kernel")


def losses_in_torch(problem, form, offset, scale):
    """What an engine with ``losses`` gives, and its total."""
    pos, neg, memory = plain.sums(problem)
    return FORMS[form](in_one_part(pos), in_one_part(neg), offset), None, memory


@needs_native
@pytest.mark.parametrize("name", ["zlpr", "tlpr", "pairwise"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("step", ["forward", "backward"])
@pytest.mark.parametrize("device", DEVICES)
def test_an_engine_that_fails_in_a_whole_loss_is_replaced_with_one_warning(monkeypatch, device, step, reduction, name):
    engine = triton_linear if device == "cuda" else native_linear
    monkeypatch.setattr(engine, "losses", fails if step == "forward" else losses_in_torch, raising=False)
    monkeypatch.setattr(engine, "total", totals.total, raising=False)
    monkeypatch.setattr(engine, "sums" if step == "forward" else "gradient", fails)
    parts, labels = problem(device)

    def made(which):
        loss = LOSSES[name](LinearScores(*parts), labels, engine=which, reduction=reduction).sum()
        return loss, *gradients(loss, parts)

    wanted = made("torch")
    with pytest.warns(RuntimeWarning, match="engine is off, .* LaunchError: no such kernel") as heard:
        found = made("auto")
    assert len(heard) == 1
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    made("auto")  # a second warning would be an error here


@needs_native
def test_a_whole_loss_that_fails_by_name_raises(monkeypatch):
    monkeypatch.setattr(native_linear, "losses", fails, raising=False)
    parts, labels = problem()
    with pytest.raises(LaunchError):
        zlpr_loss(LinearScores(*parts), labels, engine="native")


@needs_native
def test_memory_that_is_missing_is_not_hidden_by_a_fallback(monkeypatch):
    def fails(*_):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(native_linear, "sums", fails)
    parts, labels = problem()
    with pytest.raises(torch.OutOfMemoryError):
        zlpr_loss(LinearScores(*parts), labels)


def test_the_budget_says_how_many_scores_are_kept():
    (hidden, weight, _), _ = problem()
    for budget, kept in ((0, 0), (6 * 4 * 2048, 2048), (6 * 4 * 2048 - 1, 0), (6 * 4 * 4999, 4096), (6 * 4 * 5000, 5000)):
        assert kept_labels(native_linear, hidden, weight, budget, 2048) == kept
    assert kept_labels(native_linear, hidden, weight, None, 2048) == 5000
    assert kept_labels(plain, hidden, weight, None, 2048) == 0


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("budget", [None, 0])
def test_one_compiled_graph_gives_the_same_loss_and_gradients(device, budget):
    parts, labels = problem(device)

    def loss(hidden, weight, bias, indices, offsets):
        lists = SparseLabels(indices, offsets, 5000, validate=False)
        return zlpr_loss(LinearScores(hidden, weight, bias, chunk_size=2048, memory_budget=budget), lists)

    inputs = (*parts, labels.indices, labels.offsets)
    made = torch.compile(loss, fullgraph=True, backend="aot_eager")(*inputs)
    wanted = loss(*inputs)
    torch.testing.assert_close(made, wanted)
    torch.testing.assert_close(gradients(made, parts), gradients(wanted, parts), rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("budget", [None, 0])
def test_a_captured_graph_gives_the_loss_of_new_inputs(budget):
    parts, labels = problem("cuda", torch.bfloat16)

    def step():
        loss = zlpr_loss(LinearScores(*parts, chunk_size=2048, memory_budget=budget), labels)
        # A loss that is kept would keep the nodes of its stream alive.
        return (loss.detach(), *torch.autograd.grad(loss, parts))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = step()
    with torch.no_grad():
        parts[0].copy_(torch.randn_like(parts[0]))
    graph.replay()
    torch.cuda.synchronize()
    for got, wanted in zip(made, step(), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.gpu
def test_autocast_on_cuda_multiplies_in_its_type():
    parts, labels = problem("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = zlpr_loss(LinearScores(*parts, chunk_size=2048), labels)
    wanted = zlpr_loss(LinearScores(*parts).dense(), labels)
    torch.testing.assert_close(loss, wanted, rtol=2e-2, atol=2e-2)
    for got, right in zip(gradients(loss, parts), gradients(wanted, parts), strict=True):
        assert got.dtype == right.dtype
        assert (got - right).abs().max() <= 2e-2 * right.abs().max()


@pytest.mark.parametrize("device", DEVICES)
def test_the_best_labels_are_found_chunk_by_chunk(device):
    parts, _ = problem(device)
    dense = LinearScores(*parts).dense()
    top = LinearScores(*parts, chunk_size=700).top(9)
    assert torch.equal(top.indices, dense.topk(9).indices)
    torch.testing.assert_close(top.values, dense.topk(9).values)
    where = torch.zeros(5000, dtype=torch.bool, device=device)
    where[[4, 4000, 4999]] = True
    top = LinearScores(*parts, chunk_size=700).top(5, where=where)
    assert set(top.indices[0, :3].tolist()) == {4, 4000, 4999}
    assert (top.indices[:, 3:] == -1).all()
    assert (top.values[:, 3:] == -torch.inf).all()
    assert LinearScores(parts[0], parts[1][:3]).top(5).indices.shape == (6, 3)
