"""Calls like an earlier one: the same numbers, and every check that a call can still fail."""

import pytest
import torch

from manyhot import SparseLabels, zlpr_loss
from manyhot.engines.native.library import GATE
from manyhot.engines.registry import is_there
from manyhot.losses.core import dispatch, repeats

needs_native = pytest.mark.skipif(not is_there("native"), reason="the native engine was not built")


@pytest.fixture(autouse=True)
def nothing_known():
    """Every test begins as a new process does."""
    repeats.KNOWN.clear()


def draw(rows=6, num_labels=9, dtype=torch.float32, seed=0):
    source = torch.Generator().manual_seed(seed)
    logits = (2 * torch.randn(rows, num_labels, generator=source)).to(dtype).requires_grad_()
    return logits, (torch.rand(rows, num_labels, generator=source) < 0.3).to(torch.uint8)


def value_and_gradient(logits, labels, **settings):
    value = zlpr_loss(logits, labels, **settings)
    return value, torch.autograd.grad(value, logits)[0]


def forbid_full_calls(monkeypatch):
    def arrange(*_, **__):
        raise AssertionError("the call was looked at in full")

    monkeypatch.setattr(dispatch, "arrange", arrange)


@needs_native
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["hard", "bool", "soft", "lists"])
def test_repeated_calls_give_the_same_bits(monkeypatch, kind, dtype, reduction):
    """On other tensors, too: the second call has the values of a call that is looked at in full."""
    pairs = [draw(dtype=dtype, seed=seed) for seed in (0, 1)]
    change = {"bool": torch.Tensor.bool, "soft": lambda t: 0.9 * t.to(dtype), "lists": SparseLabels.from_dense}.get(kind)
    pairs = [(logits, labels if change is None else change(labels)) for logits, labels in pairs]
    first, wanted = (value_and_gradient(*pair, reduction=reduction) for pair in pairs)
    repeats.KNOWN.clear()
    value_and_gradient(*pairs[0], reduction=reduction)
    forbid_full_calls(monkeypatch)
    for pair, (value, gradient) in zip(pairs, (first, wanted), strict=True):
        again = value_and_gradient(*pair, reduction=reduction)
        assert torch.equal(again[0], value)
        assert torch.equal(again[1], gradient)
        assert again[1].dtype == dtype


@needs_native
def test_parameters_and_factors(monkeypatch):
    """A parameter is scores too, and a factor of the loss scales its gradient."""
    logits, labels = draw()
    _, gradient = value_and_gradient(logits, labels)
    forbid_full_calls(monkeypatch)
    weight = torch.nn.Parameter(logits.detach().clone())
    (3 * zlpr_loss(weight, labels)).backward()
    torch.testing.assert_close(weight.grad, 3 * gradient)


@needs_native
def test_a_graph_that_is_kept_is_differentiated_twice(monkeypatch):
    """The second backward computes the gradient again, and a derivative of the gradient is that of the plain form."""
    logits, labels = draw()
    value_and_gradient(logits, labels)
    value = zlpr_loss(logits, labels)
    once = torch.autograd.grad(value, logits, retain_graph=True)[0].clone()
    assert torch.equal(torch.autograd.grad(value, logits)[0], once)
    exact = logits.detach().double().requires_grad_()
    second = []
    for scores, engine in ((logits, "auto"), (exact, "torch")):
        slope = torch.autograd.grad(zlpr_loss(scores, labels, engine=engine), scores, create_graph=True)[0]
        second.append(torch.autograd.grad(slope.square().sum(), scores)[0])
    torch.testing.assert_close(second[0].double(), second[1], rtol=1e-5, atol=1e-7)


@needs_native
@pytest.mark.parametrize("kind", ["dense", "lists"])
def test_tensors_changed_after_the_call_are_noticed(kind):
    logits, labels = draw()
    given = SparseLabels.from_dense(labels) if kind == "lists" else labels
    scores = logits * 1.0
    zlpr_loss(scores, given)
    value = zlpr_loss(scores, given)
    (given.indices if kind == "lists" else labels).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


@needs_native
@pytest.mark.parametrize("change", ["rows", "labels", "label shape", "dtype", "transposed", "device"])
def test_other_kinds_are_looked_at_in_full(change):
    logits, labels = draw(6, 6)
    value_and_gradient(logits, labels)
    if change == "label shape":
        with pytest.raises(ValueError, match="must have the shape of `logits`"):
            zlpr_loss(logits, labels[:, :3])
        return
    if change == "device":
        with pytest.raises(ValueError, match="must be on the device of `logits`"):
            zlpr_loss(logits, labels.to("meta"))
        return
    if change == "transposed":
        logits, labels = logits.detach().t().requires_grad_(), labels.t()
    elif change == "dtype":
        logits = logits.detach().double().requires_grad_()
    else:
        logits, labels = draw(5 if change == "rows" else 6, 7 if change == "labels" else 6)
    value, gradient = value_and_gradient(logits, labels)
    exact = logits.detach().double().requires_grad_()
    wanted = value_and_gradient(exact, labels, engine="torch")
    torch.testing.assert_close((value.double(), gradient.double()), wanted, rtol=1e-5, atol=1e-6)


@needs_native
def test_lists_for_another_number_of_labels_are_refused():
    logits, labels = draw()
    lists = SparseLabels.from_dense(labels)
    value_and_gradient(logits, lists)
    with pytest.raises(ValueError, match="must fit `logits`"):
        zlpr_loss(logits, SparseLabels(lists.indices, lists.offsets, 10))


@needs_native
def test_labels_that_require_a_gradient_are_looked_at_in_full():
    logits, labels = draw()
    soft = labels.float()
    value_and_gradient(logits, soft)
    value = zlpr_loss(logits, soft.requires_grad_())
    value.backward()
    assert soft.grad is None
    with pytest.raises(ValueError, match="are the arguments swapped"):
        zlpr_loss(logits.detach(), soft)


@needs_native
def test_transforms_and_modes_take_the_plain_form():
    """Under torch.func and in a mode no memory is read, whatever was called before."""
    logits, labels = draw()
    _, gradient = value_and_gradient(logits, labels)
    torch.testing.assert_close(torch.func.grad(zlpr_loss)(logits.detach(), labels), gradient)
    rows = torch.vmap(torch.func.grad(zlpr_loss))(logits.detach().unsqueeze(1), labels.unsqueeze(1))
    torch.testing.assert_close(rows.squeeze(1), 6 * gradient)
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode, scores = FakeTensorMode(), logits.detach()
    with mode:
        fake = mode.from_tensor(scores).requires_grad_()
        assert zlpr_loss(fake, mode.from_tensor(labels)).shape == ()


@needs_native
def test_an_engine_that_was_turned_off_stays_off(monkeypatch):
    logits, labels = draw()
    value, _ = value_and_gradient(logits, labels)
    monkeypatch.setattr(GATE, "failure", "RuntimeError: broken")
    monkeypatch.setattr(GATE, "warned", True)
    again = zlpr_loss(logits, labels)
    assert not again.grad_fn.name().startswith(("_Repeated", "_Eager"))
    torch.testing.assert_close(again, value)


@needs_native
def test_without_gradients_nothing_is_repeated():
    logits, labels = draw()
    value, _ = value_and_gradient(logits, labels)
    with torch.no_grad():
        assert not zlpr_loss(logits, labels).requires_grad
    plain = zlpr_loss(logits.detach(), labels)
    assert not plain.requires_grad
    torch.testing.assert_close(plain, value)


@needs_native
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_the_pass_with_a_gradient_is_faster_calls_without_one_are_repeated_too(monkeypatch, mode):
    """As for few scores on a GPU. Training and evaluation then share what is known of a kind of call."""
    for module in (dispatch, repeats):
        monkeypatch.setattr(module, "faster_with_gradient", lambda _: True)
    (logits, labels), other = draw(), draw(seed=1)
    wanted = [zlpr_loss(x.detach().double(), t) for x, t in ((logits, labels), other)]
    with mode():
        first = zlpr_loss(logits.clone(), labels)
        forbid_full_calls(monkeypatch)
        again = zlpr_loss(other[0].clone(), other[1])
    for value, right in zip((first, again), wanted, strict=True):
        assert not value.requires_grad
        torch.testing.assert_close(value.double(), right, rtol=1e-6, atol=1e-6)
    value, gradient = value_and_gradient(logits, labels)
    assert torch.equal(value, first)
    monkeypatch.undo()
    exact = logits.detach().double().requires_grad_()
    torch.testing.assert_close(gradient.double(), value_and_gradient(exact, labels)[1], rtol=1e-5, atol=1e-7)


def test_few_kinds_are_kept(monkeypatch):
    monkeypatch.setattr(repeats, "MOST", 3)
    for rows in range(2, 9):
        value_and_gradient(*draw(rows))
    assert len(repeats.KNOWN) <= 3


@needs_native
@pytest.mark.parametrize("in_place", [False, True])
def test_many_factors_at_once(in_place):
    """``is_grads_batched`` gives factors that cannot be multiplied in place, whoever multiplies."""
    logits, labels = draw()
    _, gradient = value_and_gradient(logits, labels)
    (known,) = repeats.KNOWN.values()
    if in_place:  # as on CUDA, where one operation of torch multiplies small gradients
        known.settings = (*known.settings[:3], None)
    value = zlpr_loss(logits, labels)
    factors = torch.tensor([1.0, 2.0, -3.0])
    (found,) = torch.autograd.grad(value, logits, factors, is_grads_batched=True)
    torch.testing.assert_close(found, factors[:, None, None] * gradient)
