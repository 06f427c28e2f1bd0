"""LinearScores: what a loss says of the dense tensor, without the tensor."""

import functools

import pytest
import torch
from torch.autograd import gradcheck

from manyhot import LOSSES, LinearScores, SparseLabels, pairwise_loss, tlpr_loss, two_way_loss, zlpr_loss

# Those that are made of the two sides alone; decoupled softmax has a file of its own.
LAZY = [name for name, loss in LOSSES.items() if loss.lazy and name != "decoupled"]


def head(seed=0, rows=5, size=4, num_labels=23, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    made = [
        torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((rows, size), (num_labels, size), (num_labels,))
    ]
    labels = torch.rand(rows, num_labels, generator=generator) < 0.2
    return [part.requires_grad_() for part in made], labels


@pytest.mark.parametrize("name", LAZY)
@pytest.mark.parametrize("chunk_size", [1, 7, 23, None])
@pytest.mark.parametrize("kind", ["hard", "soft", "sparse", "soft sparse"])
@pytest.mark.parametrize("extras", [False, True])
def test_losses_and_gradients_are_those_of_the_dense_tensor(name, chunk_size, kind, extras):
    (hidden, weight, bias), labels = head()
    if "soft" in kind:
        labels = labels * torch.rand(labels.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    settings = {}
    if extras:
        generator = torch.Generator().manual_seed(2)
        settings = {
            "where": torch.rand(labels.shape, generator=generator) < 0.8,
            "pos_weight": torch.rand(23, generator=generator, dtype=torch.float64),
            "neg_weight": 0.5,
            "smoothing": 0.1,
        }
    given = SparseLabels.from_dense(labels) if "sparse" in kind else labels
    lazy = LOSSES[name](LinearScores(hidden, weight, bias, chunk_size=chunk_size), given, **settings)
    dense = LOSSES[name](LinearScores(hidden, weight, bias).dense(), labels, **settings)
    torch.testing.assert_close(lazy, dense)
    got = torch.autograd.grad(lazy, (hidden, weight, bias))
    expected = torch.autograd.grad(dense, (hidden, weight, bias))
    torch.testing.assert_close(got, expected)


def test_gradients_agree_with_finite_differences():
    parts, labels = head(rows=2, size=3, num_labels=5)
    sparse = SparseLabels.from_dense(labels)
    assert gradcheck(lambda h, w, b: zlpr_loss(LinearScores(h, w, b, chunk_size=2), sparse), parts)


def test_leading_axes_scaling_and_a_missing_bias():
    (hidden, weight, _), labels = head(rows=6)
    scores = LinearScores(hidden.reshape(2, 3, 4), weight, chunk_size=5)
    assert scores.shape == (2, 3, 23)
    truth = labels.reshape(2, 3, 23)
    torch.testing.assert_close(zlpr_loss(scores, truth, reduction="none"), zlpr_loss(scores.dense(), truth, reduction="none"))
    torch.testing.assert_close((scores * 0.5).dense(), scores.dense() * 0.5)
    torch.testing.assert_close(
        pairwise_loss(scores, truth, scale=3.0, margin=0.1), pairwise_loss(scores.dense(), truth, scale=3.0, margin=0.1)
    )
    torch.testing.assert_close(
        two_way_loss(scores, truth, batch_weight=0.0), two_way_loss(scores.dense(), truth, batch_weight=0.0)
    )


def test_only_what_needs_a_gradient_gets_one():
    (hidden, weight, bias), labels = head()
    hidden, bias = hidden.detach(), bias.detach()
    tlpr_loss(LinearScores(hidden, weight, bias), labels, 0.5).backward()
    assert weight.grad is not None


def test_no_rows_and_no_labels():
    for rows, num_labels in ((0, 3), (2, 0)):
        hidden, weight = torch.zeros(rows, 4, requires_grad=True), torch.zeros(num_labels, 4, requires_grad=True)
        value = zlpr_loss(LinearScores(hidden, weight), torch.zeros(rows, num_labels))
        value.backward()
        assert value.item() == 0
        assert hidden.grad.shape == (rows, 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_sum_in_float32(dtype):
    parts, labels = head(dtype=torch.float32)
    half = [part.detach().to(dtype).requires_grad_() for part in parts]
    value = zlpr_loss(LinearScores(*half, chunk_size=4), labels)
    value.backward()
    assert value.dtype == torch.float32
    assert half[1].grad.dtype == dtype
    torch.testing.assert_close(value, zlpr_loss(LinearScores(*half).dense(), labels), rtol=1e-2, atol=1e-2)


def test_autocast_multiplies_in_its_type_and_sums_in_float32():
    (hidden, weight, bias), labels = head(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lazy = zlpr_loss(LinearScores(hidden, weight, bias, chunk_size=6), labels)
        dense = zlpr_loss(LinearScores(hidden, weight, bias).dense(), labels)
    torch.testing.assert_close(lazy, dense)
    got, expected = (torch.autograd.grad(value, weight)[0] for value in (lazy, dense))
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-3)


def test_memory_is_that_of_a_chunk_and_not_of_all_labels():
    rows, num_labels, size = 64, 200_000, 4
    hidden = torch.randn(rows, size, requires_grad=True)
    weight = torch.randn(num_labels, size)
    labels = SparseLabels.from_lists([[i] for i in range(rows)], num_labels=num_labels)
    largest = functools.reduce(
        max, _sizes_allocated(lambda: zlpr_loss(LinearScores(hidden, weight, chunk_size=1000), labels).backward())
    )
    assert largest <= 4 * rows * 1000 * 4


def _sizes_allocated(function):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        function()
    return [max(event.self_cpu_memory_usage, 0) for event in record.events()]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: LinearScores(torch.zeros(2, 3), torch.zeros(5, 4)),
            r"`weight` must be \[L, D\] with the D of `hidden`, 3; got \[5, 4\]",
        ),
        (lambda: LinearScores(torch.zeros(2, 3), torch.zeros(5, 3), torch.zeros(4)), r"one value per label, \[5\]; got \[4\]"),
        (lambda: LinearScores(torch.zeros(2, 3), torch.zeros(5, 3), chunk_size=0), "`chunk_size` must be a number >= 1"),
        (
            lambda: zlpr_loss(LinearScores(torch.zeros(2, 3), torch.zeros(5, 3)), torch.zeros(2, 5), dim=0),
            "labels on the last axis; got dim 0",
        ),
        (lambda: zlpr_loss(LinearScores(torch.zeros(2, 3), torch.zeros(5, 3)), torch.zeros(2, 4)), "shape of `logits`"),
    ],
)
def test_parts_that_do_not_fit_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
