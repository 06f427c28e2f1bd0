"""What a budget of time can gain: candidates, their choice and their means: ``python -m benchmarks.budget_candidates``.

    python -m benchmarks.budget_candidates --data FOLDER --out SCORES --jobs 6       # trains what SCORES does not have yet
    python -m benchmarks.budget_candidates --out SCORES --table --jobs 6             # the table from SCORES alone

Every candidate trains on three quarters of a set's training rows and is judged on the other quarter. No test file is read.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from benchmarks.compare_groups import find_sets
from manyhot.data.read import read_examples
from manyhot.decisions.calibrate import fit_calibration
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.labels.sparse import SparseLabels
from manyhot.labels.split import stratified_folds, stratified_split
from manyhot.metrics.running import Metrics
from manyhot.training.rows.rules.fitting import Tuning, fit_rule
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import tuned_for
from manyhot.training.rows.train import train

SETS = ("emotions", "birds", "medical")
USUAL = "zlpr"
# Settings, and the part of the usual step that a name ending in a number takes.
CANDIDATES = {
    USUAL: {}, "bce": {"loss": "bce"}, "two_way": {"loss": "two_way"}, "dice1": {"loss": "dice1"}, "dice2": {"loss": "dice2"},
    "lsep": {"loss": "lsep"}, "powerset": {"strategy": "powerset"}, "zlpr3": {}, "zlpr10": {}, "bce3": {"loss": "bce"},
}  # fmt: skip
PARTS = {"zlpr3": 3, "zlpr10": 10, "bce3": 3}
DECIDED = ("SubACC", "micro-F1", "macro-F1", "MLC-F1")
METRICS = (*DECIDED, "AvgPrec", "RankLoss")
MEANS = {
    "zlpr+bce": ("zlpr", "bce"),
    "zlpr+zlpr3": ("zlpr", "zlpr3"),
    "zlpr+bce+two_way": ("zlpr", "bce", "two_way"),
    "zlpr+bce+powerset": ("zlpr", "bce", "powerset"),
    "zlpr+zlpr3+bce+bce3": ("zlpr", "zlpr3", "bce", "bce3"),
    "all8": ("zlpr", "bce", "two_way", "dice2", "lsep", "powerset", "zlpr3", "bce3"),
}
RACED = ("zlpr", "bce", "two_way", "powerset", "zlpr3", "bce3")


def run(task: tuple[str, str, int, str], *, data: str, out: str) -> None:
    """Train a candidate and keep the scores of held-out and judging rows."""
    torch.set_num_threads(1)
    name, body, seed, candidate = task
    path = Path(out) / f"{name}-{body}-{seed}-{candidate}.safetensors"
    if path.exists():
        return
    (files,) = find_sets(Path(data), [name])
    examples = read_examples(files.train[0])
    kept, apart = stratified_split(examples.labels, test_size=0.25, seed=100 + seed)
    rows, judging = examples[kept.numpy()], examples[apart.numpy()]
    given = {"metric": "micro-F1", "mean_of": "none", "model": body, "seed": seed, "device": "cpu", "threads": 1}
    settings = TrainSettings(**given, **CANDIDATES[candidate])
    if candidate in PARTS:
        rate = train(rows, settings).about["learning_rate"]
        settings = replace(settings, learning_rate=rate / PARTS[candidate])
    held: list[Tuning] = []
    model = train(rows, settings, held_out=lambda _, tuning: held.append(tuning))
    scores = {"held": held[0].all_scores, "rows": held[0].rows, "labels": rows.labels.dense(torch.uint8)}
    save_file({**scores, "judged": model.logits(judging), "truth": judging.labels.dense(torch.uint8)}, path)


def value(metric, scores, labels, rule=None) -> float:
    """Larger is better."""
    measured = Metrics([metric], num_labels=labels.num_labels, rule=rule)
    measured.update(scores, labels)
    return float(measured.compute()[metric]) * (-1 if metric == "RankLoss" else 1)


def both(metric, held, own, judged, truth, labels) -> tuple[float, float]:
    """``(on held-out rows by rules tuned without them, on judging rows)``."""
    if metric not in DECIDED:
        return value(metric, held, own), value(metric, judged, truth)
    settings = TrainSettings(metric=metric, tune=tuned_for(metric), calibrate="none")
    decided = torch.empty_like(held)
    for fold in stratified_folds(own, num_folds=5, seed=0):
        kept = ~torch.isin(torch.arange(len(own)), fold)
        rule, *_ = fit_rule(settings, DecisionRule(), Tuning(held[kept], own[kept], None), labels)
        decided[fold] = 2.0 * decide(held[fold], rule) - 1
    rule, *_ = fit_rule(settings, DecisionRule(), Tuning(held, own, None), labels)
    return value(metric, decided, own), value(metric, judged, truth, rule)


def group(item) -> tuple[tuple[str, ...], dict[str, dict[str, tuple[float, float]]]]:
    """Both values of every candidate and mean of a set, a body and a split."""
    torch.set_num_threads(1)
    key, paths = item
    found = {name: load_file(path) for name, path in paths.items()}
    usual = found[USUAL]
    found = {name: each for name, each in found.items() if torch.equal(each["rows"], usual["rows"])}
    labels, truth = (SparseLabels.from_dense(usual[name].bool()) for name in ("labels", "truth"))
    own, others = labels[usual["rows"]], ~torch.isin(torch.arange(len(labels)), usual["rows"])
    scaled = {}
    for name, each in found.items():
        platt = fit_calibration(each["held"], own, kind="platt")
        scaled[name] = [float(platt.slope) * each[part] + float(platt.intercept) for part in ("held", "judged")]
    tables = {name: (each["held"], each["judged"]) for name, each in found.items()}
    for name, parts in MEANS.items():
        if all(part in scaled for part in parts):
            tables[name] = tuple(torch.stack([scaled[part][place] for part in parts]).mean(dim=0) for place in (0, 1))
    return key, {
        name: {metric: both(metric, held, own, judged, truth, labels[others]) for metric in METRICS}
        for name, (held, judged) in tables.items()
    }


def table(groups) -> str:
    """Differences to the usual settings on judging rows, in points."""
    width, rows = 46, []

    def line(title, pick):
        cells = []
        for metric in METRICS:
            found = defaultdict(list)
            for (name, body, _), own in groups:
                chosen = pick(own, metric)
                if chosen in own:
                    found[name, body].append(100 * (own[chosen][metric][1] - own[USUAL][metric][1]))
            means = [np.mean(each) for each in found.values()]
            cells.append(f"{np.mean(means):+.2f} ({sum(x > 0.05 for x in means)}:{sum(x < -0.05 for x in means)})")
        rows.append(f"{title:{width}s}" + "".join(f"{cell:>16s}" for cell in cells))

    def best(own, metric, names=RACED, place=0):
        return max((name for name in names if name in own), key=lambda name: own[name][metric][place])

    def margin(own, metric, mean, least):
        single = best(own, metric)
        return single if mean not in own or own[single][metric][0] > own[mean][metric][0] + least else mean

    for name in (*CANDIDATES, *MEANS):
        line(name, lambda *_, name=name: name)
    line("best on held-out rows of " + ",".join(RACED[:3]) + ",...", best)
    for mean in ("zlpr+bce+two_way", "zlpr+zlpr3+bce+bce3", "all8"):
        for least in (0.0, 0.01, 0.05):
            line(f"the same, or {mean} within {least}", partial(margin, mean=mean, least=least))
    line("best on judging rows", partial(best, names=tuple(CANDIDATES), place=1))
    return "\n".join([f"{'':{width}s}" + "".join(f"{metric:>16s}" for metric in METRICS), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--out", required=True)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    Path(given.out).mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(given.jobs) as pool:
        if not given.table:
            tasks = [
                (name, body, seed, candidate)
                for seed in range(given.seeds)
                for candidate in CANDIDATES
                for name in given.sets.split(",")
                for body in ("linear", "mlp")
            ]
            list(pool.map(partial(run, data=given.data, out=given.out), tasks))
        paths: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
        for path in sorted(Path(given.out).glob("*.safetensors")):
            *key, candidate = path.stem.split("-")
            paths[tuple(key)][candidate] = str(path)
        print(table(list(pool.map(group, [item for item in paths.items() if USUAL in item[1]]))))


if __name__ == "__main__":
    main()
