"""Contributions: they add up to the score, exactly where it is linear."""

import pytest
import torch

from manyhot.explain.contributions import LinearFactors, gradient_contributions, is_reliable, linear_contributions
from manyhot.explain.explanation import WordShares, largest


def test_parts_and_base_of_a_linear_score_add_up_exactly():
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*size, generator=generator) for size in ((50,), (4, 50), (4,)))
    found = linear_contributions(x, weight, bias)
    assert torch.equal(found.error, torch.zeros(4).double()) or found.error.abs().max() < 1e-12
    torch.testing.assert_close(found.score, weight.double() @ x.double() + bias.double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("thin", [False, True])
def test_factors_give_the_weights_of_some_features_and_labels(thin):
    generator = torch.Generator().manual_seed(1)
    first = torch.randn(9, 3 if thin else 5, generator=generator)
    second = torch.randn(5, 3, generator=generator) if thin else None
    table = first @ second.T if thin else first
    weight, bias = LinearFactors(first, second, torch.arange(5.0)).rows(torch.tensor([7, 2]), [4, 0, 1])
    torch.testing.assert_close(weight.float(), table[[7, 2]][:, [4, 0, 1]].T)
    assert bias.tolist() == [4, 0, 1]


def test_gradient_times_input_is_exact_for_a_linear_body():
    layer = torch.nn.Linear(6, 3)
    x = torch.randn(6)
    found = gradient_contributions(layer, x, torch.zeros(6), [2, 0])
    torch.testing.assert_close(found.parts, (layer.weight[[2, 0]] * x).double())
    assert found.error.abs().max() < 1e-6


def test_more_steps_explain_more_of_a_bent_score():
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).double()
    x = 2 * torch.randn(8).double()
    errors = [gradient_contributions(body, x, torch.zeros_like(x), [0, 1], steps=n).error.abs().max() for n in (1, 4, 64)]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 1e-3


def test_steps_below_one_are_refused():
    with pytest.raises(ValueError, match="`steps` must be a number >= 1"):
        gradient_contributions(torch.nn.Linear(2, 1), torch.ones(2), torch.zeros(2), [0], steps=0)


def test_words_get_what_their_features_have():
    words = [(0, 3), (4, 7), (8, 11)]
    places = [(0, 0, 3), (0, 8, 11), (1, 0, 7), (2, 3, 4)]
    parts = torch.tensor([1.0, 2.0, 5.0]).double()
    # Feature 0 stands twice, feature 1 covers two words, feature 2 is a blank that belongs to no word.
    assert WordShares(words, places)(parts) == ((0, 3, 1.5), (4, 7, 1.0), (8, 11, 0.5))


def test_the_largest_parts_come_by_size_and_zeros_do_not():
    assert largest(torch.tensor([0.0, -3.0, 1.0, 2.0]), 10) == [1, 3, 2]
    assert largest(torch.tensor([0.0, -3.0, 1.0, 2.0]), 1) == [1]


def test_an_error_of_more_than_a_tenth_of_the_way_from_the_baseline_is_not_reliable():
    assert is_reliable(5.0, -10.0, 1.4)
    assert not is_reliable(5.0, -10.0, -1.6)
    assert is_reliable(2.0, 2.0, 0.0)
