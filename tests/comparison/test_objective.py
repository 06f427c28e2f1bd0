"""The loss of many members is the sum of the library's loss of each."""

import pytest
import torch

from manyhot.comparison.methods import parse_method
from manyhot.comparison.objective import MemberLoss
from manyhot.losses.catalog import get_loss

S, B, L = 2, 12, 7
NAMES = ["zlpr", "bce", "focal", "asymmetric", "dice1", "dice2", "pairwise", "two_way", "lsep", "zlpr+smoothing"]


def problem(trials, seed=0):
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(S, B, trials, L, generator=draw, dtype=torch.float32)
    labels = (torch.rand(S, B, L, generator=draw) < 0.3).float()
    labels[0, 0] = 0
    return logits.requires_grad_(), labels


@pytest.mark.parametrize("name", [*NAMES, "zlpr+pos_weight=3", "zlpr+pos_weight=labels"])
def test_members_are_the_librarys_loss_each(name):
    method = parse_method(name)
    trials = method.trials(4, (0.01, 0.1))
    logits, labels = problem(len(trials))
    loss = MemberLoss(method, trials, seeds=S, num_labels=L, device=torch.device("cpu"))
    total = loss(logits, labels, None, [])
    (gradient,) = torch.autograd.grad(total, logits)
    each = []
    for seed in range(S):
        for place, trial in enumerate(trials):
            settings = {name: value for name, value in trial.items() if name != "learning_rate"}
            if method.loss in ("bce", "focal", "asymmetric"):
                settings["label_reduction"] = "sum"
            if method.loss == "lsep":
                settings["max_pairs"] = None
            weight = method.options.get("pos_weight")
            settings |= {} if weight is None else {"pos_weight": 7.0 if weight == "labels" else weight}
            each.append(get_loss(method.loss)(logits[seed, :, place], labels[seed], **settings))
    oracle = torch.stack(each).sum()
    torch.testing.assert_close(total, oracle, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, torch.autograd.grad(oracle, logits)[0], rtol=1e-4, atol=1e-6)


def test_a_learned_threshold_gets_a_gradient_for_each_member():
    method = parse_method("tlpr")
    trials = method.trials(3, (0.01, 0.1))
    logits, labels = problem(3)
    loss = MemberLoss(method, trials, seeds=S, num_labels=L, device=torch.device("cpu"))
    loss(logits, labels, None, []).backward()
    assert loss.threshold.grad.shape == (S, 3)
    assert (loss.threshold.grad != 0).all()


def test_label_powerset_is_cross_entropy_over_sets():
    method = parse_method("powerset")
    trials = method.trials(2, (0.01, 0.1))
    logits, _ = problem(2)
    classes = torch.randint(0, L, (S, B), generator=torch.Generator().manual_seed(1))
    total = MemberLoss(method, trials, seeds=S, num_labels=L, device=torch.device("cpu"))(logits, classes, None, [])
    each = [torch.nn.functional.cross_entropy(logits[s, :, t], classes[s]) for s in range(S) for t in range(2)]
    torch.testing.assert_close(total, torch.stack(each).sum())


@pytest.mark.parametrize("name", ["zlpr+rdrop=1", "zlpr+rdrop=1+smoothing=0.1", "zlpr+rdrop=1+pos_weight=3"])
def test_r_drop_of_zlpr_reaches_the_fused_form(name, monkeypatch):
    from manyhot.losses import divergence

    fused, inner = [], divergence.pair_loss

    def watched(*args, **settings):
        value = inner(*args, **settings)
        fused.append(settings["losses"] and value is not None)
        return value

    monkeypatch.setattr(divergence, "pair_loss", watched)
    method = parse_method(name)
    logits, labels = problem(2)
    again = problem(2, seed=1)[0]
    loss = MemberLoss(method, method.trials(2, (0.01, 0.1)), seeds=S, num_labels=L, device=torch.device("cpu"))
    total = loss(logits, labels, again, [])
    assert fused == [True]
    total.backward()
    assert (again.grad != 0).any()
