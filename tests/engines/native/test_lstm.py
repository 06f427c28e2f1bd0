"""LSTM layers by the native engine: torch's LSTM in float64, number by number, for every instruction set."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from manyhot.engines.native import lstm as native
from manyhot.engines.native import workspace
from manyhot.engines.native.library import variants
from manyhot.engines.native.lstm import PackedRows, bilstm_layer

pytestmark = pytest.mark.skipif(not native.available()[0], reason="the native engine was not built")
# Inputs, hidden size, lengths. A block has 128 rows; 256 terms of a product are summed at a time.
SIZES = [
    (272, 256, [5, 1, 7, 7, 3]),
    (16, 16, [1]),
    (16, 16, [1, 1, 1]),
    (32, 48, [9, 3, 2]),
    (48, 16, [4] * 131),
    (528, 16, [6, 2]),
    (272, 16, [33, 17]),
    (16, 16, [300, 299, 2]),
]


def counts_of(lengths):
    lengths = np.array(lengths)
    return (np.arange(lengths.max())[:, None] < lengths).sum(axis=1)


def row_of_token(counts):
    return np.concatenate([np.arange(count) for count in counts])


def masks(lengths, inputs, keeps):
    return np.random.default_rng(1).random((len(lengths), inputs)) < 0.5 if keeps else None


def layer_of(inputs, hidden):
    torch.manual_seed(0)
    layer = nn.LSTM(inputs, hidden, bidirectional=True)
    return layer, [weight for own in layer.all_weights for weight in own]


def by_torch(layer, x, pull, counts, kept, dtype=torch.float64):
    """Output and gradients of torch's layer, with the inputs of each row that are kept, doubled."""
    other = nn.LSTM(layer.input_size, layer.hidden_size, bidirectional=True).to(dtype)
    other.load_state_dict(layer.state_dict())
    own = x.detach().to(dtype).requires_grad_()
    scale = 1.0 if kept is None else 2.0 * torch.from_numpy(kept[row_of_token(counts)])
    out = other(PackedSequence(own * scale, torch.from_numpy(counts)))[0].data
    weights = [weight for part in other.all_weights for weight in part]
    return [out.detach(), *torch.autograd.grad((out * pull.to(dtype)).sum(), [own, *weights])]


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize(("inputs", "hidden", "lengths"), SIZES)
def test_outputs_and_gradients_are_those_of_torch_in_float64(inputs, hidden, lengths, keeps, variant):
    lengths = sorted(lengths, reverse=True)
    layer, weights = layer_of(inputs, hidden)
    counts, kept = counts_of(lengths), masks(lengths, inputs, keeps)
    x, pull = torch.randn(sum(lengths), inputs, requires_grad=True), torch.randn(sum(lengths), 2 * hidden)
    wanted, rounded = (by_torch(layer, x, pull, counts, kept, dtype) for dtype in (torch.float64, torch.float32))
    out = bilstm_layer(x, PackedRows.of(counts).keeping(kept, 2.0), weights, variant=variant)
    found = [out, *torch.autograd.grad((out * pull).sum(), [x, *weights])]
    # Without fused multiplication and addition, products are rounded too.
    most = 8 if variant == "plain" else 4
    for mine, exact, other in zip(found, wanted, rounded, strict=True):
        # Not much further from float64 than torch's own float32, whose sums have another order.
        error = max(float((other - exact).abs().max()), 1e-6 * float(exact.abs().max()))
        torch.testing.assert_close(mine.double(), exact, rtol=0, atol=most * error)


@pytest.mark.parametrize("variant", variants())
def test_small_and_large_sums_are_accurate(variant):
    """With one step, one input and no recurrent part, the output is ``sigma(x) tanh(sigma(x) tanh(x))``."""
    x = torch.cat([torch.logspace(-30, 3, 400), -torch.logspace(-30, 3, 400), torch.tensor([0.0, 0.25, -0.25])])
    inputs = nn.functional.pad(x.unsqueeze(1), (0, 15))
    by_input = torch.zeros(64, 16)
    by_input[:, 0] = 1.0
    weights = [by_input, torch.zeros(64, 16), torch.zeros(64), torch.zeros(64)] * 2
    out = bilstm_layer(inputs, PackedRows.of(np.array([len(x)])), weights, variant=variant)
    exact = x.double()
    wanted = exact.sigmoid() * (exact.sigmoid() * exact.tanh()).tanh()
    torch.testing.assert_close(out.double(), wanted.unsqueeze(1).expand_as(out), rtol=1e-6, atol=1e-37)


def test_a_layer_keeps_nan_where_it_is():
    _, weights = layer_of(16, 16)
    x = torch.randn(6, 16)
    x[2, 3] = float("nan")
    # Three rows of two tokens: token 2 is the first one of row 2.
    out = bilstm_layer(x, PackedRows.of(np.array([3, 3])), weights)
    assert out[[2, 5]].isnan().any(dim=1).all()
    assert out[[0, 1, 3, 4]].isfinite().all()


@pytest.mark.parametrize("which", ["inputs", "weights"])
def test_only_wanted_gradients_are_computed(which):
    layer, weights = layer_of(32, 16)
    counts = np.array([2, 1])
    x = torch.randn(3, 32, requires_grad=which == "inputs")
    for weight in weights:
        weight.requires_grad_(which == "weights")
    out, pull = bilstm_layer(x, PackedRows.of(counts), weights), torch.randn(3, 32)
    (out * pull).sum().backward()
    wanted = by_torch(layer, x, pull, counts, None)[1:]
    for each, exact in zip([x, *weights], wanted, strict=True):
        if each.requires_grad:
            torch.testing.assert_close(each.grad.double(), exact, rtol=0, atol=2e-6)
        else:
            assert each.grad is None


def test_passes_before_a_backward_and_a_second_backward_do_not_disturb_each_other():
    _, weights = layer_of(32, 16)
    rows, x = PackedRows.of(np.array([4, 2, 2])), torch.randn(2, 8, 32, requires_grad=True)
    alone = [torch.autograd.grad(bilstm_layer(own, rows, weights).square().sum(), [x])[0] for own in x]
    one, two = (bilstm_layer(own, rows, weights).square().sum() for own in x)
    first = torch.autograd.grad(one, [x], retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(two, [x])[0], alone[1])
    bilstm_layer(x[1], rows, weights)
    assert torch.equal(first, alone[0])
    assert torch.equal(torch.autograd.grad(one, [x])[0], alone[0])


def test_a_buffer_is_used_again_only_when_nothing_holds_it(monkeypatch):
    monkeypatch.setattr(workspace, "_FREE", [])
    one = workspace.lease(10)
    address = one.data_ptr()
    assert workspace.lease(10).data_ptr() != address
    del one
    assert address in [each.data_ptr() for each in (workspace.lease(10), workspace.lease(10))]


def test_a_lease_may_end_while_another_one_is_looked_for(monkeypatch):
    monkeypatch.setattr(workspace, "_FREE", [])
    held = [workspace.lease(10)]
    with workspace._LOCK:
        held.clear()
    assert len(workspace._FREE) == 1


def test_unused_buffers_are_limited(monkeypatch):
    monkeypatch.setattr(workspace, "_FREE", [])
    monkeypatch.setattr(workspace, "KEPT_BYTES", 4 * workspace.STEP)
    held = [workspace.lease(10), workspace.lease(10)]
    del held
    assert len(workspace._FREE) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda x, weights: (x.double(), weights),
        lambda x, weights: (x[:, :8], weights),
        lambda x, weights: (x, [weight.double() for weight in weights]),
        lambda x, _: (x, layer_of(16, 7)[1]),
    ],
)
def test_what_is_not_served(change, one_thread):
    x, weights = torch.randn(2, 16), layer_of(16, 16)[1]
    assert native.serves(x, weights)
    assert not native.serves(*change(x, weights))


def test_several_threads_are_left_to_torch(one_thread):
    torch.set_num_threads(2)
    assert not native.serves(torch.randn(2, 16), layer_of(16, 16)[1])
