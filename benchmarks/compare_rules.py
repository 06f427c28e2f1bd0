"""Decision rules and calibrations on the same scores, all tabular groups: ``python -m benchmarks.compare_rules``.

    python -m benchmarks.compare_rules --data FOLDER --out RULES               # runs what RULES does not have yet

Each cell trains as in ``benchmarks.compare_groups`` and takes the weights that are best with a tuned cut. On their scores
many rules are measured, so that the rule is all that differs; and the calibration error before and after a temperature or
Platt's two numbers are fitted on validation rows.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.compare_groups import RUNS, TABULAR, find_sets
from manyhot._files import write_json
from manyhot.comparison.attempt import failed
from manyhot.comparison.cell import DECISIONS, JobRun
from manyhot.comparison.grid import LoadedSets, device_of, shapes_of
from manyhot.comparison.job import Job
from manyhot.comparison.measure import measure_decisions
from manyhot.comparison.methods import parse_methods
from manyhot.comparison.plan import Plan
from manyhot.comparison.records import CELLS, PLAN, add_cells, cell_key, read_cells, remove_incomplete_line
from manyhot.comparison.settings import CompareSettings
from manyhot.decisions.calibrate import fit_calibration
from manyhot.decisions.links import probabilities
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.decisions.tune import tune_rule
from manyhot.metrics.running import Metrics

METHODS = "zlpr,bce,zlpr+pos_weight=10,zlpr+pos_weight=labels,zlpr+smoothing"


class RuledRun(JobRun):
    """A job whose records say what each rule makes of the scores."""

    @torch.no_grad()
    def record(self, place: int, ended: list[int]) -> dict[str, Any]:
        """One seed: metrics by rule, calibration errors by kind."""
        job, rows, best = self.job, self.data.rows[self.places[place]], self.best["tuned"]
        trial = int(best.values[place].argmax())
        held, tested = (
            self.ensemble.one(best.weights, self._table(place)[part.to(self.device)], place, trial).cpu()
            for part in (rows.validation, rows.test)
        )
        held_truth, truth = (self.data.labels[part] > 0 for part in (rows.validation, rows.test))
        with torch.enable_grad():
            fits = {kind: fit_calibration(held, held_truth.float(), kind=kind) for kind in ("temperature", "platt")}
        train = self.data.labels[rows.train]
        chosen = chosen_by(tested, held, held_truth, train, probabilities(tested, fits["platt"]))
        about = {"data": job.data, "model": job.model, "method": job.method.name, "seed": job.seeds[place]}
        return {
            "version": 1,
            "key": cell_key(*about.values()),
            **about,
            "title": job.method.title,
            "epochs": ended,
            "rules": {
                name: measure_decisions(each, truth, DECISIONS) | {"empty": float((~each.any(dim=1)).float().mean())}
                for name, each in chosen.items()
            },
            "ECE": {name: ece(tested, truth, link) for name, link in {"link": job.method.link or "hard", **fits}.items()},
        }


def chosen_by(tested: Tensor, held: Tensor, held_truth: Tensor, train: Tensor, probs: Tensor) -> dict[str, Tensor]:
    """Decisions ``[N, L]`` by rule. The first six use no labels but those trained on; the others validation rows."""
    odds = ((train.sum(0) + 0.5) / (len(train) - train.sum(0) + 0.5)).log()
    count = float(train.sum(1).mean())
    tuned = partial(tune_rule, held, held_truth.float(), folds=0)
    return {
        "zero": decide(tested),
        "at least one": decide(tested, DecisionRule(min_labels=1)),
        "as many as a row has on average": decide(tested, DecisionRule(top_k=max(1, round(count)))),
        "above the label's share": tested > odds,
        "above the root of its odds": tested > odds / 2,
        "as many labels as in training": tested > held.flatten().sort(descending=True).values[round(count * len(held)) - 1],
        "each label as often as in training": tested > rates_matched(held, train),
        "expected F1 of the row": best_expected(probs),
        "one cut, micro-F1": decide(tested, tuned(objective="micro-F1").rule),
        "a cut for each label, micro-F1": decide(tested, tuned(objective="micro-F1", per_label=True).rule),
        "a cut for each label, macro-F1": decide(tested, tuned(objective="macro-F1", per_label=True).rule),
    }


def rates_matched(held: Tensor, train: Tensor) -> Tensor:
    """``[L]``: the cut above which each label lies on as large a share of the rows ``held`` as of ``train``; at least one."""
    wanted = (train.mean(0) * len(held)).round().clamp(min=1).long().clamp(max=len(held) - 1)
    ordered = held.sort(dim=0, descending=True).values
    return (ordered.gather(0, (wanted - 1)[None]) + ordered.gather(0, wanted[None]))[0] / 2


def best_expected(probs: Tensor) -> Tensor:
    """The k best labels of each row, k best for ``2 sum_k p / (k + sum p)``, the ratio of expectations."""
    ordered, place = probs.sort(dim=1, descending=True)
    total = ordered.sum(dim=1, keepdim=True)
    sizes = torch.arange(1, probs.shape[1] + 1)
    k = (2 * ordered.cumsum(dim=1) / (sizes + total)).argmax(dim=1, keepdim=True)
    return torch.zeros_like(probs, dtype=torch.bool).scatter(1, place, torch.arange(probs.shape[1]) <= k)


def ece(scores: Tensor, truth: Tensor, link: Any) -> float:
    """The calibration error of probabilities by a link."""
    measured = Metrics(["ECE"], num_labels=truth.shape[1], link=link)
    measured.update(scores, truth)
    return float(measured.compute()["ECE"])


def run_one(given: tuple[Job, str], *, plan: Plan, deadline: float) -> tuple[Job, list[dict[str, Any]]]:
    """A job in a process of its own."""
    torch.set_num_threads(1)
    job, device = given
    if time.time() > deadline:
        return job, []
    if not hasattr(run_one, "sets"):
        run_one.sets = LoadedSets(plan)
    try:
        return job, RuledRun(job, run_one.sets.get(job.data), job.seeds, plan.settings, torch.device(device)).run()
    except Exception as error:  # One bad cell must not end the grid: it is recorded and tried again next time.
        return job, failed(job, f"{type(error).__name__}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("MANYHOT_DATA"))
    parser.add_argument("--out", type=Path, default=Path("comparisons/rules"))
    parser.add_argument("--sets", default=",".join(TABULAR))
    parser.add_argument("--models", default="linear,mlp")
    parser.add_argument("--losses", default=METHODS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--minutes", type=float, default=1e6, help="start no job after this")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    sets = tuple(find_sets(Path(given.data), given.sets.split(",")))
    methods = tuple(parse_methods([given.losses]))
    plan = Plan(sets, tuple(given.models.split(",")), methods, given.seeds, CompareSettings(device=given.device))
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / PLAN, plan.to_dict())
    path, started, deadline = given.out / CELLS, time.monotonic(), time.time() + 60 * given.minutes
    remove_incomplete_line(path)
    jobs = plan.missing(read_cells(path))
    shapes = shapes_of(plan, jobs)
    rank = {method.name: place for place, method in enumerate(methods)}
    order = sorted(jobs, key=lambda job: (rank[job.method.name], -shapes[job.data].rows * shapes[job.data].labels))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        work = partial(run_one, plan=plan, deadline=deadline)
        for job, records in pool.imap_unordered(work, [(job, device_of(job, plan, shapes)) for job in order]):
            add_cells(path, records)
            error = "".join({f" FAILED {record['error']}" for record in records if "error" in record})
            took = time.monotonic() - started
            print(f"{took:6.0f} s {job.data}/{job.model}/{job.method.name}{error}", file=sys.stderr, flush=True)
    about = plan.to_dict()
    entry = {"seconds": round(time.monotonic() - started, 1), "cells": len(read_cells(path)), "processes": given.jobs}
    with (given.out / RUNS).open("a") as file:
        file.write(json.dumps({**entry, "hardware": about["hardware"], "versions": about["versions"]}) + "\n")


if __name__ == "__main__":
    main()
