import numpy as np
import pytest
import torch

import manyhot
from integrations import hostile
from manyhot.integrations.huggingface import TrainerLoss

NAN = float("nan")


def outputs_of(logits):
    return {"logits": logits}


@pytest.mark.parametrize("name", hostile.CASES)
@pytest.mark.parametrize(("loss", "function"), [("zlpr", "zlpr_loss"), ("pairwise", "pairwise_loss"), ("bce", "bce_loss")])
def test_values_and_gradients_are_those_of_the_loss_on_hostile_rows(name, loss, function):
    case = hostile.CASES[name]
    values, gradient = hostile.reference(name, function)
    logits = torch.tensor(case.logits, requires_grad=True)
    labels = torch.tensor(case.labels)
    if case.where is not None:
        labels = torch.where(torch.tensor(case.where), labels, NAN)
    value = TrainerLoss(loss)(outputs_of(logits), labels)
    value.backward()
    np.testing.assert_allclose(value.item(), values.mean(), rtol=1e-6)
    np.testing.assert_allclose(logits.grad.numpy() * len(values), gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("loss", sorted(set(manyhot.LOSSES) - {"two_way", "lsep", "softmax"}))
def test_micro_batches_add_up_to_the_batch_for_every_loss(loss):
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(12, 5, generator=generator), (torch.rand(12, 5, generator=generator) < 0.4).float()
    whole = TrainerLoss(loss)(outputs_of(logits), labels)
    count = torch.tensor(labels.numel())
    cuts = [(0, 4), (4, 5), (5, 12)]
    parts = [TrainerLoss(loss)(outputs_of(logits[a:b]), labels[a:b], num_items_in_batch=count) for a, b in cuts]
    torch.testing.assert_close(sum(parts), whole)


def test_unknown_labels_do_not_change_the_scale():
    logits, labels = torch.randn(4, 3), torch.tensor([[1.0, 0.0, NAN]] * 4)
    known = manyhot.zlpr_loss(logits[:, :2], labels[:, :2])
    count = labels.ne(-100).sum()
    torch.testing.assert_close(TrainerLoss()(outputs_of(logits), labels, num_items_in_batch=count), known)


def test_label_lists_are_the_dense_labels():
    logits = torch.randn(3, 5, requires_grad=True)
    lists = torch.tensor([[4, 0, -1], [-1, -1, -1], [2, -1, -1]])
    dense = torch.zeros(3, 5)
    dense[0, [0, 4]] = dense[2, 2] = 1
    got = TrainerLoss(labels="lists")(outputs_of(logits), lists, num_items_in_batch=lists.ne(-100).sum())
    torch.testing.assert_close(got, manyhot.zlpr_loss(logits, dense))


def test_options_reach_the_loss():
    logits, labels = torch.randn(4, 3), torch.eye(4, 3)
    weight = torch.tensor([1.0, 2.0, 3.0])
    got = TrainerLoss("zlpr", smoothing=0.1, pos_weight=weight)(outputs_of(logits), labels)
    torch.testing.assert_close(got, manyhot.zlpr_loss(logits, labels, smoothing=0.1, pos_weight=weight))


def test_wrong_uses_are_named():
    logits, labels = torch.randn(2, 3), torch.eye(2, 3)
    with pytest.raises(TypeError, match=r"no option 'smooting'\. Did you mean 'smoothing'"):
        TrainerLoss("zlpr", smooting=0.1)
    with pytest.raises(TypeError, match="no option 'reduction'"):
        TrainerLoss("zlpr", reduction="sum")
    with pytest.raises(ValueError, match="compares the rows of a batch"):
        TrainerLoss("two_way")
    with pytest.raises(ValueError, match="unknown labels must be NaN; got -100"):
        TrainerLoss()(outputs_of(logits), torch.tensor([[1, -100, 0], [0, 1, 0]]))
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]; got 3"):
        TrainerLoss()(outputs_of(logits), torch.tensor([[3, 1, 0], [0, 1, 0]]))
    with pytest.raises(ValueError, match="must have the shape of `logits`"):
        TrainerLoss()(outputs_of(logits), labels.flatten())
    with pytest.raises(ValueError, match="has no `labels`"):
        TrainerLoss()(outputs_of(logits), None)
    with pytest.raises(TypeError, match="must hold `logits`"):
        TrainerLoss()({"hidden": logits}, labels)
    with pytest.raises(TypeError, match="label numbers"):
        TrainerLoss(labels="lists")(outputs_of(logits), labels)
