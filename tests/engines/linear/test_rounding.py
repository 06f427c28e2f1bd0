"""Stochastic rounding: unbiased, exact where nothing has to be rounded, another noise for every step."""

import pytest
import torch

from manyhot.engines.linear.rounding import round_stochastically, rounding_noise


def noise(step, shape=(64, 64), seed=7, first=0):
    return rounding_noise(torch.tensor(seed), torch.tensor(step), first, *shape)


def test_noise_is_uniform_and_differs_from_step_to_step_and_label_to_label():
    drawn = torch.stack([noise(step, (32, 128)) for step in range(64)]).float()
    assert drawn.min() >= 0
    assert drawn.max() <= 65535
    bound = 5 * 65536 / 12**0.5
    assert abs(drawn.mean() - 32767.5) < bound / drawn.numel() ** 0.5
    for axis in range(3):
        spread = (drawn.mean(dim=axis) - 32767.5).abs().max()
        assert spread < 1.2 * bound / drawn.shape[axis] ** 0.5
    counts = torch.bincount((drawn.flatten() / 4096).long(), minlength=16).float()
    assert ((counts - counts.mean()).abs() < 5 * counts.mean().sqrt()).all()


def test_noise_depends_on_all_64_bits_and_not_on_the_chunk():
    assert torch.equal(noise(5, (64, 8))[32:], noise(5, (32, 8), first=32))
    for seed, step in ((7 + 2**40, 5), (7, 5 + 2**40), (-7, 5), (7, -5)):
        assert (noise(step, (64, 8), seed=seed) != noise(5, (64, 8))).float().mean() > 0.99


@pytest.mark.parametrize("value", [1.0 + 2**-9, -0.0078 + 1e-6, 3e-39, 0.3, -250.7, 2**-100])
def test_rounding_is_unbiased(value):
    x = torch.full((512, 512), value)
    got = round_stochastically(x, noise(3, (512, 512))).double()
    below, above = got.min(), got.max()
    assert below <= value <= above
    gap = float(above - below)
    assert len(got.unique()) <= 2
    # The standard deviation of the mean is at most half a gap over the root of the count.
    assert abs(float(got.mean()) - float(x[0, 0].double())) <= 5 * gap / 2 / 512 + 1e-45


def test_numbers_that_bfloat16_holds_are_not_changed():
    kept = torch.tensor([0.0, -0.0, 1.0, -3.5, torch.inf, -torch.inf, 2.0**-133, 3.3895e38]).bfloat16()
    for step in range(20):
        got = round_stochastically(kept.float(), noise(step, (1, 8))[0])
        assert torch.equal(got.view(torch.int16), kept.view(torch.int16))
    assert round_stochastically(torch.tensor([torch.nan]), noise(0, (1, 1))[0]).isnan().all()


def test_many_small_steps_move_a_weight_that_rounding_to_nearest_would_not():
    start, change, steps = 0.0078, -5e-6, 400
    weight = torch.full((64, 64), start).bfloat16()
    nearest = weight.clone()
    for step in range(steps):
        weight = round_stochastically(weight.float() + change, noise(step))
        nearest = (nearest.float() + change).bfloat16()
    assert abs(weight.float().mean() - (start + steps * change)) < 1e-4
    assert torch.equal(nearest, torch.full((64, 64), start).bfloat16())
