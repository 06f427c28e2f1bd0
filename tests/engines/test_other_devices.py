"""Devices that no engine is written for, such as MPS: every loss takes the plain form, without an error or a warning."""

import warnings

import pytest
import torch

from manyhot.engines import registry
from manyhot.engines.terms import DenseTerms
from manyhot.losses.catalog import LOSSES


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", list(LOSSES))
def test_a_loss_on_a_device_without_an_engine_takes_the_plain_form(name, dtype):
    logits = torch.zeros(4, 6, device="meta", dtype=dtype, requires_grad=True)
    labels = torch.zeros(4, 6, device="meta", dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert registry.choose(name, "auto", logits, DenseTerms(labels)) is None
        LOSSES[name](logits, labels).backward()
    assert logits.grad is not None
    assert logits.grad.dtype == dtype
