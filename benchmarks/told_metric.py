"""``manyhot train`` told the metric against the single methods of a comparison: ``python -m benchmarks.told_metric``.

    python -m benchmarks.compare_groups --data FOLDER --out RESULTS --sets flags,scene,... --losses zlpr,bce,...   # the others
    python -m benchmarks.told_metric --data FOLDER --out FILE --sets flags,scene,... --jobs 14 --seconds 450       # told
    python -m benchmarks.told_page --told FILE --others RESULTS/cells.jsonl --page PAGE                            # the page

For each set, body and seed a model is trained for each metric on the training file, and judged by that metric on the test file.
Metrics that training treats alike but for the decision rule share a training: the rule of each is tuned on the same held-out
scores, which gives the model that training it by itself gives (``--check SET`` compares both). A cell that is there is not run
again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from benchmarks.compare_groups import TABULAR, find_sets
from benchmarks.text_peers import METRICS as PEER_METRICS
from benchmarks.text_sets import SETS as TEXT_SETS
from manyhot.comparison.plan import hardware
from manyhot.comparison.settings import CompareSettings
from manyhot.comparison.statistics import PAPER_METRICS
from manyhot.data.examples import Examples
from manyhot.data.read import read_examples
from manyhot.evaluation import evaluate
from manyhot.labels.split import stratified_split
from manyhot.metrics.info import ROW_ORDER, WHOLE_SETS
from manyhot.training.rows.bodies.info import MEMBERS
from manyhot.training.rows.bodies.registry import get_body
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.rules.fitting import Tuning, fit_rule
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import steering_of, stopped_by, tuned_for
from manyhot.training.rows.targets.objective import natural_rule
from manyhot.training.rows.train import train

TOLD = "told"
TEXT_METRICS = (*dict.fromkeys((*PAPER_METRICS, *PEER_METRICS)),)
# Sets whose training takes long on one thread; they come last.
LARGE = ("enron", "corel5k", "bibtex", "delicious")


@lru_cache(maxsize=2)
def examples_of(name: str, folder: str, seed: int) -> tuple[Examples, Examples]:
    """Training and test rows. A set of one file is split as a comparison splits it: each seed has its own test rows."""
    if name in TEXT_SETS:
        return TEXT_SETS[name](Path(folder))
    (files,) = find_sets(Path(folder), [name])
    first = read_examples(files.train[0])
    if not files.test:
        kept, tested = stratified_split(first.labels, test_size=CompareSettings().test_size, seed=seed)
        return first[kept], first[tested]
    second = read_examples(files.test[0]).with_labels(first.label_names)
    plain = first.features is None or first.feature_names is not None
    return first, second if plain else second.with_features(first.num_features)


def alike(metric: str, body: str = "") -> tuple[str, ...]:
    """What training takes from a metric beside the rule.

    For metrics of the order of labels, biases of a linear body may be moved; for those of whole sets, label powerset may be
    tried. The losses of an mlp are those of tables for all inputs.
    """
    entry, mlp = steering_of(metric), body == "mlp"
    losses = entry.table_losses if mlp else (entry.text_loss, *entry.sparse_losses, *entry.table_losses)
    aims = (WHOLE_SETS,) if mlp else (ROW_ORDER, WHOLE_SETS)
    return (stopped_by(metric), ",".join(losses), entry.calibrate, entry.aim if entry.aim in aims else "")


def parts_of(metrics: tuple[str, ...], body: str) -> list[tuple[str, ...]]:
    """The metrics that share a training."""
    key = partial(alike, body=body)
    return [tuple(same) for _, same in groupby(sorted(metrics, key=key), key=key)]


def told_models(rows: Examples, metrics: tuple[str, ...], **given: Any) -> dict[str, TrainedModel]:
    """A model for each metric; those that differ by their rule alone come from one training."""
    models: dict[str, TrainedModel] = {}
    for same in parts_of(metrics, given.get("model", "")):
        first, *others = [metric for metric in same if metric not in models] or [""]
        if not first:
            continue
        held: list[Tuning | None] = []
        models[first] = train(rows, TrainSettings(metric=first, **given), held_out=lambda _, t, held=held: held.append(t))
        if get_body(models[first].shape["body"]).fitting == MEMBERS:
            # A bag is trained for all its epochs with one loss: metrics differ by the rule alone.
            others = [metric for metric in metrics if metric not in models]
        for metric in others:
            models[metric] = with_rule(models[first], metric, held[0], rows)
    return models


def with_rule(model: TrainedModel, metric: str, tuning: Tuning | None, rows: Examples) -> TrainedModel:
    """The same model with the rule that is tuned for another metric."""
    settings, hard = replace(model.settings, metric=metric, tune=tuned_for(metric)), rows.hardened().labels
    natural = natural_rule(settings, None, cardinality=hard.indices.numel() / max(len(rows), 1))
    rule, calibration, found = fit_rule(settings, natural, tuning, hard)
    parts = {"link": model.link, "rule": rule, "calibration": calibration, "about": {**model.about, "tuned": found}}
    kept = {"reading": model.reading, "label_counts": model.label_counts}
    return TrainedModel(model.body, model.shape, model.inputs, model.label_names, settings, **parts, **kept)


def run(name: str, body: str, seed: int, folder: str, metrics: tuple[str, ...] = (), device: str = "cpu") -> dict[str, Any]:
    """One cell: a model for each metric, each judged by its own; ``metrics``: a part of the cell, with these alone."""
    torch.set_num_threads(1)
    rows, test = examples_of(name, folder, seed)
    began = time.process_time()
    wanted = metrics or (TEXT_METRICS if name in TEXT_SETS else PAPER_METRICS)
    models = told_models(rows, wanted, model=body, seed=seed, device=device, threads=1)
    spent = round(time.process_time() - began, 2)
    values = {metric: evaluate(model, test, (metric,))[metric] for metric, model in models.items()}
    cell = {"data": name, "model": body, "seed": seed, "method": TOLD, "title": "manyhot train, told the metric"}
    cell |= {"family": "default", "facts": {"num_labels": rows.num_labels}, "cost": {"seconds": spent}}
    why = {metric: model.about["why"] for metric, model in models.items()}
    return {
        **cell,
        "metrics": {"natural": values, "tuned": values},
        "why": why,
        "body": next(iter(models.values())).shape["body"],
    }


def check(name: str, folder: str) -> None:
    """Print whether shared trainings decide as trainings of their own do."""
    rows, test = examples_of(name, folder, 0)
    for body in ("linear", "mlp"):
        given = {"model": body, "device": "cpu", "threads": 1}
        for metric, model in told_models(rows, PAPER_METRICS, **given).items():
            own = train(rows, TrainSettings(metric=metric, **given))
            print(name, body, metric, own.predict(test).lists() == model.predict(test).lists())


def planned(names: list[str], seeds: int, text_seeds: int) -> list[tuple[str, str, int]]:
    """Cells in the order in which they are run: what takes longest, the quick sets, then the others seed by seed."""
    found = [
        (name, body, seed)
        for seed in range(seeds)
        for name in names
        if name not in TEXT_SETS or seed < (1 if name == "eurlex57k" else text_seeds)
        for body in (("auto",) if name in TEXT_SETS else ("linear", "mlp"))
    ]
    return sorted(
        found, key=lambda cell: (cell[0] != "eurlex57k", cell[0] in LARGE, cell[2], cell[0] in TEXT_SETS, cell[1] == "mlp")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("MANYHOT_DATA"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sets", default=",".join((*TABULAR, *TEXT_SETS)))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--text-seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9, help="end after this many, with what is finished")
    parser.add_argument("--check", metavar="SET")
    given = parser.parse_args()
    if given.check:
        check(given.check, str(given.data))
        return
    ends = time.monotonic() + given.seconds
    cells = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {(cell["data"], cell["model"], cell["seed"]) for cell in cells}
    print(hardware(), flush=True)
    with ProcessPoolExecutor(given.jobs) as pool, given.out.open("a") as file:
        wanted = [cell for cell in planned(given.sets.split(","), given.seeds, given.text_seeds) if cell not in done]
        waiting = {pool.submit(run, *cell, str(given.data)): cell for cell in wanted}
        try:
            for each in as_completed(waiting, timeout=max(ends - time.monotonic(), 1)):
                error = each.exception()
                if error is None:
                    file.write(json.dumps(each.result()) + "\n")
                    file.flush()
                # One bad cell must not end the others.
                told = f"{each.result()['cost']['seconds']} s" if error is None else f"{type(error).__name__}: {error}"[:200]
                print(f"{ends - time.monotonic():5.0f} s left", *waiting[each], told, flush=True)
        except TimeoutError:
            file.flush()
            for process in list(pool._processes.values()):
                process.kill()
            os._exit(0)


if __name__ == "__main__":
    main()
