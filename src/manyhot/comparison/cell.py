"""One job of the grid: train the trials, select the best, evaluate it; one record per seed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from manyhot.comparison.cost import memory_of, seconds_of
from manyhot.comparison.ensemble import Snapshot
from manyhot.comparison.job import natural_rule
from manyhot.comparison.job_training import JobTraining
from manyhot.comparison.measure import best_cut, measure_decisions, measure_scores, share_without_labels
from manyhot.comparison.records import cell_key
from manyhot.metrics.at_k import LEAST_ROWS, label_propensities

DECISIONS = ("SubACC", "MLC-F1", "micro-F1", "macro-F1")
# Fewer scores than this are evaluated on the CPU: metrics read many single numbers, and each read would wait for the GPU.
FEW_SCORES = 1 << 20


class JobRun(JobTraining):
    """A job that is trained and evaluated."""

    def run(self) -> list[dict[str, Any]]:
        """Train, select and evaluate; one record per seed."""
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

    @torch.no_grad()
    def record(self, place: int, ended: Sequence[int]) -> dict[str, Any]:
        """The saved result of one seed."""
        job = self.job
        natural, natural_text = self._measure_natural(place)
        tuned, cuts = self._measure_tuned(place)
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
            "chosen": {rule: self._chosen_trial(best, place) for rule, best in self.best.items()},
            "trials": [
                {
                    "settings": trial,
                    "epochs": ended[number],
                    **{rule: float(best.values[place, number]) for rule, best in self.best.items()},
                }
                for number, trial in enumerate(self.trials)
            ],
            "metrics": {"natural": natural, "tuned": tuned},
        }

    def _chosen_trial(self, best: Snapshot, place: int) -> dict[str, Any]:
        """The best trial on the validation rows of one seed."""
        trial = int(best.values[place].argmax())
        return {
            "settings": self.trials[trial],
            "epoch": int(best.epochs[place, trial]),
            "validation": float(best.values[place, trial]),
        }

    def _outputs(self, best: Snapshot, rows: Tensor, place: int) -> Tensor:
        """Outputs ``[N, K]`` of one seed's best trial."""
        trial = int(best.values[place].argmax())
        return self.ensemble.one(best.weights, self._table(place)[rows.to(self.device)], place, trial)

    def _scores_and_truth(self, outputs: Tensor, rows: Tensor, where: torch.device) -> tuple[Tensor, Tensor]:
        """Label scores and true labels ``[N, L]`` on the device where they are evaluated."""
        scores = outputs if self.sets is None else self.sets.label_scores(outputs)
        return scores.to(where), self.truth[rows.to(self.device)].to(where)

    def _measure_natural(self, place: int) -> tuple[dict[str, float | None], str]:
        """Metrics on the test rows by the natural rule of the loss, and that rule as text."""
        best, rows = self.best["natural"], self.data.rows[self.places[place]].test
        tested = self._outputs(best, rows, place)
        where = _measured_on(tested, self.device)
        scores, truth = self._scores_and_truth(tested, rows, where)
        trial = int(best.values[place].argmax())
        threshold = best.extra[0][place, trial : trial + 1] if best.extra else None
        decisions = self._chosen(tested[None], threshold, place)[0].to(where)
        found = self._measured(scores, truth, place) | measure_decisions(decisions, truth, DECISIONS)
        return found | {"empty": share_without_labels(decisions)}, self._rule_text(threshold, place)

    def _measure_tuned(self, place: int) -> tuple[dict[str, float | None], dict[str, float]]:
        """Metrics on the test rows, each at its best threshold on the validation rows, and these thresholds."""
        best, rows = self.best["tuned"], self.data.rows[self.places[place]]
        tested = self._outputs(best, rows.test, place)
        where = _measured_on(tested, self.device)
        scores, truth = self._scores_and_truth(tested, rows.test, where)
        held_outputs = self._outputs(best, rows.validation, place)
        held_scores, held_truth = self._scores_and_truth(held_outputs, rows.validation, where)
        found = self._measured(scores, truth, place)
        cuts = {}
        for name in DECISIONS:
            cuts[name] = best_cut(held_scores, held_truth, name)
            found |= measure_decisions(scores > cuts[name], truth, (name,))
        return found | {"empty": share_without_labels(scores > cuts["micro-F1"])}, cuts

    def _measured(self, scores: Tensor, truth: Tensor, place: int) -> dict[str, float | None]:
        """Metrics of scores; PSP@k uses the label counts of the seed's training rows."""
        train = self.data.rows[self.places[place]].train
        propensities = None
        if len(train) >= LEAST_ROWS:
            propensities = label_propensities((self.data.labels[train] > 0).sum(dim=0), len(train))
        return measure_scores(scores, truth, self.job.method.link, propensities)

    def _rule_text(self, threshold: Tensor | None, place: int) -> str:
        if self.sets is not None:
            return "most probable set"
        rule = natural_rule(self.job.method, self.cardinality[place])
        if rule.top_k is not None:
            return f"top {rule.top_k}"
        text = f"s > {0.0 if threshold is None else float(threshold):.4g}"
        return f"{text}, at least {rule.min_labels}" if rule.min_labels else text

    def cost(self, seconds: float, train_share: float) -> dict[str, Any]:
        """The cost of a cell: its share of the job's time, and the memory of one model in training."""
        members, numbers = len(self.job.seeds) * len(self.trials), self.shape.parameters
        # Weights, gradients and Adam's state, and the outputs of a batch with their gradient, in float32.
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
            # The measured step includes the gradients, but not the weights and Adam's state.
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


def _measured_on(outputs: Tensor, device: torch.device) -> torch.device:
    """The device on which outputs are evaluated."""
    return torch.device("cpu") if outputs.numel() < FEW_SCORES else device
