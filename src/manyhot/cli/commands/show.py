"""``manyhot show``: describe a model or a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from manyhot.cli.commands.spans.predict import open_span_model
from manyhot.cli.commands.tune import rule_in_words
from manyhot.cli.io.config import CONFIG, read_config
from manyhot.cli.io.console import JsonFlag, number, show_json, show_pairs, show_table, show_text
from manyhot.cli.io.models import ModelArgument, bundle_folder, open_model
from manyhot.decisions.links import LINK_WORDS
from manyhot.training.spans.bundle import is_span_bundle

SHOWN, CANDIDATES = 10, "candidates"
AllFlag = Annotated[bool, typer.Option("--all", help="Show all settings, also those with their default.")]


def show(model: ModelArgument, *, every: AllFlag = False, json: JsonFlag = False) -> None:
    """Describe a model: its labels, body, loss, decision rule and training data."""
    if is_span_bundle(model):
        _show_spans(model, every=every, json=json)
        return
    trained = open_model(model)
    described = trained.describe()
    config = read_config(model / CONFIG) if (model / CONFIG).is_file() else None
    if json:
        show_json({"folder": str(bundle_folder(model)), **described, **({"files": config["files"]} if config else {})})
        return
    names = trained.label_names
    more = f", ... ({len(names):,} in all)" if len(names) > SHOWN else ""
    show_text(str(Path(model)), style="bold")
    pairs: list[tuple[str, Any]] = [("labels", ", ".join(names[:SHOWN]) + more)]
    pairs += [("decision", rule_in_words(trained.rule))]
    pairs += [
        ("probabilities", f"calibrated, {trained.calibration.kind}" if trained.calibration else _link_words(trained.link))
    ]
    if config:
        pairs += [(f"{part} files", ", ".join(files)) for part, files in config["files"].items()]
    skipped = {"labels", "label_names", "rule", "link", "calibration", "settings", "thresholds", "why", CANDIDATES}
    pairs += [(name.replace("_", " "), _words(value)) for name, value in described.items() if name not in skipped]
    show_pairs("", pairs)
    if described.get("why"):
        show_text()
        show_pairs("Why this model", list(described["why"].items()))
    if described.get(CANDIDATES):
        _show_candidates(described[CANDIDATES])
    defaults = type(trained.settings)().to_dict()
    chosen = {name: value for name, value in trained.settings.to_dict().items() if every or value != defaults[name]}
    if chosen:
        show_text()
        show_pairs(
            "Settings" if every else "Settings that differ from the defaults", [(name, _words(v)) for name, v in chosen.items()]
        )


def _show_candidates(found: Sequence[Mapping[str, Any]]) -> None:
    """The candidates that were trained within the budget."""
    show_text()
    rows = [
        (
            each["name"],
            each.get("refused", each["changes"]),
            each.get("value"),
            each.get("learning_rate"),
            f"{each['seconds']:.1f}",
        )
        for each in found
    ]
    show_table(("candidate", "what differs", "held-out rows", "learning rate", "seconds"), rows, right=(2, 3, 4))


def _show_spans(model: Path, *, every: bool, json: bool) -> None:
    trained = open_span_model(model)
    described = trained.describe()
    if json:
        show_json({"folder": str(bundle_folder(model)), **described})
        return
    show_text(str(Path(model)), style="bold")
    show_pairs("", [(name.replace("_", " "), _words(value)) for name, value in described.items() if name != "settings"])
    defaults = type(trained.settings)().to_dict()
    chosen = {name: value for name, value in trained.settings.to_dict().items() if every or value != defaults[name]}
    if chosen:
        show_text()
        title = "Settings" if every else "Settings that differ from the defaults"
        show_pairs(title, [(name, _words(value)) for name, value in chosen.items()])


def _link_words(link: str | None) -> str:
    return LINK_WORDS[link] if link else "none: the scores only rank"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name.replace('_', ' ')} {_words(part)}" for name, part in value.items())
    return number(value)
