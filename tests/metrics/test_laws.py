"""Laws that every metric of the catalog keeps, run over the catalog."""

import math

import pytest
import torch

from manyhot import SparseLabels
from manyhot.metrics.at_k import label_propensities
from manyhot.metrics.catalog import METRICS
from manyhot.metrics.measures import RowMeasure
from manyhot.metrics.names import parse_metric
from manyhot.metrics.running import Metrics
from manyhot.scores.top import TopScores
from metrics.problems import random_problem

NAMES = [name.replace("@k", "@3") for name in METRICS]
LABELS = 6
PROPENSITIES = label_propensities(torch.arange(1, LABELS + 1) * 5, 100)


def make(name, **settings):
    return Metrics([name], num_labels=LABELS, **({"propensities": PROPENSITIES} | settings))


def value(name, scores, labels, where=None, **settings):
    metrics = make(name, **settings)
    metrics.update(scores, labels, where)
    return metrics.compute()[name]


def problem(seed=0, rows=40):
    return random_problem(rows, LABELS, 2, seed=seed)


@pytest.mark.parametrize("name", NAMES)
def test_batches_give_what_all_rows_at_once_give(name):
    scores, labels = problem()
    metrics = make(name)
    for start, stop in ((0, 1), (1, 17), (17, 17), (17, 40)):
        metrics.update(scores[start:stop], labels[start:stop])
    assert metrics.compute()[name] == pytest.approx(value(name, scores, labels), rel=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_rows_does_not_matter(name):
    scores, labels = problem()
    order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(3))
    assert value(name, scores[order], labels[order]) == pytest.approx(value(name, scores, labels), rel=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_labels_does_not_matter(name):
    scores, labels = problem()
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    turned = value(name, scores[:, order], labels[:, order], propensities=PROPENSITIES[order])
    assert turned == pytest.approx(value(name, scores, labels), rel=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_index_lists_give_what_dense_labels_give(name):
    scores, labels = problem()
    assert value(name, scores, SparseLabels.from_dense(labels)) == value(name, scores, labels)


@pytest.mark.parametrize("name", NAMES)
def test_rows_left_out_whole_count_only_as_empty_rows(name):
    scores, labels = problem()
    where = torch.ones_like(labels)
    where[30:] = False
    left_out, cut = make(name), make(name)
    left_out.update(scores.masked_fill(~where, float("nan")), labels, where)
    cut.update(scores[:30], labels[:30])
    # A row of which nothing is left is a row without labels, for metrics that average over rows.
    blank = make(name)
    blank.update(torch.zeros(10, LABELS), torch.zeros(10, LABELS), torch.zeros(10, LABELS, dtype=torch.bool))
    expected = cut.compute()[name]
    measure = parse_metric(name).info.measure
    if isinstance(measure, RowMeasure) and measure.best is None:
        expected = (30 * expected + 10 * blank.compute()[name]) / 40
    assert left_out.compute()[name] == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_a_perfect_prediction_is_at_the_good_end_and_others_are_worse(name):
    generator = torch.Generator().manual_seed(0)
    labels = torch.stack([torch.randperm(LABELS, generator=generator) < 3 for _ in range(40)])
    right, wrong = torch.where(labels, 40.0, -40.0), torch.where(labels, -40.0, 40.0)
    good, bad = value(name, right, labels), value(name, wrong, labels)
    others = [value(name, problem(seed)[0], labels) for seed in range(3)]
    if METRICS[parse_metric(name).kind].direction == "up":
        assert good == pytest.approx(1.0)
        assert good > max(others)
        assert good > bad
    else:
        assert good == pytest.approx(3.0 if name == "coverage-error" else 0.0, abs=1e-12)
        assert good < min(others)
        # The opposite of half of the labels has as many labels.
        assert good < bad or name == "label-count-error"


@pytest.mark.parametrize("name", [name for name in NAMES if METRICS[parse_metric(name).kind].needs in ("scores", "all scores")])
def test_only_the_order_of_scores_matters_to_metrics_of_order(name):
    scores, labels = problem()
    assert value(name, scores.double().exp() * 3 - 7, labels) == value(name, scores.double(), labels)


@pytest.mark.parametrize("name", [name for name in NAMES if METRICS[parse_metric(name).kind].needs == "decisions"])
def test_ready_predictions_take_the_place_of_the_rule(name):
    scores, labels = problem()
    for predictions in (scores > 0, SparseLabels.from_dense(scores > 0)):
        metrics = make(name)
        metrics.update(None, labels, predictions=predictions)
        assert metrics.compute()[name] == value(name, scores, labels)


@pytest.mark.parametrize("name", NAMES)
def test_lists_of_the_best_serve_those_that_say_so_and_no_others(name):
    scores, labels = problem()
    top = TopScores.from_dense(scores, k=3)
    if METRICS[parse_metric(name).kind].lists:
        assert value(name, top, SparseLabels.from_dense(labels)) == pytest.approx(value(name, scores, labels), rel=1e-12)
    else:
        with pytest.raises(ValueError, match=f"{name} needs the scores of all labels"):
            value(name, top, labels)


@pytest.mark.parametrize("name", NAMES)
def test_nan_is_an_error_that_names_the_row(name):
    scores, labels = problem()
    scores[7, 3] = float("nan")
    with pytest.raises(ValueError, match="must not be NaN; got one in row 7"):
        value(name, scores, labels)


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_give_nan(name):
    assert math.isnan(value(name, torch.zeros(0, LABELS), torch.zeros(0, LABELS)))


@pytest.mark.parametrize("name", NAMES)
def test_one_label_and_no_labels_are_taken(name):
    one = Metrics([name], num_labels=1, propensities=torch.ones(1))
    one.update(torch.tensor([[1.0], [-1.0]]), torch.tensor([[1], [0]]))
    assert math.isfinite(one.compute()[name])
    none = Metrics([name], num_labels=0, propensities=torch.ones(0))
    none.update(torch.zeros(2, 0), torch.zeros(2, 0))
    assert isinstance(none.compute()[name], float)


@pytest.mark.parametrize("name", NAMES)
def test_forward_gives_the_batch_and_keeps_the_total(name):
    scores, labels = problem()
    metrics = make(name)
    metrics(scores[:20], labels[:20])
    batch = metrics(scores[20:], labels[20:])
    assert batch[name] == pytest.approx(value(name, scores[20:], labels[20:]), rel=1e-7)
    assert metrics.compute()[name] == pytest.approx(value(name, scores, labels), rel=1e-7)
    metrics.reset()
    metrics.update(scores[:5], labels[:5])
    assert metrics.compute()[name] == pytest.approx(value(name, scores[:5], labels[:5]), rel=1e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_half_types_count_as_the_numbers_they_hold(name, dtype):
    scores, labels = problem()
    half = scores.to(dtype)
    assert value(name, half, labels) == pytest.approx(value(name, half.float(), labels), rel=1e-7)
