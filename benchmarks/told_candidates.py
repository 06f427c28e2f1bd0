"""What tables and texts told a metric should be fitted with: ``python -m benchmarks.told_candidates``.

Losses, batches, rows held out, means over losses, and rules are tried.

    python -m benchmarks.told_candidates --data FOLDER --out FILE --work SCORES --jobs 12 --seconds 400
    python -m benchmarks.told_choices FILE                                    # the table

What FILE has already is not run again.

Every fit trains on three quarters of a set's training rows and is judged on the other quarter; rules are tuned on rows held out
within the three quarters. No test file is read. The sets are those that choose (``metric_defaults.CHOOSING``).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.metric_defaults import CHOOSING, examples_of, judge
from manyhot.data.examples import Examples
from manyhot.decisions.calibrate import fit_calibration
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.decisions.tune import tune_rule
from manyhot.labels.powerset import LabelSets, decided_scores, label_scores
from manyhot.labels.sparse import SparseLabels
from manyhot.labels.split import stratified_split
from manyhot.metrics.running import Metrics
from manyhot.training.rows.rules.fitting import Tuning
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.strategies import SetReader
from manyhot.training.rows.train import train

SPARSE = ("medical", "bibtex", "corel5k")
SMALL = ("emotions", "birds", "medical")
POWERSET = {"strategy": "label-powerset"}
# Fits of dense tables and of mlp: "s" for batches of a sixteenth of the rows, "l" for twice the epochs beside it, "f" for a
# fifth of the rows held out in each of the five fits, "t" for three fits of that kind, "w" for
# weight decay 0.3.
LOSSES: dict[str, dict[str, Any]] = {
    "zlpr": {}, "bce": {"loss": "bce"}, "two_way": {"loss": "two_way"}, "powerset": POWERSET, "dice2": {"loss": "dice2"},
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "": {}, "s": {"batch_size": -1}, "l": {"batch_size": -1, "epochs": 80, "patience": 10},
    "f": {"batch_size": -1, "validation": 0.2}, "t": {"batch_size": -1, "validation": 0.2, "members": 3},
    "w": {"batch_size": -1, "weight_decay": 0.3},
}  # fmt: skip
DENSE_FITS = {
    f"{loss}{'/' if shape else ''}{shape}": {**LOSSES[loss], **SHAPES[shape]}
    for shape, loss in product(("s", "", "f", "l", "t", "w"), LOSSES)
    if not (loss == "dice2" and shape != "s") and not (loss == "two_way" and shape in ("", "l", "t", "w"))
}
CROSSED_FITS: dict[str, dict[str, Any]] = {**LOSSES, "hinge": {"loss": "squared_hinge"}}
TEXT_FITS: dict[str, dict[str, Any]] = {
    "hinge": {}, "zlpr": {"loss": "zlpr"}, "bce": {"loss": "bce"}, "hinge5": {"folds": 5}, "powerset": POWERSET,
    "two_way": {"loss": "two_way"},
}  # fmt: skip
MIXED = (
    ("zlpr", "bce"), ("zlpr", "powerset"), ("bce", "powerset"), ("zlpr", "bce", "two_way"), ("zlpr", "bce", "powerset"),
    ("zlpr", "bce", "two_way", "powerset"), ("zlpr", "bce", "dice2", "powerset"), ("hinge", "bce"), ("hinge", "zlpr"),
    ("hinge", "zlpr", "bce"), ("hinge", "zlpr", "bce", "powerset"), ("hinge", "bce", "powerset"),
    ("zlpr", "bce", "two_way", "dice2", "powerset"),
)  # fmt: skip
# Texts whose thresholds are tuned with several strengths of shrinking.
MORE = ("hinge", "hinge+zlpr+bce")
DECIDED = ("SubACC", "MLC-F1", "micro-F1", "macro-F1")


def fits_of(name: str, body: str) -> dict[str, dict[str, Any]]:
    """The fits that are tried for a set and a body."""
    if body == "text":
        return TEXT_FITS
    if body == "linear" and name in SPARSE:
        return CROSSED_FITS
    return DENSE_FITS if name in SMALL else {n: s for n, s in DENSE_FITS.items() if "/" not in n or n.endswith(("/s", "/t"))}


def batch_of(rows: int) -> int:
    """The power of two nearest to a sixteenth of the rows, from 16 to 128."""
    return min(max(1 << max(0, round(np.log2(max(rows, 1) / 16))), 16), 128)


@lru_cache(maxsize=4)
def split_of(name: str, seed: int, folder: str) -> tuple[Examples, Examples]:
    rows = examples_of(name, folder)
    kept, apart = stratified_split(rows.labels, test_size=0.25, seed=100 + seed)
    return rows[kept.numpy()], rows[apart.numpy()]


def fit(name: str, body: str, seed: int, candidate: str, folder: str, work: str) -> float:
    """Train a candidate and keep the scores of held-out and judging rows; powersets give the log odds of each label."""
    torch.set_num_threads(1)
    began, path = time.process_time(), Path(work) / f"{name}-{body}-{seed}-{candidate.replace('/', '_')}.safetensors"
    own, judging = split_of(name, seed, folder)
    given = dict(fits_of(name, body)[candidate])
    if given.get("batch_size") == -1:
        given["batch_size"] = batch_of(len(own))
    model_name = {} if body == "text" else {"model": body}
    settings = TrainSettings(metric="micro-F1", mean_of="none", seed=seed, device="cpu", threads=1, **model_name, **given)
    SetReader.forward = lambda self, logits: label_scores(logits, self.members)
    held: list[Tuning] = []
    model = train(own, settings, held_out=lambda _, tuning: held.append(tuning))
    found = {"held": held[0].all_scores, "rows": held[0].rows, "judged": model.logits(judging)}
    if held[0].fold is not None:
        found["fold"] = held[0].fold
    if "strategy" in given:
        SetReader.forward = lambda self, logits: decided_scores(logits, self.members)
        found["decided"] = (model.logits(judging) > 0).to(torch.uint8)
    save_file({key: value.contiguous() for key, value in found.items()}, path)
    return time.process_time() - began


class Case:
    """Scores of held-out and judging rows with everything that rules need."""

    def __init__(self, held: Tensor, judged: Tensor, own: SparseLabels, truth: Examples, others: SparseLabels) -> None:
        self.held, self.judged, self.own, self.truth, self.others = held, judged, own, truth, others

    def scaled(self) -> Case:
        """The same on the scale of log odds."""
        platt = fit_calibration(self.held, self.own, kind="platt")
        slope, intercept = float(platt.slope), float(platt.intercept)
        return Case(slope * self.held + intercept, slope * self.judged + intercept, self.own, self.truth, self.others)

    def by_sets(self, weight: float, share: float) -> Case:
        """Log odds of the labels under the posterior over seen label sets, mixed with the scores themselves."""
        known = SparseLabels.collate([self.own, self.others])
        sets = LabelSets.of(known)
        place = sets.classes(known)
        counts = torch.bincount(place, minlength=len(sets)).float()
        found = []
        for scores, mine in ((self.held, place[: len(self.own)]), (self.judged, None)):
            parts = []
            for start in range(0, len(scores), 512):
                part = scores[start : start + 512]
                totals = part @ sets.members.T + weight * counts.log()
                if mine is not None:
                    own = mine[start : start + 512]
                    left = counts[own] - 1
                    less = torch.where(left > 0, weight * (left.clamp(min=1).log() - counts[own].log()), -1e9)
                    totals[torch.arange(len(own)), own] += less
                odds = label_scores(totals, sets.members).clamp(-12, 12)
                parts.append((1 - share) * part + share * odds)
            found.append(torch.cat(parts))
        return Case(*found, self.own, self.truth, self.others)

    def rankings(self) -> dict[str, float]:
        names = ["AvgPrec", "RankLoss"] + [f"P@{k}" for k in (1, 3, 5) if k <= self.judged.shape[1]]
        metrics = Metrics(names, num_labels=self.judged.shape[1])
        metrics.update(self.judged, self.truth.labels)
        return {name: float(value) for name, value in metrics.compute().items()}

    def judge(self, rule: DecisionRule, metric: str) -> float:
        return judge(decide(self.judged, rule), self.truth, metric)

    def decisions(self, *, more: bool, sets: bool) -> dict[str, float]:
        told = {}
        given: Any = (self.held, self.own)
        for metric in DECIDED:
            rule = tune_rule(*given, objective=metric, folds=0).rule
            told[metric] = self.judge(rule, metric)
            told[f"{metric}, 1+"] = self.judge(DecisionRule(threshold=rule.threshold, min_labels=1), metric)
        for metric, shrink in product(("micro-F1", "macro-F1"), (5.0, 0.0, 2.0, 15.0) if more else (5.0,)):
            rule = tune_rule(*given, objective=metric, per_label=True, shrink=shrink, folds=0).rule
            told[f"{metric}, labels {shrink:g}"] = self.judge(rule, metric)
            least = DecisionRule(threshold=rule.threshold, min_labels=1)
            told[f"{metric}, labels {shrink:g}, 1+"] = self.judge(least, metric)
            if metric == "micro-F1" and shrink == 5:
                told["MLC-F1, labels 5"], told["MLC-F1, labels 5, 1+"] = (self.judge(each, "MLC-F1") for each in (rule, least))
        if sets:
            tuned = tune_rule(*given, objective="SubACC", sets=True, other_rows=self.others, folds=0)
            told["SubACC, sets"] = self.judge(tuned.rule, "SubACC")
            for metric in DECIDED[1:]:
                told[f"{metric}, sets"] = self.judge(tuned.rule, metric)
            for weight in (0.0, 0.5, 1.0):
                chosen = self.expected_best(weight)
                told |= {f"{metric}, expected {weight:g}": judge(chosen, self.truth, metric) for metric in DECIDED[1:3]}
        return told

    def expected_best(self, weight: float, most: int = 48) -> Tensor:
        """The seen set of highest expected F1 of a row under the posterior over seen sets."""
        known = SparseLabels.collate([self.own, self.others])
        sets = LabelSets.of(known)
        counts = torch.bincount(sets.classes(known), minlength=len(sets)).float()
        chosen = []
        for start in range(0, len(self.judged), 64):
            totals = self.judged[start : start + 64] @ sets.members.T + weight * counts.log()
            best, place = totals.topk(min(most, totals.shape[1]), dim=1)
            share, members = best.softmax(dim=1), sets.members[place]
            common, sizes = torch.bmm(members, members.transpose(1, 2)), members.sum(dim=2)
            total = sizes[:, :, None] + sizes[:, None, :]
            f1 = torch.where(total > 0, 2 * common / total.clamp(min=1), 1.0)
            winner = torch.bmm(f1, share[:, :, None])[:, :, 0].argmax(dim=1)
            chosen.append(members[torch.arange(len(winner)), winner] > 0)
        return torch.cat(chosen)


def group(name: str, body: str, seed: int, folder: str, work: str) -> list[dict[str, Any]]:
    """The metrics of every candidate and mean of a group."""
    torch.set_num_threads(1)
    own, judging = split_of(name, seed, folder)
    cases: dict[str, Case] = {}
    told: dict[str, dict[str, float]] = defaultdict(dict)
    for path in sorted(Path(work).glob(f"{name}-{body}-{seed}-*.safetensors")):
        each = load_file(path)
        candidate = path.stem.split("-", 3)[3] if body == "text" else _named(path.stem.split("-", 3)[3])
        apart = torch.ones(len(own), dtype=torch.bool)
        apart[each["rows"]] = False
        cases[candidate] = Case(each["held"], each["judged"], own.labels[each["rows"]], judging, own.labels[apart]).scaled()
        if "decided" in each:
            told[candidate]["SubACC, argmax"] = judge(each["decided"] > 0, judging, "SubACC")
    shapes = {name.partition("/")[2] for name in cases}
    for shape, parts in product(sorted(shapes), MIXED):
        names = [f"{part}/{shape}" if shape else part for part in parts]
        if all(each in cases for each in names):
            used = [cases[each] for each in names]
            held, judged = (torch.stack([getattr(c, side) for c in used]).mean(dim=0) for side in ("held", "judged"))
            first = used[0]
            cases["+".join(parts) + (f"/{shape}" if shape else "")] = Case(held, judged, first.own, first.truth, first.others)
    few = own.num_labels <= 200 and body != "text"
    found = []
    for candidate, case in cases.items():
        told[candidate] |= case.rankings() | case.decisions(more=candidate in MORE or name in SMALL, sets=few)
        found.append({"set": name, "body": body, "seed": seed, "fits": candidate, "scores": "own", "metrics": told[candidate]})
        if few and candidate.partition("/")[0] in ("zlpr", "zlpr+bce+powerset", "zlpr+bce", "zlpr+bce+two_way+powerset"):
            for weight, share in ((0.0, 0.5), (0.5, 0.5), (0.5, 1.0)):
                moved = case.by_sets(weight, share)
                metrics = moved.rankings() | moved.decisions(more=False, sets=False)
                about = {"set": name, "body": body, "seed": seed, "fits": candidate}
                found.append({**about, "scores": f"sets {weight:g}, {share:g}", "metrics": metrics})
    return found


def _named(stem: str) -> str:
    head, mark, tail = stem.rpartition("_")
    return f"{head}/{tail}" if mark and tail in SHAPES else stem


def planned(seeds: int) -> list[tuple[str, str, int]]:
    """Groups in the order in which they are run."""
    first = [(name, body, seed) for seed in range(seeds) for name in SMALL for body in ("linear", "mlp")]
    texts = [(name, "text", seed) for seed in range(2) for name in ("cooking_stackexchange", "reuters21578")]
    large = [(name, body, 0) for name in ("bibtex", "corel5k") for body in ("linear", "mlp")]
    return [*first[:6], *texts[:2], *large, *first[6:], *texts[2:], *((n, b, 1) for n, b, _ in large)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("MANYHOT_DATA"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/told_candidates"))
    parser.add_argument("--sets", default=",".join(CHOOSING))
    parser.add_argument("--bodies", default="linear,mlp,text")
    parser.add_argument("--fits", default="", help="the fits that are tried, with commas; all by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    ends, began = time.monotonic() + given.seconds, time.monotonic()
    given.work.mkdir(parents=True, exist_ok=True)
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    done = {(c["set"], c["body"], c["seed"]) for c in map(json.loads, lines)}
    wanted = given.sets.split(","), given.bodies.split(",")
    groups = [g for g in planned(given.seeds) if g not in done and g[0] in wanted[0] and g[1] in wanted[1]]
    chosen = {g: [name for name in fits_of(*g[:2]) if not given.fits or name in given.fits.split(",")] for g in groups}
    left = {g: len(chosen[g]) for g in groups}
    where = {"folder": str(given.data), "work": str(given.work)}
    with ProcessPoolExecutor(given.jobs) as pool, given.out.open("a") as file:
        waiting: dict[Any, Any] = {}
        for each in groups:
            for candidate in chosen[each]:
                waiting[pool.submit(fit, *each, candidate, **where)] = (each, candidate)
        # The judging of a group is short and is what is kept: it must not wait behind all fits.
        judges = ProcessPoolExecutor(max(given.jobs // 4, 1))
        late = False
        while waiting:
            finished, _ = wait(waiting, timeout=5, return_when=FIRST_COMPLETED)
            for future in finished:
                each, candidate = waiting.pop(future)
                if future.cancelled():
                    continue
                error = future.exception()
                if error is not None:
                    print(each, candidate, f"{type(error).__name__}: {error}"[:200], flush=True)
                if candidate == "judge":
                    for row in [] if error else future.result():
                        file.write(json.dumps(row) + "\n")
                    file.flush()
                    print(f"{time.monotonic() - began:5.0f} s judged", *each, flush=True)
                    continue
                print(
                    f"{time.monotonic() - began:5.0f} s",
                    *each,
                    candidate,
                    "" if error else f"{future.result():.1f}",
                    flush=True,
                )
                left[each] -= 1
                if left[each] == 0:
                    waiting[judges.submit(group, *each, **where)] = (each, "judge")
            if not late and time.monotonic() > ends - 100:
                late = True
                for future in [f for f, (_, c) in waiting.items() if c != "judge"]:
                    future.cancel()
                for each in groups:
                    if left[each] and any(given.work.glob("-".join(map(str, each)) + "-*")):
                        waiting[judges.submit(group, *each, **where)] = (each, "judge")
            if time.monotonic() > ends:
                break
        for each in (pool, judges):
            for process in list(each._processes.values()):
                process.kill()
            each.shutdown(wait=False, cancel_futures=True)
        file.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
