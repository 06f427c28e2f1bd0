"""The sentences of the report of a run on spans, the same on the page and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ORIGINS = {
    "test": "Measured on {texts} test texts{files}. The model was neither trained nor tuned on them.",
    "validation": (
        "Measured on the {texts} validation texts{files}. The threshold was tuned on them, and early stopping used them:"
        " metrics that depend on the threshold are a little better here than on new texts."
    ),
    "held out": (
        "Measured on {texts} texts held out from training{files}. The threshold was tuned on them, and early stopping used"
        " them: metrics that depend on the threshold are a little better here than on new texts."
    ),
}
FOR_NEW_TEXTS = " For new texts: manyhot evaluate RUN TEST_FILE --report FOLDER."


def texts_words(rows: Mapping[str, Any]) -> str:
    """Which texts were evaluated, and how reliable the metrics are."""
    files = f" of {', '.join(rows['files'])}" if rows["files"] else ""
    text = ORIGINS[rows["what"]].format(texts=f"{rows['count']:,}", files=files)
    return text + ("" if rows["what"] == "test" else FOR_NEW_TEXTS)


def span_lead_words(report: Mapping[str, Any]) -> str:
    """A model in a sentence."""
    model = report["model"]
    fitted = f", trained on {model['texts']:,} texts" if "texts" in model else ""
    return f"{len(model['types']):,} types of spans, {model['body']} body on {model['tokens']}, loss {model['loss']}{fitted}."


def span_model_words(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The description of a model and its decision rule."""
    settings = model["settings"]
    tuned = f"score above {settings['threshold']:.3f}{', tuned for F1' if 'tuned_f1' in model else ''}"
    found = [
        ("body", f"{model['body']}, {model['parameters']:,} parameters"),
        ("tokens", f"{model['tokens']}, windows of at most {settings['max_tokens']:,}"),
        ("head", model["head"]),
        ("loss", model["loss"]),
        ("decision", f"{tuned}; {settings['decode']} spans"),
        ("probabilities", "sigmoid of twice the score" if model["link"] == "soft" else "sigmoid of the score"),
    ]
    if "epochs_run" in model:
        best = f", the best was epoch {model['best_epoch']}" if "best_epoch" in model else ""
        found.append(("epochs", f"{model['epochs_run']}{best}"))
    if model.get("cut_spans"):
        found.append(("spans that fit in no window", f"{model['cut_spans']:,}"))
    return found
