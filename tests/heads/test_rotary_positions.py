import pytest
import torch

from manyhot.heads.rotary_positions import rotary


def draw(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def test_neighbouring_features_turn_as_complex_numbers():
    x = draw(2, 7, 6)
    turned = torch.view_as_complex(rotary(x).reshape(2, 7, 3, 2).contiguous())
    theta = 10000.0 ** (-torch.arange(3, dtype=torch.float64) / 3)
    turns = torch.polar(torch.ones(7, 3, dtype=torch.float64), torch.arange(7, dtype=torch.float64)[:, None] * theta)
    torch.testing.assert_close(turned, torch.view_as_complex(x.reshape(2, 7, 3, 2)) * turns)


def test_products_depend_on_the_distance_alone():
    q, k = draw(2, 1, 8).expand(2, 300, 8)
    products = rotary(q) @ rotary(k).mT
    for distance in (-250, -3, 0, 1, 17, 280):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-9, atol=1e-9)


def test_lengths_are_kept_and_the_first_position_stays():
    x = draw(5, 4)
    torch.testing.assert_close(rotary(x).norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(rotary(x)[0], x[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_far_positions_stay_apart_in_half_precision(dtype):
    x = torch.ones(4096, 64, dtype=dtype)
    turned = rotary(x)
    assert turned.dtype == dtype
    exact = rotary(x.double())
    assert (turned.double() - exact).abs().max() < 0.01
    assert (turned[-1] != turned[-2]).any()


def test_the_gradient_turns_back():
    assert torch.autograd.gradcheck(rotary, draw(2, 3, 4).requires_grad_())


def test_odd_features_have_no_pairs():
    with pytest.raises(ValueError, match=r"even d, because features rotate in pairs; got \[2, 3\]"):
        rotary(torch.zeros(2, 3))
