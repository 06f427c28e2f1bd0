"""The model card of a published model: labels, rule, metrics, data."""

from __future__ import annotations

from typing import Any

from manyhot.training.rows.bundle import TrainedModel

# At most this many labels are listed with their thresholds.
LISTED = 200


def model_card(model: TrainedModel, parity: Any, *, own_code: bool) -> str:
    """Markdown with the front matter that hubs read; unknown facts are left out.

    Args:
        model: the model.
        parity: the comparison of the folder with the model.
        own_code: whether the folder has its own code, which needs ``trust_remote_code=True``.
    """
    rule = model.rule
    trust = ", trust_remote_code=True" if own_code else ""
    thresholds = rule.threshold if isinstance(rule.threshold, tuple) else (rule.threshold,) * model.num_labels
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-classification",
        "tags: [multi-label, manyhot]",
        "---",
        "",
        f"# Multi-label classifier, {model.num_labels} labels",
        "",
        f"Body `{model.shape['body']}`, trained with the loss `{model.describe()['loss']}` by manyhot.",
        "",
        "## Decisions",
        "",
        "A label is predicted if its sigmoid is above 0.5; its threshold is already in the bias of the head.",
        f"Compared on {parity.rows:,} texts: {parity.different} of {parity.decisions:,} decisions differ from the model's own.",
        "",
        "```python",
        "from transformers import pipeline",
        f'classify = pipeline("text-classification", "FOLDER"{trust}, top_k=None)',
        '[each["label"] for each in classify("a text")[0] if each["score"] > 0.5]',
        "```",
        "",
        "Scores are not calibrated probabilities unless the threshold of a label lies at probability 0.5.",
        "",
        "## Labels and their thresholds before folding",
        "",
        "| label | threshold |",
        "|---|---|",
        *(f"| {_cell(name)} | {cut:.4g} |" for name, cut in list(zip(model.label_names, thresholds, strict=True))[:LISTED]),
    ]
    if model.num_labels > LISTED:
        lines.append(f"| ... {model.num_labels - LISTED:,} more | |")
    lines += ["", "## Figures and data", ""]
    told = {name: value for name, value in model.about.items() if isinstance(value, (int, float, str))}
    lines += [f"- {name.replace('_', ' ')}: {value}" for name, value in told.items()] or ["- none were saved with the model"]
    lines += ["", "To the publisher: describe the training data, their licence and their limits here.", ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
