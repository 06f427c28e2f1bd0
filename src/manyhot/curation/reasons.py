"""Why a label is suspect: the words or features that count for a missing label, or against a given one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from manyhot.curation.suspects import MISSING, Suspect
from manyhot.data.examples import Examples
from manyhot.training.rows.bundle import TrainedModel

# Reasons are chosen among this many of the largest contributions: those with the right sign.
NUM_CANDIDATES = 50


class Reasons:
    """Explanations of cross-fitted scores.

    Only models with exact contributions (linear, bag) are kept; suspects of other models have no reasons.

    Example:
        >>> import torch
        >>> from manyhot import SparseLabels
        >>> from manyhot.curation import cross_fitted_logits, find_suspects
        >>> texts, labels = ["a cat sat", "a dog ran"] * 20, [[0], [1]] * 20
        >>> labels[0] = []
        >>> examples = Examples(SparseLabels.from_lists(labels, num_labels=2), ("cat", "dog"), texts=texts)
        >>> reasons = Reasons()
        >>> logits = cross_fitted_logits(examples, folds=2, on_model=reasons.keep)
        >>> first = find_suspects(logits, examples.labels, most=1)[0]
        >>> first.row, first.kind, "cat" in [feature for feature, _ in reasons.of(first, examples, most=3)]
        (0, 'missing', True)
    """

    def __init__(self) -> None:
        self._models: dict[int, TrainedModel] = {}

    def keep(self, rows: Tensor, model: TrainedModel) -> None:
        """Remember which model has scored which rows."""
        if model.factors() is not None:
            self._models |= dict.fromkeys(rows.tolist(), model)

    def of(self, suspect: Suspect, examples: Examples, *, most: int = 3) -> Sequence[tuple[str, float]]:
        """``(feature, contribution)``: the largest ones for a missing label, or against a label that looks wrong.

        Args:
            suspect: a suspect among the scored rows.
            examples: all rows.
            most: the number of features.
        """
        model = self._models.get(suspect.row)
        if model is None:
            return []
        label = examples.label_names[suspect.label]
        found = model.explain(examples[suspect.row : suspect.row + 1], labels=[label], most=NUM_CANDIDATES)[0].labels[0]
        sign = 1 if suspect.kind == MISSING else -1
        return [(each.feature, each.part) for each in found.contributions if sign * each.part > 0][:most]
