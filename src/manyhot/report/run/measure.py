"""Everything that the report of a run shows, as JSON; the page is built only from these values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyhot.metrics.curves import mean_average_precision_score
from manyhot.metrics.info import DECISIONS, PROBABILITIES
from manyhot.metrics.names import parse_metric
from manyhot.metrics.sums import Sums
from manyhot.report.parts.intervals import half_width
from manyhot.report.run.explanations import measure_explanations
from manyhot.report.run.judged import Judged, Origin, rounded
from manyhot.report.run.listed_sweep import listed_sweep
from manyhot.report.run.mistakes import measure_counts, measure_missed, measure_worst
from manyhot.report.run.pr_curves import measure_curves
from manyhot.report.run.reliability import measure_reliability
from manyhot.report.run.suspects import measure_suspects
from manyhot.report.run.sweep import Sweep, pack_counts, threshold_sweep
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.steering import AUTO
from manyhot.training.run.versions import versions

FORMAT = "manyhot-report-1"
NAMES = (
    "micro-F1",
    "macro-F1",
    "SubACC",
    "AvgPrec",
    "MLC-F1",
    "micro-precision",
    "micro-recall",
    "mAP",
    "RankLoss",
    "P@1",
    "P@3",
    "P@5",
    "PSP@1",
    "PSP@3",
    "PSP@5",
    "hamming-error",
    "ECE",
)
# Maximum number of labels in the table. Of more labels, those with the most rows and those with the most mistakes are listed.
LISTED = 1000


def measure_run(
    model: TrainedModel, judged: Judged, origin: Origin, *, run: Path | None = None, most: int = LISTED
) -> dict[str, Any]:
    """Measure a model for its report.

    Args:
        model: the trained model.
        judged: its scores on rows it was not trained on.
        origin: which rows these are.
        run: the run folder, for the learning curves in its log, or None.
        most: the maximum number of labels in the table of labels.

    Returns:
        A dict for JSON, which ``run_page`` and ``run_markdown`` read.
    """
    measured = measure_scores(described(model), judged, origin, run=run, most=most)
    measured["explanations"] = measure_explanations(model, judged, origin)
    measured["suspects"] = measure_suspects(judged, origin)
    return measured


def measure_scores(
    model: Mapping[str, Any], judged: Judged, origin: Origin, *, run: Path | None = None, most: int = LISTED
) -> dict[str, Any]:
    """Measure scores for a report; the model may have been trained with other software.

    Args:
        model: the description of the model, as ``described`` returns it; ``features`` is optional.
        judged: scores on rows it was not trained on.
        origin: which rows these are.
        run: as in ``measure_run``.
        most: as in ``measure_run``.
    """
    # The metric that the model was trained for comes first.
    asked = model.get("settings", {}).get("metric", AUTO)
    listed_first = dict.fromkeys(NAMES if asked == AUTO else (asked, *NAMES))
    names = [name for name in listed_first if not _cannot_be_computed(name, judged)]
    values, per_label = _measured(judged, names)
    areas = per_label.get("AP")
    sweep = listed_sweep(judged) if judged.listed else threshold_sweep(judged)
    listed, cut = listed_labels(judged, most=most)
    return {
        "format": FORMAT,
        "kind": "run",
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "rows": _rows(judged, origin),
        "model": dict(model),
        "metrics": [_metric(name, values[name], judged) for name in names],
        "empty": {
            "true": int((judged.positives.counts() == 0).sum()),
            "predicted": int((judged.predictions.counts() == 0).sum()),
        },
        "labels": {
            "count": judged.labels.num_labels,
            "cut": cut,
            "listed": _label_rows(judged, per_label, listed),
        },
        "slider": _slider(judged, sweep, listed),
        "curves": [] if areas is None else measure_curves(judged, areas),
        "reliability": None if areas is None else measure_reliability(judged, unseen=origin.what == "test"),
        "counts": measure_counts(judged),
        "missed": measure_missed(judged),
        "worst": measure_worst(judged, origin),
        "learning": [] if run is None else learning_curves(run / "metrics.jsonl"),
        "versions": versions(),
    }


def _measured(judged: Judged, names: Sequence[str]) -> tuple[dict[str, float], dict[str, Tensor]]:
    """``(values by name, values of each label)``; AP of each label only if all scores are known."""
    areas = None
    if not judged.listed:
        areas = mean_average_precision_score(judged.all_scores, judged.labels, average="none", where=judged.where)
    metrics = Sums(
        [name for name in names if name != "mAP"],
        num_labels=judged.labels.num_labels,
        rule=judged.rule,
        link=judged.calibration or judged.link,
        propensities=judged.propensities,
    )
    metrics.update(judged.logits, judged.labels, judged.where, predictions=judged.predictions)
    values, per_label = metrics.compute(), metrics.per_label()
    if areas is not None:
        values, per_label = {**values, "mAP": float(areas.mean())}, {**per_label, "AP": areas}
    return values, per_label


def described(model: TrainedModel) -> dict[str, Any]:
    """The description of a model for the page; the thresholds are listed with the labels."""
    told = model.describe()
    defaults = type(model.settings)().to_dict()
    settings = told.pop("settings")
    told["rule"] = {name: value for name, value in model.rule.to_json().items() if name not in ("threshold", "sets")}
    told["rule"]["sets"] = 0 if model.rule.sets is None else len(model.rule.sets.sets)
    told["settings"] = settings
    if not isinstance(model.rule.threshold, tuple):
        told["thresholds"] = rounded([model.rule.threshold], 6)[0]
    told["chosen"] = [name for name, value in settings.items() if value != defaults[name]]
    return told


def _cannot_be_computed(name: str, judged: Judged) -> bool:
    """Whether a metric cannot be computed: k exceeds the number of labels, or probabilities or propensities are missing."""
    metric = parse_metric(name)
    if metric.kind == "PSP@k" and judged.propensities is None:
        return True
    if judged.listed and not (metric.info.lists or metric.info.needs == DECISIONS):
        return True
    only_ranks = judged.link is None and judged.calibration is None
    return metric.k > judged.labels.num_labels or (metric.info.needs == PROBABILITIES and only_ranks)


def _rows(judged: Judged, origin: Origin) -> dict[str, Any]:
    """Which rows were evaluated."""
    return {
        "what": origin.what,
        "count": len(judged.labels),
        "drawn_from": origin.drawn_from,
        "files": list(origin.files),
        "inputs": origin.examples.kind,
        "unknown": 0 if judged.where is None else int((~judged.where).sum()),
    }


def _metric(name: str, value: float, judged: Judged) -> dict[str, Any]:
    info = parse_metric(name).info
    half = half_width(name, judged)
    return {
        "name": name,
        "value": None if math.isnan(value) else value,
        "half_width": None if half is None or math.isnan(half) else half,
        "better": "more" if info.direction == "up" else "less",
        "summary": info.summary,
    }


def listed_labels(judged: Judged, *, most: int = LISTED) -> tuple[Tensor, str]:
    """``(the labels to list, how they were chosen)``: all, or those with the most rows and those with the most mistakes."""
    count = judged.labels.num_labels
    if count <= most:
        return torch.arange(count), ""
    hits, predicted, positive = judged.confusion[1]
    frequent = positive.argsort(descending=True, stable=True)[: most * 7 // 10]
    mistakes = predicted + positive - 2 * hits
    mistakes[frequent] = -1
    mistaken = mistakes.argsort(descending=True, stable=True)[: most - len(frequent)]
    text = (
        f"{most:,} of {count:,} labels are listed: the {len(frequent):,} with the most rows and, of the others,"
        f" the {len(mistaken):,} with the most mistakes. The metrics above cover all labels."
    )
    return torch.cat([frequent, mistaken]).sort().values, text


def _label_rows(judged: Judged, per_label: Mapping[str, Tensor], listed: Tensor) -> dict[str, Any]:
    hits, predicted, positive = judged.confusion[1]
    has_threshold = judged.rule.by_threshold
    return {
        "name": [judged.label_names[label] for label in listed.tolist()],
        "positive": positive[listed].tolist(),
        "predicted": predicted[listed].tolist(),
        "hits": hits[listed].tolist(),
        "precision": rounded(per_label["precision"][listed].double()),
        "recall": rounded(per_label["recall"][listed].double()),
        "F1": rounded(per_label["F1"][listed].double()),
        "AP": rounded(per_label["AP"][listed].double()) if "AP" in per_label else None,
        "threshold": rounded(judged.thresholds[listed], 6) if has_threshold else None,
    }


def _slider(judged: Judged, sweep: Sweep, listed: Tensor) -> dict[str, Any]:
    """Counts at each position: per label for listed labels, summed for the rest."""
    rest = torch.ones(judged.labels.num_labels, dtype=torch.bool)
    rest[listed] = False
    positive = judged.confusion[1].positive
    size = sweep.predicted + positive.unsqueeze(1)
    f1 = torch.where(size > 0, 2 * sweep.hits.double() / size.clamp(min=1), 0.0)
    return {
        "shifts": sweep.shifts.tolist(),
        "own": sweep.own,
        "hits": pack_counts(sweep.hits[listed]),
        "wrong": pack_counts((sweep.predicted - sweep.hits)[listed]),
        "rest": {
            "labels": int(rest.sum()),
            "positive": int(positive[rest].sum()),
            "hits": sweep.hits[rest].sum(dim=0).tolist(),
            "predicted": sweep.predicted[rest].sum(dim=0).tolist(),
            "f1_sum": f1[rest].sum(dim=0).tolist(),
        },
        "exact_rows": sweep.exact_rows.tolist(),
        "empty_rows": sweep.empty_rows.tolist(),
    }


def learning_curves(log: Path) -> list[dict[str, Any]]:
    """The epochs of each fit in a run's log. For an epoch that was repeated after a restart, the last values count.

    The fit that became the model is named ``final``. It is the fit of that name, or the one that the log names as final.
    """
    if not log.is_file():
        return []
    fits: dict[str, dict[int, dict[str, Any]]] = {}
    metric, better, final = "", "more", "final"
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue  # A killed run may leave an incomplete line.
        final = event.get("final", final)
        if event.get("kind") == "epoch":
            metric, better = event.get("metric", metric), event.get("better", better)
            fits.setdefault(event.get("fit", "final"), {})[event["epoch"]] = event
    return [
        {
            "fit": "final" if name == final else name,
            "metric": metric,
            "better": better,
            "epoch": sorted(passes),
            "loss": rounded([passes[each].get("loss", math.nan) for each in sorted(passes)]),
            "value": rounded([passes[each].get("value", math.nan) for each in sorted(passes)]),
        }
        for name, passes in fits.items()
    ]
