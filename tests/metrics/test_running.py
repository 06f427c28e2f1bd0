"""The accumulator: shared work, rules, links, what it says of itself, errors, and syncing over real processes."""

import json
import subprocess
import sys

import pytest
import torch

from manyhot import LinearScores, SparseLabels
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.metrics import at_k, confusion, counts, curves, ranking
from manyhot.metrics.at_k import label_propensities
from manyhot.metrics.calibration import brier_error, calibration_error
from manyhot.metrics.catalog import METRICS
from manyhot.metrics.running import Metrics
from manyhot.scores.top import TopScores
from metrics.problems import random_problem

EVERYTHING = [name.replace("@k", "@2") for name in METRICS]


def test_all_metrics_together_give_what_the_functions_give():
    scores, labels = random_problem(50, 7, 3)
    labels[:, 6] = False
    probs, predictions = scores.sigmoid(), scores > 0
    propensities = label_propensities(torch.arange(7) + 1, 50)
    metrics = Metrics(EVERYTHING, num_labels=7, propensities=propensities, bins=50)
    metrics.update(scores[:20], labels[:20])
    metrics.update(scores[20:], labels[20:])
    expected = {
        "SubACC": counts.subset_accuracy_score(predictions, labels),
        "MLC-F1": counts.example_f1_score(predictions, labels),
        "micro-F1": counts.f1_score(predictions, labels),
        "macro-F1": counts.f1_score(predictions, labels, average="macro"),
        "macro-F1-present": counts.f1_score(predictions, labels, average="macro", absent="skip"),
        "micro-precision": counts.precision_score(predictions, labels),
        "macro-precision": counts.precision_score(predictions, labels, average="macro"),
        "macro-precision-present": counts.precision_score(predictions, labels, average="macro", absent="skip"),
        "micro-recall": counts.recall_score(predictions, labels),
        "macro-recall": counts.recall_score(predictions, labels, average="macro"),
        "macro-recall-present": counts.recall_score(predictions, labels, average="macro", absent="skip"),
        "hamming-error": counts.hamming_error(predictions, labels),
        "jaccard": counts.jaccard_score(predictions, labels),
        "label-count-error": counts.label_count_error(predictions, labels),
        "AvgPrec": ranking.ranking_average_precision_score(scores, labels),
        "RankLoss": ranking.ranking_error(scores, labels),
        "coverage-error": ranking.coverage_error(scores, labels),
        "one-error": ranking.one_error(scores, labels),
        "P@2": at_k.precision_at_k(scores, labels, k=2),
        "R@2": at_k.recall_at_k(scores, labels, k=2),
        "nDCG@2": at_k.ndcg_at_k(scores, labels, k=2),
        "PSP@2": at_k.propensity_precision_at_k(scores, labels, propensities, k=2),
        "mAP": curves.mean_average_precision_score(scores, labels),
        "mAP-present": curves.mean_average_precision_score(scores, labels, absent="skip"),
        "macro-AUROC": curves.auroc_score(scores, labels),
        "micro-AUROC": curves.auroc_score(scores, labels, average="micro"),
        "mAP-binned": curves.mean_average_precision_score(probs, labels, bins=50),
        "mAP-present-binned": curves.mean_average_precision_score(probs, labels, absent="skip", bins=50),
        "macro-AUROC-binned": curves.auroc_score(probs, labels, bins=50),
        "micro-AUROC-binned": curves.auroc_score(probs, labels, average="micro", bins=50),
        "ECE": calibration_error(probs, labels),
        "macro-ECE": calibration_error(probs, labels, average="macro"),
        "Brier": brier_error(probs, labels),
        "macro-Brier": brier_error(probs, labels, average="macro"),
    }
    found = metrics.compute()
    assert list(found) == EVERYTHING
    assert set(expected) == set(EVERYTHING)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value.item(), rel=1e-9), name


def test_the_work_is_done_once_for_all_metrics(monkeypatch):
    calls = []
    for module, function in (("confusion", "count_sets"), ("ranking", "rank_positives")):
        target = f"manyhot.metrics.{module}.{function}"
        original = getattr({"confusion": confusion, "ranking": ranking}[module], function)

        def counting(*args, name=function, original=original, **settings):
            calls.append(name)
            return original(*args, **settings)

        monkeypatch.setattr(target, counting)
    scores, labels = random_problem(10, 5)
    Metrics(EVERYTHING, num_labels=5, propensities=torch.ones(5)).update(scores, labels)
    assert sorted(calls) == ["count_sets", "rank_positives"]


@pytest.mark.parametrize(
    "rule",
    [
        DecisionRule(0.5),
        DecisionRule(top_k=2),
        DecisionRule(min_labels=1, max_labels=2),
        DecisionRule((0.0, 1.0, -1.0, 2.0, 0.5)),
    ],
)
def test_the_rule_decides(rule):
    scores, labels = random_problem(30, 5)
    metrics = Metrics(["micro-F1", "SubACC"], num_labels=5, rule=rule)
    metrics.update(scores, labels)
    predictions = decide(scores, rule)
    assert metrics.compute()["micro-F1"] == pytest.approx(counts.f1_score(predictions, labels).item())
    assert metrics.compute()["SubACC"] == pytest.approx(counts.subset_accuracy_score(predictions, labels).item())


def test_the_link_makes_the_probabilities():
    scores, labels = random_problem(30, 5)
    for link, probs in (("hard", scores.sigmoid()), ("soft", (2 * scores).sigmoid())):
        metrics = Metrics(["Brier"], num_labels=5, link=link)
        metrics.update(scores, labels)
        assert metrics.compute()["Brier"] == pytest.approx(brier_error(probs, labels).item())
    ready = Metrics(["Brier", "ECE"], num_labels=5, link="identity")
    ready.update(scores.sigmoid(), labels)
    assert ready.compute()["ECE"] == pytest.approx(calibration_error(scores.sigmoid(), labels).item())
    with pytest.raises(ValueError, match=r"must be probabilities, in \[0, 1\]; got another number in row"):
        ready.update(scores, labels)


def test_the_value_of_two_empty_sets_can_be_chosen():
    nothing = torch.full((1, 3), -1.0)
    for empty in (0.0, 1.0):
        metrics = Metrics(["MLC-F1", "jaccard"], num_labels=3, empty=empty)
        metrics.update(nothing, torch.zeros(1, 3))
        assert metrics.compute() == {"MLC-F1": empty, "jaccard": empty}


def test_memory_does_not_grow_with_rows_except_where_the_name_says_so():
    scores, labels = random_problem(30, 5)
    lean = [name for name in EVERYTHING if METRICS[name.replace("@2", "@k")].needs != "all scores"]
    metrics = Metrics(lean, num_labels=5, propensities=torch.ones(5))
    sizes = []
    for _ in range(3):
        metrics.update(scores, labels)
        sizes.append(sum(state.numel() for state in metrics.metric_state.values()))
    assert len(set(sizes)) == 1
    assert "keeps all scores" not in repr(metrics)
    assert repr(Metrics(["mAP", "P@1"], num_labels=5)) == "Metrics(['mAP', 'P@1'], num_labels=5; mAP keeps all scores)"


def test_kept_scores_are_copies():
    scores, labels = random_problem(20, 4)
    metrics = Metrics(["mAP"], num_labels=4)
    metrics.update(scores, labels)
    expected = curves.mean_average_precision_score(scores, labels).item()
    scores.zero_()
    assert metrics.compute()["mAP"] == pytest.approx(expected)


def test_rows_without_and_with_all_labels_are_counted():
    labels = torch.tensor([[0, 0], [1, 1], [1, 0], [0, 0]])
    metrics = Metrics(["AvgPrec"], num_labels=2)
    metrics.update(torch.zeros(4, 2), labels)
    assert metrics.counted() == {"rows": 4, "rows without labels": 2, "rows with all labels": 1, "entries": 8}
    metrics.reset()
    metrics.update(torch.zeros(4, 2), labels, torch.tensor([True, False]))
    assert metrics.counted() == {"rows": 4, "rows without labels": 2, "rows with all labels": 2, "entries": 4}


def test_what_is_known_of_each_label():
    scores, labels = random_problem(40, 5)
    metrics = Metrics(["macro-F1", "mAP", "macro-ECE", "macro-Brier"], num_labels=5)
    metrics.update(scores, labels)
    each = metrics.per_label()
    assert set(each) == {"precision", "recall", "F1", "positive", "predicted", "AP", "AUROC", "ECE", "Brier"}
    assert torch.equal(each["F1"], counts.f1_score(scores > 0, labels, average="none"))
    assert torch.equal(each["positive"], labels.sum(dim=0))
    assert torch.allclose(each["AP"], curves.mean_average_precision_score(scores, labels, average="none"))
    assert torch.allclose(each["ECE"], calibration_error(scores.sigmoid(), labels, average="none"))
    assert each["AP"].mean().item() == pytest.approx(metrics.compute()["mAP"])
    assert Metrics(["P@1"], num_labels=5).per_label() == {}
    binned = Metrics(["mAP-binned"], num_labels=5)
    binned.update(scores, labels)
    assert set(binned.per_label()) == {"AP", "AUROC"}


def test_lazy_scores_and_lists_of_the_best_are_taken():
    generator = torch.Generator().manual_seed(0)
    lazy = LinearScores(torch.randn(6, 4, generator=generator), torch.randn(9, 4, generator=generator))
    labels = SparseLabels.from_dense(torch.rand(6, 9, generator=generator) < 0.3)
    dense, described, listed = (Metrics(["P@2", "one-error"], num_labels=9) for _ in range(3))
    dense.update(lazy.dense(), labels)
    described.update(lazy, labels)
    listed.update(TopScores.from_dense(lazy.dense(), k=2), labels)
    assert described.compute() == pytest.approx(dense.compute())
    assert listed.compute() == pytest.approx(dense.compute())


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="Did you mean 'micro-F1'"):
        Metrics(["micro-f1"], num_labels=3)
    with pytest.raises(ValueError, match="`names` must be a list of at least one name"):
        Metrics("micro-F1", num_labels=3)
    with pytest.raises(ValueError, match="`propensities` must be given for PSP@k"):
        Metrics(["PSP@5"], num_labels=3)
    with pytest.raises(ValueError, match=r"`propensities` must be \[3\]; got \[1\]"):
        Metrics(["PSP@5"], num_labels=3, propensities=torch.ones(1))
    with pytest.raises(ValueError, match="`link` must be one of 'hard'"):
        Metrics(["ECE"], num_labels=3, link="sigmoid")
    with pytest.raises(ValueError, match="must have num_labels = 3 labels; got 4"):
        Metrics(["micro-F1"], num_labels=3).update(torch.zeros(1, 4), torch.zeros(1, 4))
    with pytest.raises(ValueError, match="micro-F1 needs the scores of all labels or `predictions`"):
        Metrics(["micro-F1"], num_labels=9).update(TopScores.from_dense(torch.zeros(1, 9), k=2), torch.zeros(1, 9))
    with pytest.raises(ValueError, match=r"Metrics\.update, P@5: `scores` must list at least k = 5"):
        Metrics(["P@5"], num_labels=9).update(TopScores.from_dense(torch.zeros(1, 9), k=2), torch.zeros(1, 9))
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `rules`"):
        Metrics(["micro-F1"], num_labels=3, rules=None)


def test_a_fault_leaves_its_row_in_the_message_also_in_later_batches():
    scores, labels = random_problem(10, 3)
    metrics = Metrics(["RankLoss"], num_labels=3)
    metrics.update(scores, labels)
    with pytest.raises(
        ValueError, match=r"Metrics\.update: `labels` must be 0 or 1 in every entry; got another value in row 4"
    ):
        metrics.update(scores, labels.float().index_fill(0, torch.tensor([4]), 0.5))


WORKER = """
import json, sys, torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
from metrics.problems import random_problem
from manyhot.metrics.catalog import METRICS
from manyhot.metrics.running import Metrics
torch.set_num_threads(1)
rank = int(sys.argv[2])
store = dist.FileStore(sys.argv[3], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
scores, labels = random_problem(31, 6, 2)
names = [name.replace("@k", "@2") for name in METRICS]
metrics = Metrics(names, num_labels=6, propensities=torch.linspace(0.2, 1, 6))
part = slice(0, 13) if rank == 0 else slice(13, 31)
metrics.update(scores[part][:5], labels[part][:5])
metrics.update(scores[part][5:], labels[part][5:])
found = {"values": metrics.compute(), "counted": metrics.counted(), "F1": metrics.per_label()["F1"].tolist()}
metrics.update(scores[:1], labels[:1])
found["local rows"] = int(metrics.row_counts[0])
print(json.dumps(found))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_agree_with_one(tmp_path, request):
    tests = str(request.config.rootpath / "tests")
    command = [sys.executable, "-W", "ignore", "-c", WORKER, tests]
    workers = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    outputs = [worker.communicate(timeout=300) for worker in workers]
    for worker, (_, errors) in zip(workers, outputs, strict=True):
        assert worker.returncode == 0, errors
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in outputs)
    scores, labels = random_problem(31, 6, 2)
    single = Metrics(EVERYTHING, num_labels=6, propensities=torch.linspace(0.2, 1, 6))
    single.update(scores, labels)
    # A float32 sigmoid rounds differently at the end of a vector, so batches differ in the last digits.
    assert first["values"] == pytest.approx(single.compute(), rel=1e-7)
    assert second["values"] == first["values"]
    assert first["counted"] == single.counted()
    assert first["F1"] == pytest.approx(single.per_label()["F1"].tolist())
    assert (first["local rows"], second["local rows"]) == (14, 19)


def test_importing_the_functions_does_not_load_torchmetrics():
    modules = "at_k, calibration, counts, curves, names, ranking"
    loaded = "[m for m in ('torchmetrics', 'sklearn', 'scipy') if m in sys.modules]"
    script = f"import sys; from manyhot.metrics import {modules}; print({loaded})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.gpu
def test_a_gpu_gives_what_a_cpu_gives_and_names_faults_at_the_end():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    scores, labels = random_problem(300, 40, 4)
    propensities = torch.linspace(0.2, 1, 40)
    here = Metrics(EVERYTHING, num_labels=40, propensities=propensities)
    there = Metrics(EVERYTHING, num_labels=40, propensities=propensities).to("cuda")
    where = torch.rand(300, 40, generator=torch.Generator().manual_seed(2)) < 0.9
    for part in (slice(0, 100), slice(100, 300)):
        here.update(scores[part], labels[part], where[part])
        there.update(scores[part].cuda(), labels[part].cuda(), where[part].cuda())
    assert there.compute() == pytest.approx(here.compute(), rel=1e-6)
    lists = Metrics(["P@2", "nDCG@2", "PSP@2"], num_labels=40, propensities=propensities).to("cuda")
    lists.update(TopScores.from_dense(scores.cuda(), k=5), SparseLabels.from_dense(labels).to("cuda"))
    dense = Metrics(["P@2", "nDCG@2", "PSP@2"], num_labels=40, propensities=propensities)
    dense.update(scores, labels)
    assert lists.compute() == pytest.approx(dense.compute(), rel=1e-9)
    scores[7, 3] = float("nan")
    there.update(scores.cuda(), labels.cuda())
    with pytest.raises(ValueError, match="rows counted since the last reset: `scores` must not be NaN; got one in row 307"):
        there.compute()
    with pytest.raises(ValueError, match=r"Call metrics.to\(device\) once"):
        here.update(scores.cuda(), labels.cuda())
