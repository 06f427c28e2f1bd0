"""Which losses of a mean are kept."""

import pytest
import torch

from manyhot import SparseLabels
from manyhot.metrics.ranking import coverage_error, ranking_error
from manyhot.training.rows.kept_losses import kept_losses, row_values
from manyhot.training.rows.rules.fitting import Tuning


def tunings(*noises, rows=400):
    draw = torch.Generator().manual_seed(0)
    truth = torch.rand(rows, 5, generator=draw) < 0.4
    labels = SparseLabels.from_dense(truth)
    return [Tuning(2.0 * truth + noise * torch.randn(rows, 5, generator=draw), labels, None) for noise in noises]


@pytest.mark.parametrize(("metric", "function"), [("RankLoss", ranking_error), ("coverage-error", coverage_error)])
def test_the_values_of_rows_are_those_of_the_metric_with_errors_negated(metric, function):
    (own,) = tunings(2.0)
    expected = -function(own.all_scores, own.labels, reduction="none").double()
    torch.testing.assert_close(row_values(metric, own), expected)


def test_losses_of_like_quality_are_all_kept():
    assert kept_losses("RankLoss", tunings(2.0, 2.0, 2.0)) == (0, 1, 2)


def test_a_loss_that_is_clearly_worse_is_left_out():
    assert kept_losses("RankLoss", tunings(1.0, 30.0, 1.0)) == (0, 2)
    assert kept_losses("RankLoss", tunings(30.0, 30.0, 0.5)) == (2,)


def test_few_rows_do_not_decide():
    assert kept_losses("RankLoss", tunings(1.0, 4.0, 1.0, rows=19)) == (0, 1, 2)
    assert kept_losses("RankLoss", tunings(1.0, 30.0, rows=1)) == (0, 1)
