"""Dice loss in float32."""

import pytest
import torch

from manyhot import dice_loss


@pytest.mark.parametrize("squared", [False, True])
def test_a_loss_near_zero_keeps_its_digits(squared):
    labels = torch.tensor([[1, 0, 1, 0]])
    logits = torch.where(labels > 0, 20.0, -20.0)
    wanted = dice_loss(logits.double(), labels, squared=squared)
    assert wanted > 0
    torch.testing.assert_close(dice_loss(logits, labels, squared=squared).double(), wanted, rtol=1e-5, atol=0)
