"""Rows of several programs: sums that integers hold and sums that they do not, alone and side by side in one row."""

import pytest
import torch

from manyhot import SparseLabels
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton import engine as triton_engine

pytestmark = pytest.mark.gpu
POSITIVES = (0, 5, 9000, 40_000)


def scores(kind, num_labels):
    """Negatives' scores ``[6, L]`` and what the positives have."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(6, num_labels, generator=generator)
    if kind == "usual":
        return 3 * (noise - 0.5), 2.0
    if kind == "tiny":  # the sum of a chunk is less than 2^-48
        return noise - 60, 60.0
    if kind == "huge":  # more than 2^24, in range of plain exponentials
        return noise + 12, -20.0
    if kind == "past the range":
        return 400 * noise, -200.0
    if kind == "nothing":
        return torch.full((6, num_labels), -torch.inf), torch.inf
    mixed = noise - 60
    mixed[:, 8192:9000] = 15
    mixed[1, 20_000] = 300
    mixed[2, 30_000:] = -torch.inf
    return mixed, 1.0


def check(x, terms, wanted, wanted_grad, tolerance):
    first = triton_engine.fused(x, terms)[:2]
    torch.testing.assert_close(first[0].double(), wanted, rtol=1e-5, atol=0)
    torch.testing.assert_close(first[1].double(), wanted_grad, rtol=tolerance, atol=1e-37)
    for _ in range(5):
        assert all(torch.equal(one, two) for one, two in zip(first, triton_engine.fused(x, terms)[:2], strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_labels", [131_072, 100_003, 1_048_576])
@pytest.mark.parametrize("kind", ["usual", "tiny", "huge", "past the range", "nothing", "mixed"])
def test_every_sum_is_merged_exactly(kind, num_labels, dtype):
    x, positive = scores(kind, num_labels)
    x[:, POSITIVES] = positive
    x = x.to("cuda", dtype)
    labels = torch.zeros(x.shape, dtype=torch.uint8, device="cuda")
    labels[:, POSITIVES] = 1
    signed = torch.where(labels == 1, -x.double(), x.double())
    sides = [torch.where(labels == one, signed, -torch.inf).logsumexp(dim=1) for one in (1, 0)]
    zero = torch.zeros((), dtype=torch.float64, device="cuda")
    softplus = [torch.where(side < -30, side.exp(), torch.logaddexp(side, zero)) for side in sides]
    totals = torch.where(labels == 1, torch.logaddexp(sides[0], zero)[:, None], torch.logaddexp(sides[1], zero)[:, None])
    grad = torch.where(labels == 1, -1.0, 1.0) * torch.exp(signed - totals)
    lists = SparseLabels.from_dense(labels)
    for terms in (DenseTerms(labels), SparseTerms(lists.indices, lists.offsets)):
        check(x, terms, sum(softplus), grad, 1e-4 if dtype == torch.float32 else 1e-2)
