"""One job of the grid: a method on a data set with a body, all its seeds and trials at once; one record a seed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyhot.comparison.budget import batch_size, num_epochs
from manyhot.comparison.cost import memory_of, seconds_of
from manyhot.comparison.ensemble import Ensemble, MemberSteps, Shape, Snapshot
from manyhot.comparison.measure import best_cut, measure_decisions, measure_scores
from manyhot.comparison.methods import POWERSET, Method
from manyhot.comparison.objective import MemberLoss
from manyhot.comparison.records import cell_key
from manyhot.comparison.selection import natural_value, tuned_value
from manyhot.comparison.sets import ComparedSet, SetShape
from manyhot.comparison.settings import CompareSettings
from manyhot.decisions.natural import natural_decision
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.labels.powerset import LabelSets
from manyhot.labels.sparse import SparseLabels

RATES = {"linear": (0.001, 0.2), "mlp": (0.0002, 0.02)}
DECISIONS = ("SubACC", "MLC-F1", "micro-F1", "macro-F1")
# Steps of a job above this many multiplications gain from a GPU.
LARGE_STEP = 1e8
# Fewer scores than this are measured on the CPU: the metrics ask for many single numbers, and a GPU answers each late.
FEW_SCORES = 1 << 20
MOST_BYTES = 24 << 30


@dataclass(frozen=True)
class Job:
    """What is to be run: the cells of these seeds."""

    data: str
    model: str
    method: Method
    seeds: tuple[int, ...]


class JobRun:
    """A job being run."""

    def __init__(self, job: Job, data: ComparedSet, places: Sequence[int], settings: CompareSettings, device: torch.device):
        """``places``: where the job's seeds stand among the rows of ``data``."""
        self.job, self.settings, self.device, self.places = job, settings, device, list(places)
        self.data = data
        rows = [data.rows[place] for place in places]
        self.batch = batch_size(len(rows[0].train), settings)
        self.steps_per_epoch = max(1, len(rows[0].train) // self.batch)
        self.epochs = num_epochs(self.steps_per_epoch, settings)
        self.trials = job.method.trials(settings.trials, RATES[job.model])
        labels = data.labels.to(device)
        self.train_rows = torch.stack([each.train for each in rows])
        seen = torch.from_numpy(np.unique(self.train_rows.numpy())).to(device)
        self.sets, self.targets = None, labels
        if job.method.loss == POWERSET:
            listed = SparseLabels.from_dense(labels > 0)
            self.sets = LabelSets.of(listed[seen])
            self.targets = self.sets.classes(listed)
        self.truth = labels > 0
        self.held = [each.validation.to(device) for each in rows]
        self.inputs = data.inputs.to(device)
        outputs = data.labels.shape[1] if self.sets is None else len(self.sets)
        hidden = settings.hidden if job.model == "mlp" else 0
        self.shape = Shape(data.inputs.shape[-1], outputs, hidden, settings.dropout)
        _check_memory(self.shape, len(self.trials) * len(job.seeds))
        counts = data.labels.sum(dim=1)
        self.cardinality = [float(counts[each.train].mean()) for each in rows]
        priors = torch.stack([self._prior(place) for place in places])
        self.ensemble = Ensemble(
            self.shape,
            priors,
            trials=len(self.trials),
            seeds=job.seeds,
            device=device,
            widths=[data.width(place) for place in places],
        )
        self.loss = MemberLoss(job.method, self.trials, seeds=len(job.seeds), num_labels=data.labels.shape[1], device=device)
        rates = torch.tensor([trial["learning_rate"] for trial in self.trials]).expand(len(job.seeds), -1)
        self.optimiser = MemberSteps(self.ensemble, self.loss.learned, rates, weight_decay=settings.weight_decay)
        self.orders = [np.random.default_rng([seed, 1]) for seed in job.seeds]
        self.draws = [torch.Generator(device=device).manual_seed(seed + 1) for seed in job.seeds]
        self.best = {rule: Snapshot(self.ensemble, self._beside(), len(job.seeds)) for rule in ("natural", "tuned")}
        self.step_count = 0
        self.training_seconds = 0.0

    def _beside(self) -> list[Tensor]:
        return [] if self.loss.boundary is None else [self.loss.boundary]

    def _prior(self, seed_place: int) -> Tensor:
        if self.sets is None:
            return self.data.log_odds(seed_place)
        rows = self.data.rows[seed_place].train
        counts = torch.bincount(self.targets.cpu()[rows], minlength=len(self.sets)).double()
        # A set that training does not have can never be chosen.
        return torch.where(counts > 0, counts.clamp(min=1).log(), -1e4).float()

    def run(self) -> list[dict[str, Any]]:
        """Train, choose, measure: one record a seed."""
        started = time.perf_counter()
        last = torch.zeros(len(self.job.seeds), len(self.trials), dtype=torch.int64)
        running = torch.ones_like(last, dtype=torch.bool)
        ended = torch.zeros_like(last)
        for epoch in range(1, self.epochs + 1):
            self.train_epoch()
            better = self.validate(epoch, running)
            last = torch.where(better, epoch, last)
            ended = torch.where(running, epoch, ended)
            running &= epoch - last < self.settings.patience
            if not bool(running.any()):
                break
        train_share = self.training_seconds / max(epoch * len(self.job.seeds) * len(self.trials), 1)
        records = [self.record(place, ended[place].tolist()) for place in range(len(self.job.seeds))]
        seconds = (time.perf_counter() - started) / len(self.job.seeds)
        costs = self.cost(seconds, train_share)
        for place, record in enumerate(records):
            record["cost"] = {**costs, "predict_seconds": round(self.predict_seconds(place), 6)}
        return records

    def train_epoch(self, steps: int | None = None) -> None:
        """One pass over the training rows, or a part of it."""
        started = time.perf_counter()
        count = steps or self.steps_per_epoch
        orders = [order.permutation(self.train_rows.shape[1]) for order in self.orders]
        used = count * self.batch
        picked = torch.stack(
            [rows[torch.from_numpy(order[:used])] for rows, order in zip(self.train_rows, orders, strict=True)]
        ).to(self.device)
        options = self.job.method.options
        shares = None
        if "mixup" in options:
            drawn = np.stack([order.beta(options["mixup"], options["mixup"], size=count) for order in self.orders])
            shares = torch.from_numpy(drawn).float().to(self.device)
        for step in range(count):
            rows = picked[:, step * self.batch : (step + 1) * self.batch]
            if rows.shape[1] == 0:
                break
            self.train_step(rows, None if shares is None else shares[:, step])
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.training_seconds += time.perf_counter() - started

    def train_step(self, rows: Tensor, share: Tensor | None) -> None:
        """One step on ``rows [S, B]``."""
        inputs, targets = self._gather(rows), self.targets[rows]
        if share is not None:
            own = share[:, None, None]
            inputs = own * inputs + (1 - own) * inputs.roll(1, dims=1)
            targets = own * targets + (1 - own) * targets.roll(1, dims=1)
        twice = "rdrop" in self.job.method.options
        drops = self.settings.dropout > 0 and (self.shape.hidden or twice)
        mask = partial(self.ensemble.drop_mask, rows.shape[1], self.draws)
        logits = self.ensemble(inputs, mask() if drops else None)
        again = self.ensemble(inputs, mask() if drops else None) if twice else None
        self.loss(logits, targets, again, self.draws).backward()  # type: ignore[no-untyped-call]
        self.step_count += 1
        self.optimiser.step(self._rate())

    def _gather(self, rows: Tensor) -> Tensor:
        if len(self.inputs) == 1:
            return self.inputs[0][rows]
        return torch.stack([self.inputs[place][own] for place, own in zip(self.places, rows, strict=True)])

    def _rate(self) -> float:
        """The share of the learning rate: a rise, then a fall to zero at the last step."""
        total = self.epochs * self.steps_per_epoch
        rise = max(1, round(self.settings.warmup * total))
        return min(self.step_count / rise, max(total - self.step_count + 1, 1) / max(total - rise + 1, 1), 1.0)

    @torch.no_grad()
    def validate(self, epoch: int, running: Tensor) -> Tensor:
        """Measure all members, keep the best; says ``[S, T]`` which got better by either rule."""
        values: dict[str, list[Tensor]] = {"natural": [], "tuned": []}
        for place in range(len(self.job.seeds)):
            rows = self.held[place]
            truth = self.truth[rows]
            raw = self.ensemble.scores_of(self.ensemble.weights, self._table(place)[rows], place)
            scores = raw if self.sets is None else self.sets.label_scores(raw)
            self.loss.bound(place, raw, self.cardinality[place] / truth.shape[1])
            boundary = self.loss.boundary
            thresholds = None if boundary is None else boundary[place].detach()
            values["natural"].append(natural_value(scores, self._chosen(raw, thresholds, place), truth))
            values["tuned"].append(tuned_value(scores, truth))
        better = torch.zeros_like(running)
        # One transfer for all; a member that has run away to NaN is never the best.
        natural, tuned = torch.stack([torch.stack(found) for found in values.values()]).nan_to_num(nan=-1.0).cpu()
        for rule, found in (("natural", natural), ("tuned", tuned)):
            better |= self.best[rule].update(self._beside(), found, epoch, running)
        return better

    def _table(self, place: int) -> Tensor:
        return self.inputs[self.places[place] if len(self.inputs) > 1 else 0]

    def _chosen(self, raw: Tensor, thresholds: Tensor | None, place: int) -> Tensor:
        """The natural decisions, bool ``[T, N, L]``, of outputs ``[T, N, K]``."""
        if self.sets is not None:
            return self.sets.chosen(raw) > 0
        if thresholds is not None:
            raw = raw - thresholds[:, None, None]
        return decide(raw, natural_rule(self.job.method, self.cardinality[place]))

    @torch.no_grad()
    def record(self, place: int, ended: Sequence[int]) -> dict[str, Any]:
        """What is saved of one seed."""
        job, rows = self.job, self.data.rows[self.places[place]]
        metrics: dict[str, dict[str, float | None]] = {}
        chosen, cuts, natural_text = {}, {}, ""
        for rule, best in self.best.items():
            trial = int(best.values[place].argmax())
            chosen[rule] = {
                "settings": self.trials[trial],
                "epoch": int(best.epochs[place, trial]),
                "validation": float(best.values[place, trial]),
            }
            held, tested = (
                self.ensemble.one(best.weights, self._table(place)[part.to(self.device)], place, trial)
                for part in (rows.validation, rows.test)
            )
            threshold = best.extra[0][place, trial : trial + 1] if best.extra else None
            where = torch.device("cpu") if tested.numel() < FEW_SCORES else self.device
            truth = self.truth[rows.test.to(self.device)].to(where)
            scores = (tested if self.sets is None else self.sets.label_scores(tested)).to(where)
            found = measure_scores(scores, truth, job.method.link)
            if rule == "natural":
                decisions = self._chosen(tested[None], threshold, place)[0].to(where)
                found |= measure_decisions(decisions, truth, DECISIONS)
                found["empty"] = float((~decisions.any(dim=1)).float().mean())
                natural_text = self._rule_text(threshold, place)
            else:
                held_scores = (held if self.sets is None else self.sets.label_scores(held)).to(where)
                held_truth = self.truth[self.held[place]].to(where)
                for name in DECISIONS:
                    cuts[name] = best_cut(held_scores, held_truth, name)
                    decisions = scores > cuts[name]
                    found |= measure_decisions(decisions, truth, (name,))
                    if name == "micro-F1":
                        found["empty"] = float((~decisions.any(dim=1)).float().mean())
            metrics[rule] = found
        return {
            "version": 1,
            "key": cell_key(job.data, job.model, job.method.name, job.seeds[place]),
            "data": job.data,
            "model": job.model,
            "method": job.method.name,
            "seed": job.seeds[place],
            "title": job.method.title,
            "family": job.method.family,
            "facts": self.data.facts(self.places[place]),
            "rules": {"natural": natural_text, "tuned": cuts},
            "chosen": chosen,
            "trials": [
                {
                    "settings": trial,
                    "epochs": ended[number],
                    **{rule: float(best.values[place, number]) for rule, best in self.best.items()},
                }
                for number, trial in enumerate(self.trials)
            ],
            "metrics": metrics,
        }

    def _rule_text(self, threshold: Tensor | None, place: int) -> str:
        if self.sets is not None:
            return "most probable set"
        rule = natural_rule(self.job.method, self.cardinality[place])
        if rule.top_k is not None:
            return f"top {rule.top_k}"
        text = f"s > {0.0 if threshold is None else float(threshold):.4g}"
        return f"{text}, at least {rule.min_labels}" if rule.min_labels else text

    def cost(self, seconds: float, train_share: float) -> dict[str, Any]:
        """What a cell took: its share of the job's time, and the memory of one model in training."""
        members, numbers = len(self.job.seeds) * len(self.trials), self.shape.parameters
        # Weights, gradients and Adam's two means, and the outputs of a batch with their gradient, in float32.
        counted = 4 * (4 * numbers + 2 * self.batch * self.shape.outputs)
        rows = self.train_rows[:, : self.batch].to(self.device)
        share = torch.full((len(rows),), 0.5, device=self.device) if "mixup" in self.job.method.options else None
        measured = memory_of(lambda: self.train_step(rows, share), self.device)
        return {
            "seconds": round(seconds, 4),
            "epoch_seconds": round(train_share, 6),
            "parameters": numbers,
            "outputs": self.shape.outputs,
            "state_bytes": counted,
            # A step holds the gradients; weights and Adam's means stand beside it.
            "peak_bytes": counted if measured is None else 12 * numbers + measured // members,
            "device": self.device.type,
        }

    @torch.no_grad()
    def predict_seconds(self, place: int) -> float:
        """Seconds to score 1,000 rows with the model of one seed and to decide by its natural rule."""
        best = self.best["natural"]
        trial = int(best.values[place].argmax())
        threshold = best.extra[0][place, trial : trial + 1] if best.extra else None
        rows = self._table(place)[self.data.rows[self.places[place]].test.to(self.device)]

        def predict() -> None:
            scores = self.ensemble.one(best.weights, rows, place, trial)
            self._chosen(scores[None], threshold, place)

        return seconds_of(predict, self.device) * 1000 / max(len(rows), 1)


def _check_memory(shape: Shape, members: int) -> None:
    """Weights, gradients, Adam's two means and two snapshots of all members must fit."""
    wanted = 6 * 4 * shape.parameters * members
    if wanted > MOST_BYTES:
        raise TooLargeError(f"{members} models of {shape.parameters:,} numbers would take {wanted / 2**30:.0f} GiB")


class TooLargeError(ValueError):
    """The members of a job do not fit into memory together."""


def step_work(job: Job, size: SetShape, settings: CompareSettings) -> float:
    """Multiplications of one step of a job, forward and backward."""
    outputs = size.labels if job.method.loss != POWERSET else size.label_sets
    shape = Shape(size.features, outputs, settings.hidden if job.model == "mlp" else 0, 0.0)
    return 3.0 * shape.parameters * batch_size(size.rows, settings) * settings.trials * len(job.seeds)


def natural_rule(method: Method, cardinality: float) -> DecisionRule:
    """The rule that comes with the loss; losses that only rank take as many labels as training rows have on average."""
    min_labels = method.options.get("min_labels", 0)
    if method.info is None:
        return DecisionRule(min_labels=min_labels)
    return natural_decision(method.info.decision).rule(cardinality=cardinality, min_labels=min_labels)
