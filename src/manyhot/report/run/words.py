"""The sentences of a run's report, the same on the page and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

ORIGINS = {
    "test": "Measured on {rows} test rows{files}. The model was neither trained nor tuned on them.",
    "validation": (
        "Measured on the {rows} validation rows{files}. The decision rule was tuned on them{stopped}: metrics that"
        " depend on thresholds are a little better here than on new rows."
    ),
    "held out": (
        "Measured on {rows} rows held out from training{files}. The decision rule was tuned on them{stopped}: metrics that"
        " depend on thresholds are a little better here than on new rows."
    ),
    "cross-fitted": (
        "Measured on all {rows} training rows{files}, each scored by a model that was not trained on it (cross-validation);"
        " the final model is trained on all rows. The decision rule was tuned on these scores: metrics that depend on"
        " thresholds are a little better here than on new rows."
    ),
}
EARLY = "early stopping"
NOTHING, MINUS = "\u2013", "\u2212"
FOR_NEW_ROWS = " For new rows: manyhot evaluate RUN TEST_FILE --report FOLDER."


def rows_words(report: Mapping[str, Any]) -> str:
    """Which rows were evaluated, and how reliable the metrics are."""
    rows, why = report["rows"], report["model"].get("why") or {}
    # Older reports have no reasons, and said that early stopping was used.
    stopped = ", and early stopping used them" if why.get("stopping", EARLY).startswith(EARLY) else ""
    files = f" of {', '.join(rows['files'])}" if rows["files"] else ""
    text = ORIGINS[rows["what"]].format(rows=f"{rows['count']:,}", files=files, stopped=stopped)
    if rows["drawn_from"]:
        text += f" The rows are a random sample of {rows['drawn_from']:,}, because a report uses a limited number of scores."
    if rows["unknown"]:
        text += f" {rows['unknown']:,} unknown labels are excluded."
    return text + ("" if rows["what"] == "test" else FOR_NEW_ROWS)


def lead_words(report: Mapping[str, Any]) -> str:
    """A model in a sentence."""
    model = report["model"]
    fitted = f", trained on {model['rows']:,} rows" if "rows" in model else ""
    return f"{model['labels']:,} labels, {model['body']} body on {model['inputs']}, loss {model['loss']}{fitted}."


def made_words(report: Mapping[str, Any]) -> str:
    """The date and the version of a report."""
    return f"Made by manyhot {report['versions']['manyhot']}, measured {report['made']}."


def training_words(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Facts about the training; empty for a model that was trained with other software."""
    known = [("training rows", f"{model['rows']:,}")] if "rows" in model else []
    known += [("learning rate", f"{model['learning_rate']:.4g}")] if "learning_rate" in model else []
    return [*known, ("tuning", model.get("tuned") or "none")]


def rule_words(model: Mapping[str, Any]) -> str:
    """The decision rule as a sentence."""
    rule = model["rule"]
    if rule["top_k"] is not None:
        return f"the {rule['top_k']} best labels of each row"
    if rule.get("sets"):
        return f"the best label set of each row, {rule['sets']:,} sets of the training rows preferred"
    own = model["thresholds"]
    if own is None:
        return "a threshold that is not finite: all labels or none"
    text = "score above a threshold per label" if isinstance(own, str) else f"score above {own:.4g}"
    if rule["min_labels"]:
        text += f"; at least {rule['min_labels']} per row"
    return text + (f"; at most {rule['max_labels']} per row" if rule["max_labels"] is not None else "")


def value_words(value: float | None, digits: int) -> str:
    """A number, or a dash for None."""
    return NOTHING if value is None else f"{value:.{digits}f}".replace("-", MINUS)


def setting_words(value: Any) -> str:
    """A setting's value."""
    if value is None:
        return "chosen from the data"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    # Reports are shared, so files and folders are shown by name, without their paths.
    if isinstance(value, str) and PurePath(value).is_absolute():
        return PurePath(value).name
    return str(value) or NOTHING
