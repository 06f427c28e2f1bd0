"""Steps: embeddings by the sums of their rows' gradients, all else by AdamW."""

import copy

import pytest
import torch
from torch import nn

from manyhot.training.run.steps import EMBEDDING_RATE, AdamSteps, EmbeddingSteps


def parameters(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(*size, generator=generator)) for size in ((6, 3), (4, 3), (4,))]


def give_gradients(own, step):
    generator = torch.Generator().manual_seed(100 + step)
    rows = torch.randperm(6, generator=generator)[:3].sort().values
    own[0].grad = torch.sparse_coo_tensor(rows[None], torch.randn(3, 3, generator=generator), (6, 3), check_invariants=True)
    for each in own[1:]:
        each.grad = torch.randn(each.shape, generator=generator)


def test_adam_steps_are_those_of_torch():
    own, other = parameters()[1:], parameters()[1:]
    steps = AdamSteps(own, weight_decay=0.1)
    decayed, free = ({"params": [each], "weight_decay": decay} for each, decay in zip(other, (0.1, 0.0), strict=True))
    reference = torch.optim.AdamW([decayed, free], lr=0.01)
    for step in range(5):
        for each, twin in zip(own, other, strict=True):
            each.grad = torch.randn(each.shape, generator=torch.Generator().manual_seed(step))
            twin.grad = each.grad.clone()
        steps.step(0.01)
        reference.step()
    for each, twin in zip(own, other, strict=True):
        torch.testing.assert_close(each, twin)


def test_a_row_of_embeddings_moves_by_its_gradient_over_the_root_of_its_squares():
    own = parameters()
    steps = EmbeddingSteps(own[0], own[1:], weight_decay=0.0)
    wanted, sums = own[0].detach().double(), torch.zeros(6, dtype=torch.float64)
    for step in range(5):
        give_gradients(own, step)
        gradient = own[0].grad.to_dense().double()
        sums += gradient.square().mean(dim=1)
        wanted -= EMBEDDING_RATE * 0.01 * gradient / sums.sqrt().clamp(min=1e-30)[:, None]
        steps.step(0.01)
    torch.testing.assert_close(own[0].double(), wanted, rtol=1e-5, atol=1e-6)


def test_a_row_without_a_gradient_stays_where_it_is():
    own = parameters()
    steps = EmbeddingSteps(own[0], own[1:], weight_decay=0.5)
    give_gradients(own, 0)
    still = sorted(set(range(6)) - set(own[0].grad.coalesce().indices()[0].tolist()))
    before = own[0].detach().clone()
    steps.step(0.1)
    assert torch.equal(own[0][still], before[still])
    assert not torch.equal(own[0], before)


def test_a_gradient_of_zeros_moves_nothing_and_is_not_divided_by_zero():
    own = parameters()
    own[0].grad = torch.sparse_coo_tensor([[1, 2]], torch.zeros(2, 3), (6, 3), check_invariants=True)
    before = own[0].detach().clone()
    EmbeddingSteps(own[0], own[1:], weight_decay=0.0).step(0.1)
    assert torch.equal(own[0], before)


@pytest.mark.parametrize("kind", [AdamSteps, EmbeddingSteps])
def test_steps_that_are_taken_up_go_on_as_if_never_stopped(kind):
    def made(own):
        return AdamSteps(own, weight_decay=0.1) if kind is AdamSteps else EmbeddingSteps(own[0], own[1:], weight_decay=0.1)

    def run(own, steps, first, last):
        for step in range(first, last):
            give_gradients(own, step)
            if kind is AdamSteps:
                own[0].grad = own[0].grad.to_dense()
            steps.step(0.05)

    whole = parameters()
    run(whole, made(whole), 0, 6)
    first = parameters()
    begun = made(first)
    run(first, begun, 0, 3)
    second = copy.deepcopy(first)
    resumed = made(second)
    resumed.from_tensors({name: each.clone() for name, each in begun.to_tensors().items()})
    run(second, resumed, 3, 6)
    assert all(torch.equal(one, other) for one, other in zip(whole, second, strict=True))
