"""The values members are chosen by are the library's metrics."""

import torch

from manyhot.comparison.selection import best_cuts, natural_value, tuned_value
from manyhot.decisions.tune import tune_rule
from manyhot.metrics.running import Metrics

SIX = ["SubACC", "MLC-F1", "micro-F1", "macro-F1", "AvgPrec", "RankLoss"]


def problem():
    draw = torch.Generator().manual_seed(3)
    truth = torch.rand(40, 9, generator=draw) < 0.25
    truth[0], truth[1] = False, True
    return torch.randn(3, 40, 9, generator=draw) + truth * 1.5 - 1, truth


def mean_of_six(scores, truth, cut=0.0):
    from manyhot.decisions.rule import DecisionRule

    metrics = Metrics(SIX, num_labels=truth.shape[1], rule=DecisionRule(threshold=cut))
    metrics.update(scores, truth)
    found = metrics.compute()
    return sum(1 - float(value) if name == "RankLoss" else float(value) for name, value in found.items()) / 6


def test_the_natural_value_is_the_mean_of_six_metrics():
    scores, truth = problem()
    wanted = torch.tensor([mean_of_six(each, truth) for each in scores])
    torch.testing.assert_close(natural_value(scores, scores > 0, truth).float(), wanted, rtol=1e-5, atol=1e-6)


def test_the_tuned_value_takes_the_best_cut_for_micro_f1():
    scores, truth = problem()
    cuts = best_cuts(scores, truth)
    for each, cut, value in zip(scores, cuts, tuned_value(scores, truth), strict=True):
        exact = tune_rule(each, truth.float(), objective="micro-F1", folds=0).rule.threshold
        assert ((each > exact) == (each >= cut)).all()
        assert abs(mean_of_six(each, truth, exact) - float(value)) < 1e-6
