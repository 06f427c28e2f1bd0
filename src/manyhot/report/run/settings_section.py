"""The section with settings and versions, in the reports of rows and of spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from manyhot.report.parts.markup import element
from manyhot.report.parts.page import Section, facts
from manyhot.report.run.words import setting_words


def settings_section(model: Mapping[str, Any], about: Sequence[tuple[str, Any]], *, chosen_words: str) -> Section:
    """The description of the model, its settings and versions.

    Args:
        model: the entry ``model`` of a report.
        about: names and values that describe the model.
        chosen_words: the heading of the settings that differ from the defaults.
    """
    chosen = model["chosen"]
    own = [(name, setting_words(model["settings"][name])) for name in chosen]
    others = [(name, setting_words(value)) for name, value in model["settings"].items() if name not in chosen]
    told = element(
        "div",
        element("h3", chosen_words),
        facts(own) if own else element("p", "All settings have their defaults."),
        element("h3", "Versions"),
        facts(list(model.get("versions", {}).items())),
    )
    why = model.get("why") or {}
    left = element("summary", f"{len(others)} settings at their defaults")
    return Section(
        "settings",
        "Settings and versions",
        None,
        element("div", element("h3", "Why this model"), facts(list(why.items()))) if why else None,
        element("div", element("div", element("h3", "Model"), facts(about)), told, class_="pair"),
        element("details", left, facts(others), class_="no-print"),
    )
