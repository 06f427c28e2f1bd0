"""The training of a job: all seeds and trials of a method together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from manyhot.comparison.budget import batch_size, num_epochs
from manyhot.comparison.ensemble import Ensemble, MemberSteps, Shape, Snapshot
from manyhot.comparison.job import RATES, Job, check_memory, natural_rule
from manyhot.comparison.methods import POWERSET
from manyhot.comparison.objective import MemberLoss
from manyhot.comparison.selection import natural_value, ranking_sum, tuned_value
from manyhot.comparison.sets import ComparedSet
from manyhot.comparison.settings import CompareSettings
from manyhot.decisions.rule import decide
from manyhot.labels.powerset import LabelSets
from manyhot.labels.sparse import SparseLabels


class JobTraining:
    """Trains the members of a job, one for each seed and trial."""

    def __init__(self, job: Job, data: ComparedSet, places: Sequence[int], settings: CompareSettings, device: torch.device):
        """``places`` are the indices of the job's seeds in ``data``."""
        self.job, self.settings, self.device, self.places = job, settings, device, list(places)
        self.data = data
        rows = [data.rows[place] for place in places]
        self.batch = batch_size(len(rows[0].train), settings)
        self.steps_per_epoch = max(1, len(rows[0].train) // self.batch)
        self.epochs = num_epochs(self.steps_per_epoch, settings)
        self.trials = job.method.trials(settings.trials, RATES[job.model])
        labels = data.labels.to(device)
        self.train_rows = torch.stack([each.train for each in rows])
        self.sets, self.targets = _targets(job, labels, self.train_rows)
        self.truth = labels > 0
        self.held = [each.validation.to(device) for each in rows]
        self.inputs = data.inputs.to(device)
        outputs = data.labels.shape[1] if self.sets is None else len(self.sets)
        hidden = settings.hidden if job.model == "mlp" else 0
        self.shape = Shape(data.inputs.shape[-1], outputs, hidden, settings.dropout)
        check_memory(self.shape, len(self.trials) * len(job.seeds))
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
        self.best = {rule: Snapshot(self.ensemble, self._extra(), len(job.seeds)) for rule in ("natural", "tuned")}
        self.step_count = 0
        self.training_seconds = 0.0

    def _extra(self) -> list[Tensor]:
        return [] if self.loss.boundary is None else [self.loss.boundary]

    def _prior(self, seed_place: int) -> Tensor:
        if self.sets is None:
            return self.data.log_odds(seed_place)
        rows = self.data.rows[seed_place].train
        counts = torch.bincount(self.targets.cpu()[rows], minlength=len(self.sets)).double()
        # A label set that does not occur in training is never predicted.
        return torch.where(counts > 0, counts.clamp(min=1).log(), -1e4).float()

    def train_epoch(self, steps: int | None = None) -> None:
        """One epoch, or some steps of it."""
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
        """The factor of the learning rate: warm-up, then linear decay to zero at the last step."""
        total = self.epochs * self.steps_per_epoch
        rise = max(1, round(self.settings.warmup * total))
        return min(self.step_count / rise, max(total - self.step_count + 1, 1) / max(total - rise + 1, 1), 1.0)

    @torch.no_grad()
    def validate(self, epoch: int, running: Tensor) -> Tensor:
        """Evaluate all members and store the best; returns which of them improved under one of the rules, ``[S, T]``."""
        values: dict[str, list[Tensor]] = {"natural": [], "tuned": []}
        for place in range(len(self.job.seeds)):
            rows = self.held[place]
            truth = self.truth[rows]
            raw = self.ensemble.scores_of(self.ensemble.weights, self._table(place)[rows], place)
            scores = raw if self.sets is None else self.sets.label_scores(raw)
            self.loss.bound(place, raw, self.cardinality[place] / truth.shape[1])
            boundary = self.loss.boundary
            thresholds = None if boundary is None else boundary[place].detach()
            # The order of the labels, which takes long to find, does not depend on the rule.
            ranking = ranking_sum(scores, truth)
            values["natural"].append(natural_value(scores, self._chosen(raw, thresholds, place), truth, ranking))
            values["tuned"].append(tuned_value(scores, truth, ranking))
        better = torch.zeros_like(running)
        # One transfer to the CPU for all members. A member that diverged to NaN is never the best.
        natural, tuned = torch.stack([torch.stack(found) for found in values.values()]).nan_to_num(nan=-1.0).cpu()
        for rule, found in (("natural", natural), ("tuned", tuned)):
            better |= self.best[rule].update(self._extra(), found, epoch, running)
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


def _targets(job: Job, labels: Tensor, train_rows: Tensor) -> tuple[LabelSets | None, Tensor]:
    """The targets of the method: the labels; for label powerset the index of each row's label set."""
    if job.method.loss != POWERSET:
        return None, labels
    listed = SparseLabels.from_dense(labels > 0)
    seen = torch.from_numpy(np.unique(train_rows.numpy())).to(labels.device)
    sets = LabelSets.of(listed[seen])
    return sets, sets.classes(listed)
