"""Which loss, rule and number of fits serve which metric: ``python -m benchmarks.metric_defaults --data FOLDER --out FILE``.

Every cell trains on three quarters of a set's training rows and is judged on the other quarter, by every metric with the rules
that are tuned for it on rows held out within the three quarters. The test files are not read. Defaults are chosen by the sets
of ``CHOOSING``; ``JUDGING`` names those that were not looked at for them.

    python -m benchmarks.metric_defaults --data FOLDER --out FILE --jobs 8 --minutes 7      # runs what FILE does not have yet
    python -m benchmarks.metric_defaults --out FILE --table                                 # the tables from FILE alone
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.compare_groups import find_sets
from benchmarks.text_sets import SETS as TEXT_SETS
from manyhot.comparison.table import markdown_table
from manyhot.data.examples import Examples
from manyhot.data.read import read_examples
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.decisions.tune import tune_rule
from manyhot.decisions.tuning.balanced import balanced_thresholds
from manyhot.labels.split import stratified_split
from manyhot.losses import catalog
from manyhot.losses.info import LossInfo
from manyhot.losses.zlpr import zlpr_loss
from manyhot.metrics.running import Metrics
from manyhot.training.rows.rules.fitting import Tuning
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train

CHOOSING = ("emotions", "birds", "medical", "bibtex", "corel5k", "reuters21578", "cooking_stackexchange")
JUDGING = ("flags", "scene", "yeast", "enron", "cal500", "delicious", "goemotions", "eurlex57k")
RANKINGS = ("AvgPrec", "RankLoss", "P@1", "P@3", "P@5")
LOSSES = ("zlpr", "bce", "dice2", "two_way", "pairwise", "asymmetric", "squared_hinge")
ORDERS = (2, 4, 16, 64)
BLOCKS = (2, 8)


def ordered_zlpr(logits: Tensor, labels: Any, *, order: float, reduction: str = "mean", **more: Any) -> Tensor:
    """``k softplus(pos - log k) + k softplus(neg - log k)``: each side pulls with less than k in total, ZLPR at k = 1."""
    return order * zlpr_loss(logits, labels, pos_weight=1 / order, neg_weight=1 / order, reduction=reduction, **more)


def block_zlpr(logits: Tensor, labels: Any, *, blocks: int, reduction: str = "mean", **more: Any) -> Tensor:
    """ZLPR inside each of some blocks of labels, drawn once, and the sum over blocks; BCE with a block for each label."""
    dense = labels if isinstance(labels, Tensor) else labels.dense(torch.float32)
    order = torch.randperm(logits.shape[-1], generator=torch.Generator().manual_seed(0))
    total = logits.new_zeros(())
    for part in order.tensor_split(min(blocks, len(order))):
        total = total + zlpr_loss(logits[..., part], dense[..., part], reduction=reduction, **more)
    return total


def add_losses() -> None:
    """The members of the family between ZLPR and BCE that are tried here, under the names of settings."""
    common = {"family": "zlpr", "module": None, "summary": "tried", "decision": "zero", "link": "hard", "soft_link": "hard"}
    for k in ORDERS:
        entry = {"function": ordered_zlpr, "settings": {"order": float(k)}}
        catalog._BY_NAME[f"order{k}"] = LossInfo(name=f"order{k}", title=f"order {k}", **common, **entry)
    for b in BLOCKS:
        entry = {"function": block_zlpr, "settings": {"blocks": b}}
        catalog._BY_NAME[f"blocks{b}"] = LossInfo(name=f"blocks{b}", title=f"{b} blocks", **common, **entry)


VARIANTS: dict[str, dict[str, Any]] = {
    **{loss: {"loss": loss} for loss in LOSSES},
    "powerset": {"strategy": "label-powerset"},
    **{f"order{k}": {"loss": f"order{k}"} for k in ORDERS},
    **{f"blocks{b}": {"loss": f"blocks{b}"} for b in BLOCKS},
    "bce, AvgPrec stops": {"loss": "bce", "metric": "AvgPrec"},
    "bce, decay 0.1": {"loss": "bce", "weight_decay": 0.1},
    "bce, hidden 64": {"loss": "bce", "hidden": 64},
    "bce, hidden 1024": {"loss": "bce", "hidden": 1024},
    "zlpr, 1 fit": {"loss": "zlpr", "members": 1},
    "zlpr, 5 fits, 0.2 out": {"loss": "zlpr", "members": 5, "validation": 0.2},
    "zlpr, 10 fits": {"loss": "zlpr", "members": 10},
    "powerset, 1 fit": {"strategy": "label-powerset", "members": 1},
}
TEXT_VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "zlpr, weight 1": {"pos_weight": 1.0},
    "bce": {"loss": "bce"},
    **{f"squared_hinge, step {rate}": {"loss": "squared_hinge", "learning_rate": rate} for rate in (16, 50, 160)},
    **{
        f"squared_hinge x {weight}, step 50": {"loss": "squared_hinge", "learning_rate": 50, "pos_weight": weight}
        for weight in (2.0, 4.0)
    },
    "squared_hinge, step 50, twice the epochs": {"loss": "squared_hinge", "learning_rate": 50, "epochs": 20},
    "powerset": {"strategy": "label-powerset"},
    "bag": {"model": "bag"},
    "linear SVM of scikit-learn": {"solver": "svm"},
}


@lru_cache(maxsize=2)
def examples_of(name: str, folder: str) -> Examples:
    """The training rows alone."""
    if name in TEXT_SETS:
        return TEXT_SETS[name](Path(folder))[0]
    (files,) = find_sets(Path(folder), [name])
    return read_examples(files.train[0])


def run(name: str, body: str, variant: str, seed: int, folder: str) -> dict[str, Any]:
    """One cell."""
    torch.set_num_threads(1)
    add_losses()
    rows = examples_of(name, folder)
    kept, apart = stratified_split(rows.labels, test_size=0.25, seed=seed)
    own, judged = rows[kept.numpy()], rows[apart.numpy()]
    given = dict((TEXT_VARIANTS if body == "text" else VARIANTS)[variant])
    started = time.perf_counter()
    if given.pop("solver", None):
        scores, tuning = svm_scores(own, judged), None
    else:
        found: list[Tuning | None] = []
        chosen = {"model": body, **given} if body != "text" else given
        settings = TrainSettings(seed=seed, device="cpu", threads=1, **chosen)
        model = train(own, settings, held_out=lambda _, tuning: found.append(tuning))
        scores, (tuning,) = model.logits(judged), found
    seconds = time.perf_counter() - started
    cell: dict[str, Any] = {"set": name, "body": body, "variant": variant, "seed": seed, "seconds": round(seconds, 2)}
    return {**cell, "metrics": measured(scores, judged, own, tuning)}


def measured(scores: Tensor, judged: Examples, own: Examples, tuning: Tuning | None) -> dict[str, float]:
    """Metrics of the ranking, and of decisions by each rule that is tuned for one of them."""
    names = [name for name in RANKINGS if not name.startswith("P@") or int(name[2:]) <= scores.shape[1]]
    metrics = Metrics(names, num_labels=scores.shape[1])
    metrics.update(scores, judged.labels)
    told = {name: float(value) for name, value in metrics.compute().items()}
    if tuning is None:
        return told
    held, labels = tuning.all_scores, tuning.labels
    for objective, per_label in (("SubACC", False), ("MLC-F1", False), *product(("micro-F1", "macro-F1"), (False, True))):
        rule = tune_rule(held, labels, objective=objective, per_label=per_label, folds=0).rule
        key = f"{objective}, per label" if per_label else objective
        told[key] = judge(decide(scores, rule), judged, objective)
    chosen = decide(scores, DecisionRule(threshold=balanced_thresholds(held, labels)))
    told |= {f"{metric}, balanced": judge(chosen, judged, metric) for metric in ("micro-F1", "macro-F1")}
    told["SubACC, s > 0"] = judge(scores > 0, judged, "SubACC")
    others = torch.ones(len(own), dtype=torch.bool)
    others[tuning.rows] = False
    tuned = tune_rule(held, labels, objective="SubACC", sets=True, other_rows=own.labels[others], folds=0)
    told["SubACC, sets"] = judge(decide(scores, tuned.rule), judged, "SubACC")
    told["SubACC, sets, tuned value"] = tuned.value
    return told


def judge(chosen: Tensor, judged: Examples, name: str) -> float:
    """A metric of decisions."""
    metrics = Metrics([name], num_labels=chosen.shape[1], rule=DecisionRule())
    metrics.update(chosen.float() * 2 - 1, judged.labels)
    return float(metrics.compute()[name])


def svm_scores(own: Examples, judged: Examples) -> Tensor:
    """A linear SVM with squared hinge for every label, by LIBLINEAR's dual solver on the features that ``train`` makes."""
    from sklearn.svm import LinearSVC

    from manyhot.training.rows.inputs.registry import INPUTS

    inputs, prepared = INPUTS[own.kind].fit(own, TrainSettings())
    features, others = prepared, inputs.rows(judged)
    truth = own.labels.dense(torch.int64).numpy()
    scores = np.full((len(judged), own.num_labels), -1.0, dtype=np.float32)
    for label in range(own.num_labels):
        if truth[:, label].any():
            fitted = LinearSVC(C=1.0, dual=True, intercept_scaling=1.0).fit(features, truth[:, label])
            scores[:, label] = fitted.decision_function(others)
    return torch.from_numpy(scores)


def table(path: Path) -> str:
    """Means over seeds for each set and body, and mean ranks over them."""
    cells = [json.loads(line) for line in path.read_text().splitlines()]
    parts = []
    for texts in (False, True):
        own = [cell for cell in cells if (cell["body"] == "text") is texts]
        if own:
            parts += [f"{'Text' if texts else 'Tables'}:", "", *_ranks(own, TEXT_VARIANTS if texts else VARIANTS), ""]
    return "\n".join(parts)


def _ranks(cells: list[dict[str, Any]], variants: dict[str, Any]) -> list[str]:
    groups = sorted({(cell["set"], cell["body"]) for cell in cells})
    names = [name for name in variants if any(cell["variant"] == name for cell in cells)]
    metrics = sorted({name for cell in cells for name in cell["metrics"] if "tuned value" not in name})
    values = np.full((len(groups), len(names), len(metrics)), np.nan)
    for (g, group), (v, name), (m, metric) in product(enumerate(groups), enumerate(names), enumerate(metrics)):
        own = [c for c in cells if (c["set"], c["body"]) == group and c["variant"] == name and metric in c["metrics"]]
        if own:
            values[g, v, m] = 100 * np.mean([c["metrics"][metric] for c in own])
    lines = []
    for title, shown in (("mean over groups", values), ("mean rank", _ranked(values, metrics))):
        rows = [[name, *(f"{x:.2f}" for x in np.nanmean(shown[:, v], axis=0))] for v, name in enumerate(names)]
        lines += [markdown_table([f"{title}, {len(groups)} groups", *metrics], rows), ""]
    for m, metric in enumerate(metrics):
        rows = [[name, *(f"{x:.1f}" for x in values[:, v, m])] for v, name in enumerate(names)]
        lines += [markdown_table([metric, *(f"{s}/{b}" for s, b in groups)], rows), ""]
    return lines


def _ranked(values: np.ndarray, metrics: list[str]) -> np.ndarray:
    from scipy.stats import rankdata

    sign = np.asarray([1.0 if metric == "RankLoss" else -1.0 for metric in metrics])
    ranks = rankdata(np.round(values * sign, 6), axis=1, nan_policy="omit")
    return np.where(np.isnan(values), np.nan, ranks)


def planned(sets: list[str], seeds: int) -> list[tuple[str, str, str, int]]:
    """Cells in the order in which they are run: one seed of all, then the next; bodies that take long last."""
    found = []
    for seed, name in product(range(seeds), sets):
        sparse = name in ("medical", "bibtex", "corel5k", "enron", "delicious")
        for body in ("text",) if name in TEXT_SETS else ("linear", "mlp"):
            for variant, settings in (TEXT_VARIANTS if body == "text" else VARIANTS).items():
                unused = {"hidden"} | ({"members", "weight_decay", "validation"} if sparse else set())
                if body != "linear" or not unused & set(settings):
                    found.append((name, body, variant, seed))
    return sorted(found, key=lambda cell: (cell[3], cell[1] == "mlp" and cell[0] not in ("emotions", "birds", "medical")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("MANYHOT_DATA"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(CHOOSING))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        print(table(given.out))
        return
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    done = {(c["set"], c["body"], c["variant"], c["seed"]) for c in map(json.loads, lines)}
    left = [cell for cell in planned(given.sets.split(","), given.seeds) if cell not in done]
    ends = time.monotonic() + 60 * given.minutes
    with ProcessPoolExecutor(given.jobs) as pool, given.out.open("a") as file:
        waiting = {pool.submit(run, *cell, str(given.data)): cell for cell in left}
        for done_cell in as_completed(waiting):
            try:
                file.write(json.dumps(done_cell.result()) + "\n")
                file.flush()
            except Exception as error:  # One bad cell must not end the study.
                print(waiting[done_cell], f"{type(error).__name__}: {error}"[:200], flush=True)
            if time.monotonic() > ends:
                break
        for process in pool._processes.values():
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    main()
