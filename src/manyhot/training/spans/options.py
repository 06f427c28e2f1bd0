"""Which settings a run on spans uses. A changed setting without effect raises an error that says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from manyhot.training.spans.settings import SpanSettings

PRETRAINED = "pretrained"


@dataclass(frozen=True)
class SpanRun:
    """What decides whether a setting is used.

    Args:
        settings: the resolved settings.
        validated: whether validation texts are given.
        held_out: whether there are held-out texts, for early stopping and tuning.
    """

    settings: SpanSettings
    validated: bool
    held_out: bool


Reason = Callable[[SpanRun], str | None]


def _from_scratch(run: SpanRun) -> str | None:
    return "a pretrained encoder has a fixed architecture" if run.settings.body == PRETRAINED else None


def _needs_held_out(run: SpanRun) -> str | None:
    return None if run.held_out else "no texts are held out; give validation texts or a larger `validation` share"


def _threshold(run: SpanRun) -> str | None:
    return "the threshold is tuned; set --no-tune-threshold" if run.settings.tune_threshold and run.held_out else None


def _rdrop(run: SpanRun) -> str | None:
    if run.settings.body == PRETRAINED or run.settings.dropout:
        return None
    return "two passes without dropout give the same scores; set `dropout`"


def _affixes(run: SpanRun) -> str | None:
    return _from_scratch(run) or ("only words have affixes" if run.settings.tokens == "characters" else None)


def _skip(run: SpanRun) -> str | None:
    return None if run.settings.body in ("words", "characters") else "it is for a BiLSTM, the bodies words and characters"


UNUSED: dict[str, Reason] = {
    "tokens": _from_scratch,
    "rdrop": _rdrop,
    "patience": lambda run: _needs_held_out(run) if run.settings.patience else None,
    "validation": lambda run: "validation texts are given" if run.validated else None,
    "hidden": _from_scratch,
    "layers": _from_scratch,
    "dropout": _from_scratch,
    "word_dropout": _from_scratch,
    "skip": _skip,
    "affixes": _affixes,
    "min_count": _from_scratch,
    "threshold": _threshold,
    "tune_threshold": _needs_held_out,
}


def window_remarks(given: SpanSettings, size: int, *, cut: bool) -> list[str]:
    """Remarks about window settings that have no effect on these texts, one line each.

    Args:
        given: the settings as they were given.
        size: tokens of the longest window.
        cut: whether some text was cut into several windows.

    Example:
        >>> window_remarks(SpanSettings(max_tokens=500), 40, cut=False)
        ['`max_tokens` 500 has no effect: the longest training text or the encoder limits windows to 40 tokens']
    """
    default, found = SpanSettings(), []
    if given.max_tokens != default.max_tokens and given.max_tokens > size:
        limit = f"the longest training text or the encoder limits windows to {size:,} tokens"
        found.append(f"`max_tokens` {given.max_tokens:,} has no effect: {limit}")
    if given.overlap != default.overlap and given.overlap > size // 2:
        found.append(f"`overlap` {given.overlap:,} is more than half a window: neighbours share {size // 2:,} tokens")
    elif given.overlap != default.overlap and not cut:
        found.append(f"`overlap` {given.overlap:,} has no effect in training: no text is longer than a window")
    return found


def check_span_settings_used(given: SpanSettings, settings: SpanSettings, *, validated: bool, held_out: bool) -> None:
    """Raise ValueError for a setting that differs from its default but has no effect in this run.

    Args:
        given: the settings as they were given.
        settings: the same, resolved.
        validated: whether validation texts are given.
        held_out: whether there are held-out texts, for early stopping and tuning.
    """
    run = SpanRun(settings, validated, held_out)
    for each in fields(SpanSettings):
        reason = UNUSED.get(each.name)
        if reason is not None and getattr(given, each.name) != each.default:
            why = reason(run)
            if why is not None:
                raise ValueError(f"train: `{each.name}` must be left out: {why}.")
