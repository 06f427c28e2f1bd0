"""The command-line flags for a hierarchy of labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from manyhot.decisions.hierarchy import MODES, Hierarchy
from manyhot.labels.sparse import SparseLabels

PANEL = "Hierarchy of labels"
UP = "up"
HierarchyFlag = Annotated[
    Path | None,
    typer.Option(
        "--hierarchy",
        help="File of the label hierarchy, with lines of label, tab, parent; predictions are made consistent with it.",
        rich_help_panel=PANEL,
    ),
]
ModeFlag = Annotated[
    str | None,
    typer.Option(
        "--hierarchy-mode",
        help="How: up adds the ancestors of predicted labels, down removes predicted labels without a predicted parent.",
        show_default=UP,
        rich_help_panel=PANEL,
    ),
]
IgnoreFlag = Annotated[
    bool,
    typer.Option(
        "--hierarchy-ignore-unknown",
        help="Skip names in the hierarchy that are not labels of the model.",
        rich_help_panel=PANEL,
    ),
]


class ChosenHierarchy(NamedTuple):
    """A hierarchy, and the mode in which predictions are made consistent with it."""

    tree: Hierarchy
    mode: str

    def close(self, labels: SparseLabels) -> SparseLabels:
        """Predictions made consistent with the hierarchy."""
        return self.tree.close(labels, self.mode)


def check_hierarchy_flags(path: Path | None, mode: str | None, *, ignore_unknown: bool) -> None:
    """Refuse flags of a hierarchy without ``--hierarchy``."""
    if mode is not None and mode not in MODES:
        raise typer.BadParameter(f"--hierarchy-mode must be {' or '.join(MODES)}; got {mode!r}.")
    if path is None and (mode is not None or ignore_unknown):
        given = "--hierarchy-ignore-unknown" if mode is None else "--hierarchy-mode"
        raise typer.BadParameter(f"{given} needs --hierarchy, the file of the hierarchy; got none.")


def chosen_hierarchy(
    path: Path | None, mode: str | None, label_names: Sequence[str], *, ignore_unknown: bool
) -> ChosenHierarchy | None:
    """The hierarchy of the flags; None without ``--hierarchy``."""
    if path is None:
        return None
    mode = mode or UP
    return ChosenHierarchy(Hierarchy.read(path, label_names, ignore_unknown=ignore_unknown), mode)
