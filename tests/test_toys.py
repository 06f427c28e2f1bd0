"""A toy loss and a toy metric, each in one file and one entry: what CONTRIBUTING promises is tried."""

import pytest
import torch
from torch import Tensor

from manyhot import Metrics, get_loss
from manyhot._checks import check_at_least
from manyhot.evaluation import evaluate
from manyhot.losses import catalog
from manyhot.losses.core.labelwise import over_labels, weigh
from manyhot.losses.core.layout import arrange
from manyhot.losses.core.reduction import reduce, softplus
from manyhot.losses.info import LossInfo, options_of
from manyhot.losses.module import LossModule
from manyhot.metrics import catalog as metric_catalog
from manyhot.metrics.confusion import Confusion
from manyhot.metrics.info import DECISIONS, SCORES, MetricInfo
from manyhot.metrics.measures import LabelMeasure, RowMeasure
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from training.problems import text_examples


def toy_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    width: float = 1.0,
    where: Tensor | None = None,
    sample_weight: Tensor | None = None,
    smoothing: float = 0.0,
    label_reduction: str = "sum",
    reduction: str = "mean",
    validate: bool = False,
) -> Tensor:
    """Binary cross-entropy of sigma(s / w)."""
    check_at_least("toy_loss", "width", width, 0, strict=True)
    rows = arrange("toy_loss", logits, labels, where=where, smoothing=smoothing, validate=validate)

    def term(x: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        return weigh(pos, softplus(-x / width)) + weigh(neg, softplus(x / width))

    values = over_labels("toy_loss", rows, term, label_reduction)
    return reduce("toy_loss", values, sample_weight=sample_weight, reduction=reduction, validate=validate)


class ToyLoss(LossModule):
    """``toy_loss`` as a module."""

    def __init__(self, *, width: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(toy_loss, width=width, reduction=reduction)


TOY_LOSS = LossInfo(
    name="toy",
    title="toy",
    family="binary relevance",
    function=toy_loss,
    module=ToyLoss,
    summary="binary cross-entropy with a width",
    decision="zero",
    link="hard",
    soft_link="hard",
    options=options_of(toy_loss, width="width of the sigmoid, > 0"),
)


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(catalog._BY_NAME, "toy", TOY_LOSS)
    return get_loss("toy")


def test_an_entry_is_all_that_a_loss_needs(toy):
    logits, labels = torch.randn(4, 5), torch.rand(4, 5) < 0.5
    torch.testing.assert_close(toy.module()(logits, labels), toy(logits, labels))
    assert toy.parse_options(["width=2"]) == {"width": 2.0}
    assert toy.why_not("smoothing") is None
    assert toy.why_not("pos_weight") == "toy has no `pos_weight`"


def test_a_model_trains_with_a_loss_that_was_entered(toy):
    model = train(text_examples(), TrainSettings(loss="toy", threads=1))
    assert model.settings.loss == "toy"
    assert model.link == "hard"
    assert evaluate(model, text_examples(seed=1), ["micro-F1"])["micro-F1"] > 0.8


def share_of_labels_found(labels: Confusion) -> Tensor:
    """Of the labels that occur, how many are predicted right at least once."""
    occurs = labels.positive > 0
    return ((labels.hits > 0) & occurs).double().sum() / occurs.sum().clamp(min=1)


def test_an_entry_is_all_that_a_metric_needs(monkeypatch):
    found = MetricInfo("labels-found", "labels found at least once", "up", DECISIONS, LabelMeasure(share_of_labels_found))
    best = MetricInfo("best-score", "highest score", "up", SCORES, RowMeasure(lambda work, _: work.block.scores.amax(1)))
    monkeypatch.setitem(metric_catalog._BY_NAME, found.name, found)
    monkeypatch.setitem(metric_catalog._BY_NAME, best.name, best)
    metrics = Metrics(["labels-found", "best-score", "micro-F1"], num_labels=3)
    for scores, labels in (([[2.0, -1.0, 0.5]], [[1, 0, 0]]), ([[1.0, -1.0, -0.5]], [[0, 0, 1]])):
        metrics.update(torch.tensor(scores), torch.tensor(labels))
    assert metrics.compute() == pytest.approx({"labels-found": 0.5, "best-score": 1.5, "micro-F1": 0.4})
