"""``manyhot train --search``: the flags, the table ``[search]`` of a settings file, and the search before the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from manyhot.cli.io.console import say
from manyhot.cli.io.flags import Flag
from manyhot.data.examples import Examples
from manyhot.integrations.registry import framework
from manyhot.training.rows.settings import TrainSettings

FOLDER = "search"
SEARCH_FLAGS = (
    Flag(
        "search",
        int,
        "first search for good settings with N trials on part of the rows, then train with the best ones (needs optuna)",
    ),
    Flag(
        "search_space",
        list[str],
        "what to search: NAME=LOW..HIGH, NAME=LOW..HIGH..log or NAME=A,B,C; may be repeated. Default: depends on the loss, the"
        " body and the rows",
    ),
    Flag("search_metric", str, "metric on held-out rows that --search optimises. Default: --metric"),
)


def search_table(before: Mapping[str, Any], given: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The table ``[search]`` from flags and a settings file; empty if nothing is searched.

    Args:
        before: the table of the settings file.
        given: the given flags of the search.
        settings: the settings given by flags or a file; they cannot be searched.
    """
    names = {"search": "trials", "search_space": "space", "search_metric": "metric"}
    table = {**before, **{names[name]: value for name, value in given.items() if value is not None and value != []}}
    if table and "trials" not in table:
        raise typer.BadParameter("--search-space and --search-metric need --search N, the number of trials.")
    if table and (not isinstance(table["trials"], int) or table["trials"] < 1):
        raise typer.BadParameter(f"--search must be a whole number >= 1; got {table['trials']!r}.")
    if table and settings.get("budget"):
        raise typer.BadParameter("--search and --budget must not be combined: both choose settings. Leave one of them out.")
    usual = TrainSettings().to_dict()
    fixed = [name for name in parse_space(table.get("space", [])) if name in settings and settings[name] != usual[name]]
    if fixed:
        flag = "--" + fixed[0].replace("_", "-")
        raise typer.BadParameter(f"{fixed[0]} cannot be both searched and fixed. Leave out {flag} or its --search-space.")
    if table:
        try:
            framework("optuna")
        except ImportError as error:
            raise typer.BadParameter(f"--search: {error}") from None
    return table


def parse_space(texts: Sequence[str]) -> dict[str, Any]:
    """Ranges and choices by setting.

    Example:
        >>> parse_space(["smoothing=0..0.1", "learning-rate=0.001..1..log", "loss=zlpr,bce", "ngrams=1..3"])
        {'smoothing': (0.0, 0.1), 'learning_rate': (0.001, 1.0, 'log'), 'loss': ['zlpr', 'bce'], 'ngrams': (1, 3)}
    """
    space: dict[str, Any] = {}
    for text in texts:
        name, _, values = str(text).partition("=")
        parts: list[Any] = [part.strip() for part in values.split("..")]
        key = name.strip().replace("-", "_")
        if len(parts) == 1 and parts[0]:
            space[key] = [_value(part.strip()) for part in values.split(",")]
            continue
        if len(parts) not in (2, 3) or parts[2:] not in ([], ["log"]):
            raise _wrong(text)
        low, high = (_value(part) for part in parts[:2])
        if isinstance(low, (str, bool)) or isinstance(high, (str, bool)) or not low <= high or (parts[2:] and low <= 0):
            raise _wrong(text)
        if isinstance(low, float) or isinstance(high, float) or _is_real(key):
            low, high = float(low), float(high)
        space[key] = (low, high, *parts[2:])
    return space


def searched(
    examples: Examples,
    validation: Examples | None,
    settings: TrainSettings,
    table: Mapping[str, Any],
    folder: Path,
    *,
    quiet: bool,
) -> tuple[TrainSettings, dict[str, Any]]:
    """The best settings and the result of the search; the study is stored in ``folder`` and continues after an interruption."""
    # Imported here because it needs optuna, which other commands do not.
    from manyhot.integrations.optuna import search_settings

    trials, metric = table["trials"], table.get("metric", settings.stop_metric)

    def tell(number: int, tried: Mapping[str, Any], value: float) -> None:
        say(f"trial {number + 1}/{trials}: {metric} {value:.4f} with {_listed(tried)}", quiet=quiet)

    found = search_settings(
        examples,
        folder,
        trials=trials,
        settings=settings,
        metric=metric,
        space=parse_space(table["space"]) if table.get("space") else None,
        validation=validation,
        seed=settings.seed,
        progress=tell,
    )
    best = {name: value for name, value in found.settings.to_dict().items() if value != settings.to_dict()[name]}
    say(f"best of {found.trials} trials: {metric} {found.value:.4f} with {_listed(best)}", quiet=quiet)
    return found.settings, {"trials": found.trials, "metric": metric, "value": found.value, "settings": best}


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


def _is_real(name: str) -> bool:
    """Whether a setting takes real numbers, not only whole ones."""
    hint = TrainSettings.__annotations__.get(name, "")
    return "float" in str(hint)


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in settings.items()
    )


def _wrong(text: str) -> typer.BadParameter:
    return typer.BadParameter(f"--search-space must be NAME=LOW..HIGH, NAME=LOW..HIGH..log or NAME=A,B,C; got {text!r}.")
