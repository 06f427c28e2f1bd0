"""Engines that read raw memory: they take plain tensors, and everything else goes through torch's operators."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from manyhot import SparseLabels, bce_loss, prediction_divergence, rdrop_loss, tlpr_loss, zlpr_loss
from manyhot.engines import readable
from manyhot.engines.readable import all_readable, is_readable


def problem():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, 5, generator=generator), torch.rand(6, 5, generator=generator) < 0.4


def value_and_grad(loss, logits, labels, **settings):
    given = logits.detach().requires_grad_()
    value = loss(given, labels, **settings)
    (grad,) = torch.autograd.grad(value, given)
    return value.detach(), grad


class Renamed(torch.Tensor):
    """A subclass that adds nothing."""


class Counting(TorchDispatchMode):
    """Counts the operators that it sees."""

    seen = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen += 1
        return function(*args, **(kwargs or {}))


def test_plain_tensors_and_parameters_are_read():
    logits, labels = problem()
    with torch.inference_mode():
        inferred = logits * 2
    assert all_readable((logits, labels, torch.nn.Parameter(logits), inferred, logits.t(), None, 1.0))


@pytest.mark.parametrize(
    "stand_in",
    [
        torch._neg_view,
        lambda x: torch.complex(x, x).conj().imag,
        lambda x: x.as_subclass(Renamed),
        lambda x: torch._efficientzerotensor(x.shape),
        lambda x: x.to("meta"),
        lambda x: x.to_sparse(),
        FakeTensorMode().from_tensor,
    ],
    ids=["negative", "imaginary", "subclass", "zero", "meta", "sparse", "fake"],
)
def test_what_stands_in_for_a_tensor_is_not_read(stand_in):
    assert not is_readable(stand_in(problem()[0]))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize(
    "view",
    [torch._neg_view, lambda x: torch.complex(x, -x).imag, lambda x: torch.complex(x, x).conj().imag],
    ids=["negative", "plain imaginary", "conjugated imaginary"],
)
def test_a_negative_view_has_the_loss_of_its_numbers(view, reduction):
    logits, labels = problem()
    wanted = zlpr_loss(-logits, labels, reduction=reduction)
    torch.testing.assert_close(zlpr_loss(view(logits), labels, reduction=reduction), wanted)
    torch.testing.assert_close(zlpr_loss(view(logits.requires_grad_()), labels, reduction=reduction), wanted)


def test_negative_views_as_thresholds_weights_and_second_predictions_count_with_their_numbers():
    logits, labels = problem()
    rows, per_label = torch.linspace(-2, -1, 6), torch.linspace(-2, -1, 5)
    x = logits.requires_grad_()
    torch.testing.assert_close(tlpr_loss(x, labels, torch._neg_view(rows)), tlpr_loss(x, labels, -rows))
    weighted = zlpr_loss(x, labels, sample_weight=torch._neg_view(rows), pos_weight=torch._neg_view(per_label), reduction="sum")
    torch.testing.assert_close(weighted, zlpr_loss(x, labels, sample_weight=-rows, pos_weight=-per_label, reduction="sum"))
    pair = rdrop_loss(x, torch._neg_view(logits.detach()), labels)
    torch.testing.assert_close(pair, rdrop_loss(x, -logits.detach(), labels))


def test_lazy_zeros_are_zeros():
    logits, labels = problem()
    lazy = torch._efficientzerotensor(logits.shape)
    torch.testing.assert_close(zlpr_loss(lazy, labels), zlpr_loss(torch.zeros_like(logits), labels))


def test_a_subclass_takes_the_operators():
    logits, labels = problem()
    wanted, grad = value_and_grad(zlpr_loss, logits, labels)
    value, got = value_and_grad(zlpr_loss, logits.as_subclass(Renamed), labels)
    torch.testing.assert_close(value.as_subclass(torch.Tensor), wanted)
    torch.testing.assert_close(got.as_subclass(torch.Tensor), grad)
    torch.testing.assert_close(zlpr_loss(logits, labels.as_subclass(Renamed)).as_subclass(torch.Tensor), wanted)


def test_a_dispatch_mode_sees_the_work():
    logits, labels = problem()
    with Counting() as mode:
        value = zlpr_loss(logits, labels)
    assert mode.seen > 5
    torch.testing.assert_close(value, zlpr_loss(logits, labels))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("loss", [zlpr_loss, bce_loss])
def test_fake_tensors_give_shapes(loss, reduction):
    with FakeTensorMode():
        logits, labels = torch.randn(6, 5, requires_grad=True), torch.zeros(6, 5)
        value = loss(logits, labels, reduction=reduction)
        value.sum().backward()
    assert value.shape == (() if reduction == "mean" else (6,))
    assert logits.grad.shape == (6, 5)


def test_fake_tensors_with_lists_and_pairs_give_shapes():
    with FakeTensorMode():
        logits = torch.randn(2, 5, requires_grad=True)
        lists = SparseLabels(torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), 5, validate=False)
        assert zlpr_loss(logits, lists).shape == ()
        assert rdrop_loss(logits, logits * 2, torch.zeros(2, 5)).shape == ()


@pytest.mark.parametrize("tracing", [{"tracing_mode": "real"}, {"tracing_mode": "fake"}, {"pre_dispatch": True}])
@pytest.mark.parametrize("loss", [lambda x, y: zlpr_loss(x, y), lambda x, y: tlpr_loss(x, y, 0.5, reduction="none")])
def test_a_traced_function_computes_its_own_inputs(loss, tracing):
    logits, labels = problem()
    traced = make_fx(loss, **tracing)(logits, labels)
    torch.testing.assert_close(traced(2 - logits, ~labels), loss(2 - logits, ~labels))


def test_a_traced_gradient_computes_its_own_inputs():
    logits, labels = problem()

    def gradient(x, y):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(zlpr_loss(x, y), x)[0]

    traced = make_fx(gradient)(logits, labels)
    torch.testing.assert_close(traced(2 - logits, ~labels), gradient(2 - logits, ~labels))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_scripted_trace_computes_its_own_inputs():
    logits, labels = problem()
    traced = torch.jit.trace(zlpr_loss, (logits, labels), check_trace=False)
    torch.testing.assert_close(traced(2 - logits, ~labels), zlpr_loss(2 - logits, ~labels))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_model_computes_its_loss(strict):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(5, 5)

        def forward(self, x, labels):
            return zlpr_loss(self.linear(x), labels)

    model, (x, labels) = Model(), problem()
    program = torch.export.export(model, (x, labels), strict=strict)
    torch.testing.assert_close(program.module()(x * 2, ~labels), model(x * 2, ~labels))


def test_functorch_wrappers_and_what_they_left_behind_are_not_read():
    logits, labels = problem()
    kept = []

    def loss(x, y):
        kept.append(x)
        assert not all_readable((x, y))
        return zlpr_loss(x, y)

    torch.testing.assert_close(torch.vmap(loss)(logits, labels), zlpr_loss(logits, labels, reduction="none"))
    torch.testing.assert_close(torch.func.grad(loss)(logits, labels), value_and_grad(zlpr_loss, logits, labels)[1])
    assert not any(map(is_readable, kept))


def test_a_distributed_tensor_takes_the_operators():
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

    logits, labels = problem()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        spread, truth = (distribute_tensor(part, mesh, [Replicate()]) for part in (logits, labels))
        spread.requires_grad_()
        value = zlpr_loss(spread, truth)
        value.backward()
        assert isinstance(value, DTensor)
        wanted, grad = value_and_grad(zlpr_loss, logits, labels)
        torch.testing.assert_close(value.detach().full_tensor(), wanted)
        torch.testing.assert_close(spread.grad.full_tensor(), grad)
    finally:
        dist.destroy_process_group()


def test_another_default_device_does_not_reach_the_native_engine():
    logits, labels = problem()
    wanted = value_and_grad(zlpr_loss, logits, labels)
    with torch.device("meta"):
        got = value_and_grad(zlpr_loss, logits, labels)
    assert all(torch.equal(one, two) for one, two in zip(got, wanted, strict=True))


def test_a_torch_without_the_private_tests_reads_nothing(monkeypatch):
    logits, labels = problem()
    wanted = zlpr_loss(logits, labels, engine="torch")
    monkeypatch.setattr(readable, "KNOWN", False)
    monkeypatch.setattr(readable, "MISSING", ("_dispatch_keys",))
    readable._warn_of_missing.cache_clear()
    with pytest.warns(RuntimeWarning, match="the fast engines are not used, because torch .* has no _dispatch_keys"):
        assert not all_readable((logits, labels))
    # Once is enough: warnings are errors in these tests.
    torch.testing.assert_close(zlpr_loss(logits, labels), wanted)


def test_divergences_of_stand_ins_go_through_the_operators():
    logits, _ = problem()
    other = torch._neg_view(logits)
    torch.testing.assert_close(prediction_divergence(logits.requires_grad_(), other), prediction_divergence(logits, -logits))
