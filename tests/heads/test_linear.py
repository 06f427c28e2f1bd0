"""LinearHead: lazy scores, and a step inside backward that is that of dense training."""

import math

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from manyhot import LinearHead, SparseLabels, TopScores, decide_sparse, zlpr_loss
from manyhot.engines.linear.rounding import round_stochastically, rounding_noise
from manyhot.losses import tlpr_loss

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ROWS, SIZE, NUM_LABELS = 16, 12, 3000


def batches(count, device="cpu", seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        hidden = torch.randn(ROWS, SIZE, generator=generator)
        lists = [torch.randperm(NUM_LABELS, generator=generator)[:3].tolist() for _ in range(ROWS)]
        yield hidden.to(device), SparseLabels.from_lists(lists, num_labels=NUM_LABELS).to(device)


def head(device="cpu", **settings):
    torch.manual_seed(0)
    return LinearHead(SIZE, NUM_LABELS, chunk_size=2048, **settings).to(device)


def dense_step(weight, bias, squares, hidden, labels, *, lr, decay, kind):
    """One step of dense training in float64."""
    weight, bias, hidden = (part.detach().requires_grad_() for part in (weight, bias, hidden.double()))
    loss = zlpr_loss(torch.nn.functional.linear(hidden, weight, bias), labels)
    by_weight, by_bias, by_hidden = torch.autograd.grad(loss, (weight, bias, hidden))
    if kind == "adagrad":
        squares = (squares[0] + by_weight.square().mean(dim=1), squares[1] + by_bias.square())
        by_weight = by_weight / (squares[0].sqrt() + 1e-8).unsqueeze(1)
        by_bias = by_bias / (squares[1].sqrt() + 1e-8)
    with torch.no_grad():
        return weight * (1 - lr * decay) - lr * by_weight, bias - lr * by_bias, squares, by_hidden, loss.detach()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("memory_budget", [None, 0])
@pytest.mark.parametrize(("kind", "bound"), [("sgd", 2e-5), ("adagrad", 2e-4)])
def test_fifty_fused_steps_are_fifty_steps_of_dense_training(kind, bound, memory_budget, device):
    settings = {"lr": 0.5, "decay": 0.02, "kind": kind}
    ours = head(device, update=kind, lr=0.5, weight_decay=0.02, memory_budget=memory_budget)
    weight, bias = ours.weight.detach().double(), ours.bias.detach().double()
    squares = (torch.zeros_like(bias), torch.zeros_like(bias))
    first = weight.clone()
    for hidden, labels in batches(50, device):
        weight, bias, squares, by_hidden, wanted = dense_step(weight, bias, squares, hidden, labels, **settings)
        hidden.requires_grad_()
        loss = zlpr_loss(ours(hidden), labels)
        loss.backward()
        torch.testing.assert_close(loss.double(), wanted, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(hidden.grad.double(), by_hidden, rtol=1e-3, atol=1e-5)
    assert (weight - first).abs().max() > 0.1
    assert (ours.weight - weight).abs().max() < bound
    assert (ours.bias - bias).abs().max() < bound
    assert ours.weight.grad is None
    assert ours.bias.grad is None
    assert ours.step.item() == 50


def test_without_update_the_weights_get_gradients():
    ours = head()
    hidden, labels = next(batches(1))
    zlpr_loss(ours(hidden), labels).backward()
    wanted = torch.autograd.grad(zlpr_loss(torch.nn.functional.linear(hidden, ours.weight, ours.bias), labels), ours.weight)
    torch.testing.assert_close(ours.weight.grad, wanted[0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_saved_head_goes_on_bit_by_bit(kind, dtype, device):
    given = {"update": kind, "lr": 0.3, "weight_decay": 0.01, "dtype": dtype, "seed": 11}
    steps = list(batches(8, device))
    ours = head(device, **given)
    for hidden, labels in steps[:4]:
        zlpr_loss(ours(hidden), labels).backward()
    saved = {name: part.clone() for name, part in ours.state_dict().items()}
    other = LinearHead(SIZE, NUM_LABELS, chunk_size=2048, **{**given, "seed": 0}).to(device)
    other.load_state_dict(saved)
    for hidden, labels in steps[4:]:
        for each in (ours, other):
            zlpr_loss(each(hidden), labels).backward()
    for (name, one), two in zip(ours.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(one, two), name


@pytest.mark.parametrize("device", DEVICES)
def test_steps_in_bfloat16_are_right_on_average(device):
    hidden, labels = next(batches(1, device))
    hidden = hidden.bfloat16()
    start = head().weight.detach().bfloat16().to(device)
    exact = head(device)
    exact.weight.data = start.float()
    exact.update = "sgd"
    zlpr_loss(exact(hidden.float()), labels).backward()
    total, count = torch.zeros_like(exact.weight), 200
    for seed in range(count):
        ours = head(device, update="sgd", dtype=torch.bfloat16, seed=seed)
        ours.weight.data.copy_(start)
        zlpr_loss(ours(hidden), labels).backward()
        total += ours.weight.detach().float()
    change, wanted = total / count - start.float(), exact.weight.detach() - start.float()
    # Neighbours in bfloat16 are at most 2^-7 of the number apart; the mean of many draws is within a few deviations.
    slack = start.float().abs() * 2**-7 / 2 * 5 / math.sqrt(count) + 2e-2 * wanted.abs() + 1e-6
    assert ((change - wanted).abs() <= slack).float().mean() > 0.999
    assert abs((change - wanted).mean()) < 1e-5


@pytest.mark.parametrize("device", DEVICES)
def test_noise_and_rounding_are_those_of_the_plain_form(device):
    hidden, labels = next(batches(1, device))
    ours = head(device, update="sgd", dtype=torch.bfloat16, seed=3, lr=0.5, weight_decay=0.1)
    start = ours.weight.detach().clone()
    ours.lr = 0.0
    zlpr_loss(ours(hidden), labels).backward()
    assert torch.equal(ours.weight, start)
    noise = rounding_noise(ours.seed, ours.step, 0, NUM_LABELS, SIZE)
    ours.lr, ours.weight_decay = 1.0, 0.25
    zlpr_loss(ours(hidden), labels, sample_weight=torch.zeros(ROWS, device=device), reduction="sum").backward()
    assert torch.equal(ours.weight, round_stochastically(start.float() * 0.75, noise))


def test_the_bias_starts_at_the_log_odds_or_at_one_in_all():
    assert torch.allclose(head().bias, torch.full((NUM_LABELS,), -math.log(NUM_LABELS)))
    counts = torch.zeros(NUM_LABELS)
    counts[:2] = torch.tensor([50.0, 100.0])
    bias = head(label_counts=counts, num_examples=100).bias
    assert bias[0].abs() < 1e-6
    assert bias[1] > 5
    assert torch.allclose(bias[2:], torch.tensor(math.log(0.5 / 100.5)))
    assert head(bias=False).bias is None


def test_prediction_gives_the_best_labels_and_evaluation_a_loss():
    ours = head().eval()
    hidden, labels = next(batches(1))
    top = ours.top_k(hidden, 5)
    assert isinstance(top, TopScores)
    dense = torch.nn.functional.linear(hidden, ours.weight, ours.bias)
    assert torch.equal(top.indices, dense.topk(5).indices)
    torch.testing.assert_close(zlpr_loss(ours(hidden), labels), zlpr_loss(dense, labels))


def test_decisions_take_a_head_in_bfloat16():
    ours = head(dtype=torch.bfloat16)
    hidden, _ = next(batches(1))
    chosen = decide_sparse(ours(hidden), threshold=-6.0)
    dense = ours(hidden).dense() > -6.0
    assert torch.equal(chosen.dense(), dense)


def test_no_step_is_taken_without_gradients():
    ours = head(update="sgd")
    start = ours.weight.detach().clone()
    hidden, labels = next(batches(1))
    with torch.no_grad():
        zlpr_loss(ours(hidden), labels)
    assert torch.equal(ours.weight, start)


def test_a_second_backward_through_changed_weights_is_an_error():
    ours = head(update="sgd")
    hidden, labels = next(batches(1))
    loss = zlpr_loss(ours(hidden), labels)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_threshold_and_other_losses_go_with_the_update():
    ours, other = head(update="sgd"), head()
    hidden, labels = next(batches(1))
    threshold = torch.tensor(0.5, requires_grad=True)
    tlpr_loss(ours(hidden), labels, threshold).backward()
    tlpr_loss(other(hidden), labels, threshold.detach()).backward()
    torch.testing.assert_close(ours.weight, other.weight - 0.1 * other.weight.grad)
    assert threshold.grad.abs() > 0


def test_a_frozen_encoder_and_one_that_learns_both_work_under_autocast():
    ours = head(update="sgd")
    encoder = torch.nn.Linear(SIZE, SIZE)
    hidden, labels = next(batches(1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        zlpr_loss(ours(encoder(hidden)), labels).backward()
    assert encoder.weight.grad.abs().sum() > 0
    assert ours.step.item() == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearHead(4, 5, dtype=torch.float16), "`dtype` must be one of"),
        (lambda: LinearHead(4, 5, update="adam"), "`update` must be one of None, 'sgd', 'adagrad'; got 'adam'"),
        (lambda: LinearHead(4, 5, lr=-1.0), "`lr` must be a number >= 0"),
        (lambda: LinearHead(4, 5, label_counts=torch.ones(4)), r"one count per label, \[5\].*got \[4\] and None"),
        (lambda: LinearHead(4, 5)(torch.zeros(2, 3)), r"`hidden` must be \[..., 4\].*got \[2, 3\]"),
        (lambda: LinearHead(4, 5, update="sgd")(torch.zeros(2, 4)) * 2.0, "cannot be scaled"),
    ],
)
def test_what_does_not_fit_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from heads import test_linear
test_linear.test_noise_and_rounding_are_those_of_the_plain_form("cpu")
test_linear.test_fifty_fused_steps_are_fifty_steps_of_dense_training("adagrad", 2e-4, None, "cpu")
print("checked")
"""


@pytest.mark.slow
def test_the_kernels_take_the_same_steps_in_the_interpreter():
    check_interpreted(INTERPRETED)
