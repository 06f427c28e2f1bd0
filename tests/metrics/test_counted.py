"""Metrics from counts of one read: in the interpreter everywhere, on the device where there is one."""

import itertools

import pytest
import torch

from decisions.test_listed import plainly
from engines.triton.interpreted import check_interpreted
from manyhot import DecisionRule, Metrics, SparseLabels

NAMES = ["micro-F1", "macro-F1", "SubACC", "MLC-F1", "hamming-error", "jaccard", "macro-precision-present", "label-count-error"]
INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from metrics.test_counted import check_metrics, check_faults
from manyhot.engines.triton import counts
counts.TILES, counts.DENSE, counts.PROGRAMS = dict.fromkeys(counts.TILES, (16, 4, 4)), 16, 4
for shape in ((6, 20), (1, 3)):
    check_metrics("cpu", shape, torch.float32)
check_faults("cpu")
print("checked")
"""


def results(device, batches, num_labels, rule):
    """All that is accumulated over batches."""
    metrics = Metrics(NAMES, num_labels=num_labels, rule=rule).to(device)
    for scores, labels, where in batches:
        metrics.update(scores.to(device), labels.to(device), None if where is None else where.to(device))
    each = {name: value.tolist() for name, value in metrics.per_label().items()}
    return repr((metrics.compute(), metrics.counted(), each))


def check_metrics(device, shape, dtype):
    """Metrics of every rule and kind of labels are those without kernels."""
    draw = torch.Generator().manual_seed(0)
    cuts = tuple(torch.randn(shape[1], generator=draw).tolist())
    rules = [None, DecisionRule(threshold=0.3), DecisionRule(threshold=cuts), DecisionRule(max_labels=2)]
    for rule, kind, masked in itertools.product(rules, ("bool", "int", "lists"), (False, True)):
        batches = []
        for _ in range(2):
            scores = torch.randn(shape, generator=draw).to(dtype)
            truth = torch.rand(shape, generator=draw) < 0.3
            labels = {"bool": truth, "int": truth.long(), "lists": SparseLabels.from_dense(truth)}[kind]
            batches.append((scores, labels, torch.rand(shape, generator=draw) < 0.7 if masked else None))
        wanted = plainly(lambda batches=batches, rule=rule: results(device, batches, shape[1], rule))
        assert results(device, batches, shape[1], rule) == wanted, (rule, kind, masked)


def check_faults(device):
    """NaN and soft labels are an error that names the row, counted from the first batch."""
    scores, labels = torch.zeros(4, 5), torch.zeros(4, 5)
    messages = {"scores": r"`scores` must not be NaN.*row (2|6)", "labels": r"`labels` must be 0 or 1.*row (2|6)"}
    for wrong, message in messages.items():
        metrics = Metrics(NAMES, num_labels=5).to(device)
        metrics.update(scores.to(device), labels.to(device))
        given = {"scores": scores.clone(), "labels": labels.clone()}
        given[wrong][2, 1] = torch.nan if wrong == "scores" else 0.5
        with pytest.raises(ValueError, match=message):
            update_and_compute(metrics, given["scores"].to(device), given["labels"].to(device))


def update_and_compute(metrics, scores, labels):
    metrics.update(scores, labels)
    return metrics.compute()


@pytest.mark.slow
def test_metrics_from_counts_are_those_from_predictions_in_the_interpreter():
    check_interpreted(INTERPRETED)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_metrics_from_counts_are_those_from_predictions_on_the_device(dtype):
    check_metrics("cuda", (60, 700), dtype)
    check_faults("cuda")


@pytest.fixture
def errors_on_sync():
    """Every wait for the device is an error, once the test has called what this gives it."""
    try:
        yield lambda: torch.cuda.set_sync_debug_mode("error")
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_counts_do_not_wait_for_the_device(errors_on_sync):
    truth = torch.rand(64, 5000, device="cuda") < 0.001
    scores, lists = torch.randn(64, 5000, device="cuda"), SparseLabels.from_dense(truth)
    rules = [None, DecisionRule(threshold=tuple([0.5] * 5000))]
    each = [Metrics(["micro-F1", "macro-F1", "SubACC"], num_labels=5000, rule=rule).to("cuda") for rule in rules]

    def update():
        for metrics, labels in itertools.product(each, (truth, lists)):
            metrics.update(scores, labels)
            metrics.update(scores, labels, truth | (scores > 0))

    update()  # compiles
    torch.cuda.synchronize()
    errors_on_sync()
    update()
