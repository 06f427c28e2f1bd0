"""The accumulated sums from which metrics over batches are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_choice, check_first_outside
from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.links import LINKS
from manyhot.decisions.rule import DecisionRule
from manyhot.metrics.at_k import check_propensities
from manyhot.metrics.blocks import NO_FAULT, Labels, Scores, arrange, blocks, first_row, raise_faults
from manyhot.metrics.calibration import add_bins, add_squares, outside_unit
from manyhot.metrics.confusion import Confusion
from manyhot.metrics.counted import CountedRows, CountedWork, count_rows
from manyhot.metrics.curves import Areas, binned_areas, exact_areas, truth_of
from manyhot.metrics.info import ALL_SCORES, DECISIONS
from manyhot.metrics.measures import (
    IDENTITY,
    AreaMeasure,
    BlockWork,
    LabelMeasure,
    ProbabilityMeasure,
    RowMeasure,
    ScoreReading,
    per_label_counts,
)
from manyhot.metrics.names import MetricName, read_metric
from manyhot.metrics.needs import check_table, refuse_probabilities

M = TypeVar("M", RowMeasure, LabelMeasure, AreaMeasure, ProbabilityMeasure)


class MetricSums:
    """The base of ``Metrics`` and ``Sums``: which sums are kept, how rows are added, and how values are computed."""

    row_counts: Tensor
    row_sums: Tensor
    entries: Tensor
    label_counts: Tensor
    score_bins: Tensor
    calibration: Tensor
    squares: Tensor
    faults: Tensor
    all_scores: Any
    all_truth: Any
    propensities: Tensor | None

    # Provided by the class that these methods are mixed into.
    _defaults: dict[str, Any]
    device: torch.device
    add_state: Any
    register_buffer: Any
    _synced: Any

    def _set_up(
        self,
        names: Sequence[str],
        num_labels: int,
        rule: DecisionRule | None,
        link: str | Calibration | None,
        empty: float,
        propensities: Tensor | None,
        bins: int,
        calibration_bins: int,
    ) -> None:
        if isinstance(names, str) or not names:
            raise ValueError(f"Metrics: `names` must be a list of at least one name; got {names!r}.")
        check_at_least("Metrics", "num_labels", num_labels, 0)
        check_at_least("Metrics", "bins", bins, 2)
        check_at_least("Metrics", "calibration_bins", calibration_bins, 1)
        self.names = tuple(read_metric("Metrics", "names", name) for name in dict.fromkeys(names))
        if link is None:
            refuse_probabilities("Metrics", self.names)
        elif not isinstance(link, Calibration):
            check_choice("Metrics", "link", link, (*LINKS, IDENTITY))
        self.num_labels = num_labels
        above = any(name.info.lists for name in self.names)
        self.reading = ScoreReading(rule or DecisionRule(), link, empty, above)
        if propensities is not None:
            check_propensities("Metrics", propensities, num_labels)
        elif any(name.kind == "PSP@k" for name in self.names):
            raise ValueError("Metrics: `propensities` must be given for PSP@k. Make them with label_propensities.")
        self.register_buffer("propensities", propensities, persistent=False)
        self._rows = self._of(RowMeasure)
        self._add_states(bins, calibration_bins)

    def _add_states(self, bins: int, calibration_bins: int) -> None:
        self.add_state("row_counts", torch.zeros(3, dtype=torch.int64), "sum")
        self.add_state("row_sums", _zeros(2, len(self._rows)), "sum")
        self.add_state("entries", torch.zeros((), dtype=torch.int64), "sum")
        self.add_state("faults", torch.full((3,), NO_FAULT), "min")
        if self._of(LabelMeasure):
            self.add_state("label_counts", torch.zeros((3, self.num_labels), dtype=torch.int64), "sum")
        areas = [measure for _, measure in self._of(AreaMeasure)]
        if any(measure.binned for measure in areas):
            pooled = all(measure.pooled for measure in areas if measure.binned)
            self.add_state("score_bins", _zeros(2, 1 if pooled else self.num_labels, bins), "sum")
        if not all(measure.binned for measure in areas):
            self.add_state("all_scores", [], "cat")
            self.add_state("all_truth", [], "cat")
        for state, size in (("calibration", (3, calibration_bins)), ("squares", (2,))):
            of_state = [measure for _, measure in self._of(ProbabilityMeasure) if measure.state == state]
            if of_state:
                width = 1 if all(measure.pooled for measure in of_state) else self.num_labels
                self.add_state(state, _zeros(size[0], width, *size[1:]), "sum")

    @torch.no_grad()
    def update(
        self, scores: Scores | None, labels: Labels, where: Tensor | None = None, *, predictions: Labels | None = None
    ) -> None:
        """Add rows.

        Args:
            scores: ``[..., L]``, or lazy scores of a linear head. ``TopScores`` are enough for P@k, R@k, nDCG@k, PSP@k and
                one-error; None is enough for metrics of label sets if ``predictions`` are given.
            labels: ``[..., L]``, 0 or 1 of any number type, or ``SparseLabels`` with one row for each row of ``scores``.
            where: bool, broadcastable to ``[..., L]``; False excludes an entry from all metrics.
            predictions: bool ``[..., L]`` or ``SparseLabels``, used instead of the rule's.
        """
        table = arrange("Metrics.update", scores, labels, predictions=predictions, where=where)
        check_table("Metrics.update", table, self.names, self.num_labels, self.device)
        if all(name.info.needs == DECISIONS for name in self.names):
            counted = count_rows(table, self.reading.rule, by_row=bool(self._rows))
            if counted is not None:
                self._add_counted(counted)
                return
        for block in blocks(table):
            work = BlockWork(block, self.reading, self.propensities)
            self._note_faults(work)
            self._add_rows(work, block.positives.counts(), block.known)
            if "label_counts" in self._defaults:
                self.label_counts += torch.stack(tuple(work.confusion[1]))
            if "score_bins" in self._defaults:
                add_bins(self.score_bins, work.probs, block)
            if "calibration" in self._defaults:
                add_bins(self.calibration, work.probs, block)
            if "squares" in self._defaults:
                add_squares(self.squares, work.probs, block)
            if "all_scores" in self._defaults:
                self.all_scores.append(block.scores.clone() if isinstance(block.scores, Tensor) else block.scores)
                self.all_truth.append(truth_of(block))

    def _note_faults(self, work: BlockWork) -> None:
        block = work.block
        outside = None
        if self.reading.link == IDENTITY and {"score_bins", "calibration", "squares"} & set(self._defaults):
            outside = outside_unit(work.probs, block.where)
        faults = torch.cat([block.faults, first_row(outside, block.start, self.device).reshape(1)])
        if self.device.type == "cpu":
            self._raise_faults("Metrics.update", faults)
        counted = torch.where(faults == NO_FAULT, NO_FAULT, faults - block.start + self.row_counts[0])
        self.faults = self.faults.minimum(counted)

    @staticmethod
    def _raise_faults(who: str, faults: Tensor) -> None:
        raise_faults(who, faults[:2])
        check_first_outside(who, "scores", -1 if int(faults[2]) == NO_FAULT else int(faults[2]))

    def _add_counted(self, counted: CountedRows) -> None:
        """Add rows that were counted in one read; for metrics of label sets."""
        if self.device.type == "cpu":
            self._raise_faults("Metrics.update", counted.faults(0))
        self.faults = self.faults.minimum(counted.faults(self.row_counts[0]))
        self._add_rows(CountedWork(counted, self.reading), counted.counts.by_row[2], counted.known)
        if "label_counts" in self._defaults:
            self.label_counts += counted.counts.by_label

    def _add_rows(self, work: BlockWork, positive: Tensor, known: Tensor) -> None:
        bare, full = positive == 0, (positive == known) & (known > 0)
        self.row_counts += torch.stack([torch.ones_like(bare).sum(), bare.sum(), full.sum()])
        self.entries += known.sum()
        if self._rows:
            sums = [measure.value(work, name.k).sum() for name, measure in self._rows]
            best = [
                torch.ones_like(sums[0]) if measure.best is None else measure.best(work, name.k).sum()
                for name, measure in self._rows
            ]
            self.row_sums += torch.stack([torch.stack(sums), torch.stack(best)])

    @torch.no_grad()
    def compute(self) -> dict[str, float]:
        """The values by name, in the order of ``names``; a mean over no rows or labels is NaN."""
        self._raise_faults("Metrics.compute, rows counted since the last reset", self.faults)
        values = self._row_values() | self._label_values() | self._area_values() | self._probability_values()
        found = torch.stack([values[name.text].to(torch.float64) for name in self.names])
        numbers = torch.where(self.row_counts[0] == 0, torch.nan, found).tolist()
        return {name.text: number for name, number in zip(self.names, numbers, strict=True)}

    def _row_values(self) -> dict[str, Tensor]:
        values = {}
        for place, (name, measure) in enumerate(self._rows):
            total, best = self.row_sums[:, place]
            values[name.text] = total / (self.row_counts[0] if measure.best is None else torch.where(best == 0, 1.0, best))
        return values

    def _label_values(self) -> dict[str, Tensor]:
        values = {}
        for name, measure in self._of(LabelMeasure):
            value = measure.value(Confusion(*self.label_counts))
            values[name.text] = value.double() / self.entries if measure.per_entry else value
        return values

    def _area_values(self) -> dict[str, Tensor]:
        values: dict[str, Tensor] = {}
        areas: dict[tuple[bool, bool], Areas] = {}
        for name, measure in self._of(AreaMeasure):
            how = measure.pooled, measure.binned
            if how not in areas:
                areas[how] = self._areas(pooled=measure.pooled, binned=measure.binned)
            values[name.text] = measure.value(areas[how])
        return values

    def _areas(self, *, pooled: bool, binned: bool) -> Areas:
        if binned:
            return binned_areas(self.score_bins.sum(dim=1, keepdim=True) if pooled else self.score_bins)
        if isinstance(self.all_scores, list) and not self.all_scores:
            nothing = torch.zeros((0, self.num_labels), device=self.device)
            return exact_areas(nothing, nothing.to(torch.int8), pooled=pooled)
        return exact_areas(_joined(self.all_scores), _joined(self.all_truth), pooled=pooled)

    def _probability_values(self) -> dict[str, Tensor]:
        values = {}
        for name, measure in self._of(ProbabilityMeasure):
            sums: Tensor = getattr(self, measure.state)
            values[name.text] = measure.value(sums.sum(dim=1, keepdim=True) if measure.pooled else sums).nanmean()
        return values

    def _of(self, kind: type[M]) -> list[tuple[MetricName, M]]:
        """The metrics with one kind of measure, each with its measure."""
        return [(name, name.info.measure) for name in self.names if isinstance(name.info.measure, kind)]

    def per_label(self) -> dict[str, Tensor]:
        """The values of each label that belong to the requested metrics, ``[L]`` each.

        ``precision``, ``recall``, ``F1``, ``positive`` and ``predicted`` with any micro or macro metric of label sets or
        hamming-error; ``AP`` and ``AUROC`` with mAP and macro-AUROC, exact or binned; ``ECE`` and ``Brier`` with macro-ECE
        and macro-Brier.
        """
        with self._synced():
            found: dict[str, Tensor] = {}
            if "label_counts" in self._defaults:
                found |= per_label_counts(Confusion(*self.label_counts))
            areas = [measure for _, measure in self._of(AreaMeasure) if not measure.pooled]
            if areas:
                own = self._areas(pooled=False, binned=all(measure.binned for measure in areas))
                found |= {"AP": own.average_precision, "AUROC": own.auroc}
            for name, measure in self._of(ProbabilityMeasure):
                if not measure.pooled:
                    found[name.kind.removeprefix("macro-")] = measure.value(getattr(self, measure.state))
            return found

    def counted(self) -> dict[str, int]:
        """The number of rows and entries, and of rows without positives or without negatives."""
        with self._synced():
            rows, bare, full = self.row_counts.tolist()
            return {"rows": rows, "rows without labels": bare, "rows with all labels": full, "entries": int(self.entries)}

    def __repr__(self) -> str:
        listed = ", ".join(repr(name.text) for name in self.names)
        kept = ", ".join(name.text for name in self.names if name.info.needs == ALL_SCORES)
        note = f"; {kept} keeps all scores" if kept else ""
        return f"Metrics([{listed}], num_labels={self.num_labels}{note})"


def _joined(parts: Any) -> Tensor:
    """Rows of several batches; torchmetrics has already concatenated them if it has synced."""
    return parts if isinstance(parts, Tensor) else torch.cat(parts)


def _zeros(*sizes: int) -> Tensor:
    return torch.zeros(sizes, dtype=torch.float64)
