"""Compiled losses finish their gradients in place: Inductor's code for backward has no kernel that copies them."""

import contextlib
import sys
import types

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import SparseLabels, bce_loss, rdrop_loss, zlpr_loss
from manyhot.engines import in_place, ops
from manyhot.engines.terms import DenseTerms

# torch.compile sets off deprecation warnings of torch's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*torch.jit.*:FutureWarning")
on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.slow])])
FACTORS = (1.0, 3.0, 0.5)

HALF = """
import sys
sys.path.insert(0, sys.argv[1])
from engines.test_in_place import check_half
check_half("cpu", "triton")
print("checked")
"""


def problem(device, dtype=torch.float32, rows=24, num_labels=50):
    source = torch.Generator().manual_seed(0)
    x = torch.randn(rows, num_labels, generator=source).to(device, dtype).requires_grad_()
    return x, (torch.rand(rows, num_labels, generator=source) < 0.1).to(device)


def compiled(function, **settings):
    """A function compiled anew."""
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, **settings)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    """What torch keeps on disk is not shared between tests."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


def with_code(step):
    """What a step gives, and the code that Inductor wrote for it."""
    from torch._inductor.utils import run_and_get_code

    return run_and_get_code(step)


def of_lists(x, indices, offsets):
    return zlpr_loss(x, SparseLabels(indices, offsets, x.shape[1], validate=False))


LOSSES = {
    "zlpr": lambda x, y: zlpr_loss(x, y),
    "bce": lambda x, y: bce_loss(x, y),
    "rdrop": lambda x, y: rdrop_loss(x, x.detach() * 0.5, y),
}


@on_each_device
@pytest.mark.parametrize("name", LOSSES)
def test_backward_is_one_operator_in_place(name, device):
    x, labels = problem(device)
    loss = compiled(LOSSES[name])
    (got,), codes = with_code(lambda: torch.autograd.grad(loss(x, labels), x))
    (wanted,) = torch.autograd.grad(LOSSES[name](x, labels), x)
    torch.testing.assert_close(got, wanted)
    assert "ops.manyhot.scale_.default(" in codes[-1]
    assert "ops.manyhot.scaled" not in codes[-1]
    assert "empty_strided" not in codes[-1].split("def call")[1].split("return (")[0]  # no memory for a second gradient


@on_each_device
def test_every_factor_gives_its_gradient_and_gradients_accumulate(device):
    x, labels = problem(device)
    loss = compiled(LOSSES["zlpr"])
    (once,) = torch.autograd.grad(zlpr_loss(x, labels), x)
    for factor in FACTORS:
        x.grad = None
        for times in (1, 2, 3):
            (loss(x, labels) * factor).backward()
            torch.testing.assert_close(x.grad, once * factor * times)


@on_each_device
def test_a_graph_that_is_kept_gives_the_same_gradient_again(device):
    x, labels = problem(device)
    value = compiled(LOSSES["zlpr"])(x, labels) * 3
    first = torch.autograd.grad(value, x, retain_graph=True)[0].clone()
    torch.testing.assert_close(torch.autograd.grad(value, x)[0], first)
    torch.testing.assert_close(first, 3 * torch.autograd.grad(zlpr_loss(x, labels), x)[0])


@on_each_device
def test_kept_code_that_finishes_in_place_does_not_give_a_wrong_gradient(device):
    """Torch takes such code from its cache on disk for a graph that is kept, too (2.11, 2.13); autograd has to raise then."""
    x, labels = problem(device)
    (wanted,) = torch.autograd.grad(zlpr_loss(x, labels) * 3, x)
    for kept in (False, True):
        value = compiled(LOSSES["zlpr"])(x, labels) * 3
        torch.testing.assert_close(torch.autograd.grad(value, x, retain_graph=kept)[0].clone(), wanted)
    with contextlib.suppress(RuntimeError):
        torch.testing.assert_close(torch.autograd.grad(value, x)[0], wanted)


def test_without_the_names_inside_inductor_the_gradient_is_copied(monkeypatch):
    from torch._inductor import lowering

    name = torch.ops.manyhot.scaled.default
    monkeypatch.setitem(sys.modules, "torch._inductor.lowering", types.ModuleType("torch._inductor.lowering"))
    monkeypatch.setattr(torch._inductor, "lowering", types.SimpleNamespace())
    assert in_place._register.__wrapped__() is False
    monkeypatch.undo()
    own = lowering.lowerings.pop(name, None)
    monkeypatch.setattr(in_place, "_register", lambda: False)
    try:
        x, labels = problem("cpu")
        loss = compiled(LOSSES["zlpr"])
        (got,), codes = with_code(lambda: torch.autograd.grad(loss(x, labels) * 3, x))
    finally:
        lowering.lowerings.pop(name, None)
        if own is not None:
            lowering.lowerings[name] = own
    assert "ops.manyhot.scaled.default(" in codes[-1]
    torch.testing.assert_close(got, 3 * torch.autograd.grad(zlpr_loss(x, labels), x)[0])


@on_each_device
def test_the_operators_that_finish_gradients_pass_opcheck(device):
    x, labels = problem(device)
    factor = torch.tensor(3.0, device=device)
    torch.library.opcheck(torch.ops.manyhot.scaled, (x.detach(), factor))
    torch.library.opcheck(torch.ops.manyhot.scale_, (x.detach(), factor))
    if device == "cuda":
        half, settings = x.detach().half(), ("split", 0.0, 1 / len(x), *ops.pack(DenseTerms(labels)))
        _, grad, used = torch.ops.manyhot.half(half, *settings)
        torch.library.opcheck(torch.ops.manyhot.half_scaled, (grad, used, factor, half, *settings))
        torch.library.opcheck(torch.ops.manyhot.half_scale_, (grad, used, factor, half, *settings))


def check_half(device, engine, shapes=((6, 41), (5, 300))):
    """Float16 in a compiled graph: gradients of float64, rounded once, whatever the factor; backward finishes them in place."""
    for rows, num_labels in shapes:
        loss = compiled(lambda x, y: zlpr_loss(2 * x, y, engine=engine))
        for place, factor in enumerate((65536.0, 65536.0, 3.0, 1.0, 0.0)):
            x, labels = problem(device, torch.float16, rows, num_labels)
            (got,), codes = with_code(lambda: torch.autograd.grad(loss(x, labels) * factor, x))  # noqa: B023
            exact = x.detach().double().requires_grad_()
            (wanted,) = torch.autograd.grad(zlpr_loss(2 * exact, labels) * factor, exact)
            torch.testing.assert_close(got.double(), wanted, rtol=2e-3, atol=1e-6)
            assert place or "ops.manyhot.half_scale_.default(" in codes[-1]


@pytest.mark.slow
def test_float16_is_finished_in_place_in_the_interpreter():
    check_interpreted(HALF)


@pytest.mark.slow
@pytest.mark.gpu
def test_float16_is_finished_in_place_on_the_device():
    check_half("cuda", "auto", ((64, 20), (33, 1000), (16, 4097), (5, 131_072)))


@pytest.mark.slow
@pytest.mark.gpu
# Inductor recommends tf32, and keeps its memory pool alive by an empty graph.
@pytest.mark.filterwarnings("ignore:TensorFloat32", "ignore:The CUDA Graph is empty")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_cuda_graphs_of_the_compiler_give_the_gradients_of_float64(dtype):
    x, labels = problem("cuda", dtype, 64, 300)
    weight = torch.randn(300, 300, device="cuda").to(dtype).requires_grad_()
    loss = compiled(lambda x, w, y: zlpr_loss(x @ w, y), mode=None)
    graphed = torch.compile(lambda x, w, y: zlpr_loss(x @ w, y), fullgraph=True, mode="reduce-overhead")
    for factor in (1.0, 1.0, 4.0, 1.0, 4.0, 4.0):
        torch.compiler.cudagraph_mark_step_begin()
        got = [each.clone() for each in torch.autograd.grad(graphed(x, weight, labels) * factor, (x, weight))]
        wanted = torch.autograd.grad(loss(x, weight, labels) * factor, (x, weight))
        for one, two in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, two)
