"""The candidates that ``train`` tries with a time budget, or for a metric, one entry each, in the order of trying."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from manyhot.data.examples import Examples
from manyhot.metrics.info import CERTAINTY, ROW_SETS, WHOLE_SETS
from manyhot.training.rows.bodies.info import CROSSED, HELD_OUT
from manyhot.training.rows.choose import ROWS_A_FOLD, STEP_FOLDS, is_sparse, sparse_fitting
from manyhot.training.rows.mean_losses import sets_repeat
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import AUTO, NONE, steering_of

USUAL, POWERSET = "usual", "powerset"


@dataclass(frozen=True)
class Candidate:
    """Settings to try.

    Args:
        name: its name in the log, the report and the run folder.
        changes: settings that differ from the given ones.
        step: its learning rate as a multiple of that of the candidate ``usual``; 1: training chooses the rate.
        kinds: kinds of examples that it is tried on; empty: all.
        aims: aims of metrics that it is tried for (``MetricInfo.aim``); empty: all but probabilities.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    step: float = 1.0
    kinds: tuple[str, ...] = ()
    aims: tuple[str, ...] = ()

    def suits(self, given: TrainSettings, examples: Examples) -> bool:
        """Whether it is tried: what it changes has its default value, and it is meant for these examples and this metric."""
        usual = {each.name: each.default for each in fields(given)}
        if self.changes and given.mean_of not in (AUTO, NONE):
            return False
        changed = [*self.changes, *(("learning_rate",) if self.step != 1 else ())]
        if any(getattr(given, name) != usual[name] for name in changed):
            return False
        aim = steering_of(given.metric).aim
        wanted = aim in self.aims if self.aims else not self.changes or aim != CERTAINTY
        return wanted and (not self.kinds or examples.kind in self.kinds)

    def settings(self, given: TrainSettings, rate: float, mean_of: str) -> TrainSettings:
        """The given settings with its changes; ``rate`` and ``mean_of`` are those of the candidate ``usual``.

        A candidate with another loss or strategy has that alone.
        """
        changed = replace(given, **self.changes)
        if self.step == 1:
            return changed
        return replace(changed, learning_rate=rate * self.step, mean_of=NONE if self.changes else mean_of)


# Ordered by how much each adds to the mean of those before it, on training rows of emotions, birds and medical.
_ENTRIES = (
    Candidate(USUAL),
    Candidate("bce", {"loss": "bce"}),
    Candidate("two-way", {"loss": "two_way"}),
    Candidate(POWERSET, {"strategy": "powerset"}, aims=(WHOLE_SETS, ROW_SETS)),
    Candidate("small-steps", step=1 / 3, kinds=("features", "images")),
    Candidate("bce-small-steps", {"loss": "bce"}, step=1 / 3, kinds=("features", "images")),
)
CANDIDATES = {entry.name: entry for entry in _ENTRIES}


def tried_anyway(given: TrainSettings, examples: Examples, *, validated: bool) -> tuple[str, ...]:
    """The candidates that are tried without a budget, too; empty: the given settings alone.

    Which of label powerset and a rule for whole sets is better differs from set to set: for SubACC, a linear body on sparse
    features tries both. An mlp does if few rows share a label set: otherwise label powerset is one of the losses it averages.
    """
    sets = steering_of(given.metric).aim == WHOLE_SETS and is_sparse(examples) and examples.kind == "features"
    if not sets or not (validated or len(examples) >= ROWS_A_FOLD * (given.folds or STEP_FOLDS)):
        return ()
    usual = TrainSettings()
    own = ("loss", "loss_option", "mean_of", "strategy", "pos_weight", "tune", "calibrate", "learn_threshold", "row_threshold")
    if given.softens or examples.soft or any(getattr(given, name) != getattr(usual, name) for name in own):
        return ()
    known = examples.unknown is None or not len(examples.unknown.indices)
    fitting = sparse_fitting(given, examples)
    both = fitting == CROSSED or (fitting == HELD_OUT and not sets_repeat(examples))
    return (USUAL, POWERSET) if known and both else ()


def candidates_for(given: TrainSettings, examples: Examples) -> Iterator[Candidate]:
    """The candidates that suit settings and examples; the given settings come first."""
    return (entry for entry in CANDIDATES.values() if entry.suits(given, examples))
