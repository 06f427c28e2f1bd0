import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyhot import (
    SparseLabels,
    bce_loss,
    cutmix,
    flip_labels,
    focal_loss,
    mix_labels,
    mixup,
    pairwise_loss,
    smooth_labels,
    soft_labels_from,
    softmax_loss,
    squared_hinge_loss,
    zlpr_loss,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", ["uniform", "single"])
@pytest.mark.parametrize("epsilon", [0.1, 0.6, 1.0])
def test_flipping_is_smoothing_on_average(kind, epsilon):
    labels = torch.tensor([0, 1, 0, 0, 0]) if kind == "single" else torch.tensor([0, 1, 1, 0, 1])
    rows = 40_000
    flipped = flip_labels(labels.expand(rows, 5), epsilon, kind=kind, generator=seeded())
    mean, expected = flipped.double().mean(0), smooth_labels(labels.double(), epsilon, kind=kind)
    spread = torch.sqrt(expected * (1 - expected) / rows)
    assert ((mean - expected).abs() <= 5 * spread + 1e-12).all()


def test_flipped_single_labels_stay_single_and_types_stay():
    one_hot = torch.nn.functional.one_hot(torch.arange(7) % 4, 4)
    flipped = flip_labels(one_hot, 0.8, kind="single", generator=seeded())
    assert (flipped.sum(-1) == 1).all()
    for dtype in (torch.bool, torch.uint8, torch.float32):
        assert flip_labels(one_hot.to(dtype), 0.5, generator=seeded()).dtype == dtype
    assert torch.equal(flip_labels(torch.ones(3, 1), 1.0, kind="single", generator=seeded()), torch.ones(3, 1))


def test_generators_repeat_and_global_randomness_is_left_alone():
    labels = torch.rand(50, 20) < 0.5
    state = torch.random.get_rng_state()
    first, second = (flip_labels(labels, 0.5, generator=seeded(3)) for _ in range(2))
    images = torch.rand(8, 1, 6, 6, generator=seeded())
    for tool in (mixup, cutmix):
        one, two = (tool(images, labels[:8], generator=seeded(3)) for _ in range(2))
        assert torch.equal(one[0], two[0])
        assert one[2] == two[2]
    assert torch.equal(first, second)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_smoothing_keeps_what_it_promises():
    labels = torch.tensor([[1, 0, 1, 0, 0]])
    assert smooth_labels(labels, 0.3, kind="mass").sum().item() == pytest.approx(2)
    assert smooth_labels(labels[:, :2], 0.3, kind="single").sum().item() == pytest.approx(1)
    assert smooth_labels(labels, 0.3, kind="positives").tolist()[0] == pytest.approx([0.7, 0, 0.7, 0, 0])
    assert torch.equal(smooth_labels(labels, 0.0), labels.float())
    assert smooth_labels(labels.double(), 0.1).dtype == torch.float64
    assert smooth_labels(torch.zeros(2, 0), 0.1, kind="mass").shape == (2, 0)


@given(share=st.floats(0, 1), seed=st.integers(0, 1000))
def test_mixing_is_between_its_parts(share, seed):
    a, b = (torch.rand(3, 4, generator=seeded(seed + i)) for i in range(2))
    mixed = mix_labels(a, b, share)
    assert (mixed <= torch.maximum(a, b) + 1e-6).all()
    assert (mixed >= torch.minimum(a, b) - 1e-6).all()
    torch.testing.assert_close(mix_labels(a, b, 1.0), a)


def test_mixup_mixes_inputs_and_labels_with_one_share():
    inputs, labels = torch.eye(6), torch.eye(6)
    mixed, soft, share = mixup(inputs, labels, alpha=1.0, generator=seeded(5))
    assert torch.equal(mixed, soft)
    assert 0 <= share <= 1


def test_the_share_is_beta_distributed():
    shares = torch.tensor([mixup(torch.zeros(1, 1), torch.zeros(1, 1), alpha=0.4, generator=seeded(s))[2] for s in range(2000)])
    assert shares.mean().item() == pytest.approx(0.5, abs=0.04)
    assert shares.var().item() == pytest.approx(1 / (4 * (2 * 0.4 + 1)), rel=0.1)


def test_cutmix_labels_follow_the_area():
    images = torch.stack([torch.full((1, 8, 10), float(i)) for i in range(2)])
    mixed, soft, share = cutmix(images, torch.eye(2), generator=seeded(1))
    for row in range(2):
        own = (mixed[row] == row).float().mean().item()
        expected = own if soft[row, row] < 1 else 1.0
        assert soft[row, row].item() == pytest.approx(expected)
    assert 0 <= share <= 1


def test_a_teachers_labels_have_their_minimum_at_the_teacher():
    teacher = torch.randn(4, 6, generator=seeded(), dtype=torch.float64, requires_grad=True)
    labels = soft_labels_from(teacher)
    assert not labels.requires_grad
    student = teacher.detach().clone().requires_grad_()
    zlpr_loss(student, labels).backward()
    torch.testing.assert_close(student.grad, torch.zeros_like(student), atol=1e-12, rtol=0)
    assert soft_labels_from(torch.tensor(1.0).reshape(1), link="hard", temperature=2.0).item() == pytest.approx(
        1 / (1 + math.exp(-0.5))
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: smooth_labels(torch.zeros(2), 1.5), r"`epsilon` must be a number in \[0, 1\]; got 1.5"),
        (lambda: smooth_labels(torch.zeros(2), 0.1, kind="masss"), "Did you mean 'mass'"),
        (lambda: flip_labels(torch.zeros(2), 0.1, kind="mass"), "one of 'uniform', 'single'"),
        (lambda: mix_labels(torch.zeros(2), torch.zeros(3), 0.5), r"shape of `labels_a`, \[2\]; got \[3\]"),
        (lambda: mixup(torch.zeros(2, 1), torch.zeros(3, 1)), "the same number of rows"),
        (lambda: mixup(torch.zeros(2, 1), torch.zeros(2, 1), alpha=0), "`alpha` must be a number > 0"),
        (lambda: cutmix(torch.zeros(2, 4), torch.zeros(2, 1)), r"must be \[B, C, H, W\]"),
        (lambda: soft_labels_from(torch.zeros(2), temperature=0), "`temperature` must be a number > 0"),
    ],
)
def test_bad_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_index_lists_are_not_smoothed_into_dense_labels_behind_your_back():
    with pytest.raises(TypeError, match="the loss's own `smoothing`"):
        smooth_labels(SparseLabels.from_lists([[0]], num_labels=2), 0.1)


def expected_loss_of_flips(loss, logits, labels, epsilon):
    """Over all ways in which the labels of one row can flip, each with its probability."""
    flips = torch.tensor(list(itertools.product([0, 1], repeat=len(labels))), dtype=torch.float64)
    chance = (flips * epsilon / 2 + (1 - flips) * (1 - epsilon / 2)).prod(dim=1)
    flipped = (labels - flips).abs()
    return (chance * loss(logits.expand_as(flipped), flipped, reduction="none")).sum()


ROW = torch.tensor([9.0, 6.0, -7.0, -8.0, 5.0, -6.0], dtype=torch.float64), torch.tensor([1.0, 1, 0, 0, 1, 0]).double()


@pytest.mark.parametrize("loss", [bce_loss, focal_loss, squared_hinge_loss])
def test_flipping_is_smoothing_in_expectation_for_losses_linear_in_the_labels(loss):
    logits, labels = ROW
    smoothed = loss(logits, smooth_labels(labels, 0.2))
    torch.testing.assert_close(expected_loss_of_flips(loss, logits, labels, 0.2), smoothed)


def test_single_label_flipping_is_smoothing_in_expectation_for_softmax():
    logits, _ = ROW
    one = torch.eye(6, dtype=torch.float64)
    chance = torch.full((6,), 0.2 / 5, dtype=torch.float64)
    chance[1] = 0.8
    expected = (chance * softmax_loss(logits.expand(6, 6), one, reduction="none")).sum()
    torch.testing.assert_close(softmax_loss(logits, smooth_labels(one[1], 0.2, kind="single")), expected)


@pytest.mark.parametrize("sign", [1, -1], ids=["right", "wrong"])
@pytest.mark.parametrize("loss", [zlpr_loss, pairwise_loss])
def test_flipping_costs_less_than_smoothing_on_average_for_zlpr_and_pairwise(loss, sign):
    logits, labels = sign * ROW[0], ROW[1]
    smoothed = loss(logits, smooth_labels(labels, 0.2))
    assert expected_loss_of_flips(loss, logits, labels, 0.2) < smoothed - 0.05


def test_the_expected_loss_of_flips_is_that_of_labels_which_are_drawn():
    logits, labels = ROW
    drawn = flip_labels(labels.expand(40_000, 6), 0.2, generator=torch.Generator().manual_seed(0))
    found = zlpr_loss(logits.expand(40_000, 6), drawn)
    assert found.item() == pytest.approx(expected_loss_of_flips(zlpr_loss, logits, labels, 0.2).item(), rel=0.02)
    # Two labels, each wrong by 8: computed by hand from the four ways to flip.
    wrong, truth = torch.tensor([-8.0, 8.0], dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
    no_flip, both_flip = 2 * math.log1p(math.exp(8)), 2 * math.log1p(math.exp(-8))
    one_flips = math.log(1 + math.exp(8) + math.exp(-8))
    expected = 0.95**2 * no_flip + 0.05**2 * both_flip + 2 * 0.95 * 0.05 * one_flips
    assert expected_loss_of_flips(zlpr_loss, wrong, truth, 0.1).item() == pytest.approx(expected, rel=1e-12)
    assert (round(expected, 2), round(zlpr_loss(wrong, smooth_labels(truth, 0.1)).item(), 2)) == (15.2, 15.9)
