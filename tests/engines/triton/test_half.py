"""Float16: forward writes the gradient with the factor of the last backward, backward corrects it where that was wrong."""

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import SparseLabels, zlpr_loss
from manyhot.engines.triton import half
from manyhot.losses import pairwise_loss

INTERPRETED = """
import sys
sys.path.insert(0, sys.argv[1])
from engines.triton.test_half import check
for rows, num_labels in ((5, 40), (3, 300), (4, 7)):
    check("cpu", rows, num_labels)
print("checked")
"""
# As GradScaler has them: the same for long, then twice or half of it; and what nobody expects.
FACTORS = (65536.0, 65536.0, 131072.0, 131072.0, 1.0, 3e-5, -2.0, 0.0)


def gradient(loss, x, factor):
    (grad,) = torch.autograd.grad(loss * factor, x)
    return grad


def check(device, rows, num_labels, turn=None):
    """Losses and gradients are those of float64, rounded once, whatever the factor and the one before it. With a ``turn``, a
    kind of labels meets either the sum or the other loss beside the mean: over two turns both."""
    generator = torch.Generator().manual_seed(num_labels)
    hard = (torch.rand(rows, num_labels, generator=generator) < 0.1).to(device)
    counts = (torch.rand(rows, num_labels, generator=generator) < 0.7).to(device)
    soft = torch.rand(rows, num_labels, generator=generator).half().to(device)
    cases = [
        (hard, {}),
        (soft, {}),
        (SparseLabels.from_dense(hard), {}),
        (hard, {"where": counts}),
        (hard, {"pos_weight": 5.0}),
    ]
    ways = [(zlpr_loss, "mean"), (zlpr_loss, "sum"), (pairwise_loss, "mean")]
    for kind, (labels, settings) in enumerate(cases):
        for function, reduction in ways if turn is None else [ways[0], ways[1 + (kind + turn) % 2]]:
            for factor in FACTORS:
                x = (3 * torch.randn(rows, num_labels, generator=generator)).half().to(device).requires_grad_()
                exact = x.detach().double().requires_grad_()
                loss = function(x, labels, reduction=reduction, engine="triton", **settings)
                truth = labels.double() if labels is soft else labels
                wanted = function(exact, truth, reduction=reduction, engine="torch", **settings)
                torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-6)
                got, right = gradient(loss, x, factor).double(), gradient(wanted, exact, factor)
                fits = right.abs() < 65504
                # The last place of float16, and of float32 where two terms of a soft label cancel.
                near = {"rtol": 1e-3, "atol": 1.2e-7 + (2e-7 * abs(factor) if labels is soft else 0.0)}
                torch.testing.assert_close(got[fits], right[fits], **near)
                assert (got[~fits].abs() >= 65472).all()


@pytest.mark.slow
def test_every_factor_gives_the_gradient_of_float64_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("turn", "shape"),
    list(enumerate([(64, 7), (300, 20), (64, 128), (33, 1000), (16, 4097), (512, 20_001), (5, 131_072)])),
)
def test_every_factor_gives_the_gradient_of_float64_on_the_device(shape, turn):
    check("cuda", *shape, turn)


@pytest.mark.gpu
def test_what_was_guessed_does_not_change_a_bit():
    x = torch.randn(256, 1000, device="cuda").half().requires_grad_()
    labels = torch.rand(256, 1000, device="cuda") < 0.02
    found = {}
    for factor in (1.0, 512.0, 512.0, 65536.0, 1.0, 65536.0, 512.0):
        grad = gradient(zlpr_loss(x, labels), x, factor)
        assert torch.equal(found.setdefault(factor, grad), grad)


@pytest.mark.gpu
def test_losses_that_take_turns_and_graphs_that_are_kept_have_their_own_gradients():
    x = torch.randn(64, 500, device="cuda").half().requires_grad_()
    labels = torch.rand(64, 500, device="cuda") < 0.02
    first, second = zlpr_loss(x, labels), zlpr_loss(x, labels)
    grads = [torch.autograd.grad(loss * factor, x, retain_graph=True)[0] for loss, factor in ((first, 7.0), (second, 9.0))]
    again = [torch.autograd.grad(loss * factor, x)[0] for loss, factor in ((first, 7.0), (second, 9.0))]
    for grad, other in zip(grads, again, strict=True):
        assert torch.equal(grad, other)
    assert not torch.equal(*grads)


@pytest.mark.gpu
def test_a_captured_graph_follows_the_loss_scale():
    x = torch.randn(64, 500, device="cuda").half().requires_grad_()
    labels = torch.rand(64, 500, device="cuda") < 0.02
    scale = torch.tensor(65536.0, device="cuda")

    def step():
        loss = zlpr_loss(x, labels)
        return torch.autograd.grad(loss * scale, x)[0]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        grad = step()
    for factor in (65536.0, 128.0, 65536.0, 3.0):
        scale.fill_(factor)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(grad, step())


@pytest.mark.gpu
def test_a_scaled_training_step_is_as_exact_as_float16_allows():
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 300).cuda()
    features, labels = torch.randn(128, 64, device="cuda"), torch.rand(128, 300, device="cuda") < 0.02
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(3):
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(features)
            assert logits.dtype == torch.float16
            loss = zlpr_loss(logits, labels)
        scaler.scale(loss).backward()
        found = model.weight.grad / scaler.get_scale()
        (wanted,) = torch.autograd.grad(zlpr_loss(model(features), labels), model.weight)
        assert (found - wanted).norm() <= 3e-3 * wanted.norm()
        model.zero_grad()


@pytest.mark.gpu
def test_the_second_call_of_a_kind_is_replayed():
    x = torch.randn(32, 77, device="cuda").half().requires_grad_()
    labels = torch.rand(32, 77, device="cuda") < 0.1
    half._STARTS.clear()
    half._WRITERS.clear()
    first = gradient(zlpr_loss(x, labels), x, 2.0)
    assert len(half._STARTS) == len(half._WRITERS) == 1
    assert torch.equal(first, gradient(zlpr_loss(x, labels), x, 2.0))
