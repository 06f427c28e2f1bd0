"""Which settings a run can use: a changed setting that would have no effect raises an error that says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from manyhot.data.examples import Examples
from manyhot.decisions.natural import natural_decision
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.losses.catalog import get_loss
from manyhot.training.rows.bodies.info import CROSSED, HELD_OUT, SOLVED, USUAL_BATCH, BodyInfo
from manyhot.training.rows.choose import ROWS_A_FOLD, STEP_FOLDS, STEPS_ONLY, decides_itself, why_not_lazy
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.steering import AUTO, NONE, SETS
from manyhot.training.run.processes import Processes, ProcessesError


@dataclass(frozen=True)
class Run:
    """The facts that decide whether a setting is used.

    Args:
        settings: the resolved settings.
        body: the body.
        kind: of the examples: ``texts``, ``features`` or ``images``.
        rows: the number of rows.
        sparse: whether the prepared inputs are sparse.
        validated: whether validation rows are given.
        solved: whether a linear body is solved label by label.
        listed: whether the rule is tuned on the best labels of each row only.
    """

    settings: TrainSettings
    body: BodyInfo
    kind: str
    rows: int
    sparse: bool
    validated: bool
    solved: bool = False
    listed: bool = False

    @property
    def fitting(self) -> str:
        """How the body is fitted."""
        return self.body.fitting_on(sparse=self.sparse)

    @property
    def title(self) -> str:
        """The body and its inputs in words."""
        return f"the body {self.body.name} on {'sparse' if self.sparse else 'dense'} inputs"

    @property
    def crosses(self) -> bool:
        """Whether scores are cross-fitted."""
        least = ROWS_A_FOLD * (self.settings.folds or STEP_FOLDS)
        return self.fitting == CROSSED and not self.validated and self.rows >= least

    @property
    def has_held_out(self) -> bool:
        """Whether there are held-out rows for early stopping or tuning."""
        share = round(self.settings.validation * self.rows)
        return self.validated or (self.crosses if self.fitting == CROSSED else 0 < share < self.rows)

    @property
    def plain_steps(self) -> str | None:
        """Why the settings of Adam are not used."""
        return f"{self.title} takes plain gradient steps" if self.fitting == CROSSED else None


Reason = Callable[[Run], str | None]


def _only_texts(run: Run) -> str | None:
    if run.kind != "texts":
        return f"it is for texts, and the examples are {run.kind}"
    return "an encoder has its own tokeniser" if run.body.inputs else None


def _needs_held_out(run: Run) -> str | None:
    if run.has_held_out:
        return None
    if run.fitting == CROSSED:
        return f"{run.rows} rows are too few to cross-fit over {run.settings.folds} folds; give validation rows"
    return "no rows are held out; give validation rows or a share of the rows"


def _per_label(run: Run) -> str | None:
    if run.listed:
        return f"one threshold is tuned for all labels of {run.title}, because they are many"
    goal = OBJECTIVES.get(run.settings.tune)
    if run.settings.tune == SETS or (goal is not None and not goal.per_label):
        return f"one threshold is tuned for all labels for {run.settings.tune}"
    return _tunes(run)


def _tunes(run: Run) -> str | None:
    if run.settings.tune == "none":
        return "the decision rule is not tuned"
    return _needs_held_out(run)


def _tunable(run: Run) -> bool:
    return natural_decision(get_loss(run.settings.usual_loss).decision).tunable


def _tune(run: Run) -> str | None:
    if run.settings.tune == "none":
        return None
    if decides_itself(run.settings) and not _tunable(run) and run.settings.strategy == "plain":
        return f"the loss {run.settings.loss} predicts the best label, so that there is no threshold to tune"
    return _needs_held_out(run)


def _pos_weight(run: Run) -> str | None:
    if run.settings.pos_weight != AUTO or run.settings.tune != "balanced" or not run.has_held_out:
        return None
    return "auto replaces a tuned rule, and the rule is tuned; set --tune none"


def _stops(run: Run) -> str | None:
    if not run.settings.patience:
        return None
    if run.fitting != HELD_OUT:
        return f"{run.title} is trained for all epochs, without early stopping"
    return _needs_held_out(run)


def _metric(run: Run) -> str | None:
    return _needs_held_out(run)


def _validation(run: Run) -> str | None:
    if run.validated:
        return "validation rows are given"
    return (
        f"{run.title} is fitted to all rows, and its scores are cross-fitted; see `folds`" if run.fitting == CROSSED else None
    )


def _folds(run: Run) -> str | None:
    if run.fitting != CROSSED:
        return f"{run.title} is not cross-fitted; see `validation`"
    return "validation rows are given" if run.validated else None


def _members(run: Run) -> str | None:
    if not run.body.averages:
        return f"bodies of the kind {run.body.name} are not averaged"
    if run.fitting == CROSSED:
        return f"{run.title} is fitted to all rows"
    members, share = run.settings.members or 1, run.settings.validation
    if members > 1 and not run.validated and members * share > 1 + 1e-9:
        return f"{members} fits cannot each hold out a different {share:g} of the rows; lower `validation`"
    return None


def _mean_of(run: Run) -> str | None:
    if run.settings.mean_of == NONE:
        return None
    if run.body.beside is None or run.kind != "features":
        return f"only mlp and linear on tables of features can average several losses, and this is {run.title}"
    return _needs_held_out(run)


def _rdrop(run: Run) -> str | None:
    if run.body.dropout is None:
        return f"{run.title} has no dropout, so two passes give the same scores"
    return "two passes without dropout give the same scores; set `dropout`" if not run.settings.dropout else None


def _solved(run: Run) -> str | None:
    return f"{run.title} is solved node by node, not by steps over batches"


def _unless(holds: Callable[[Run], bool], reason: str) -> Reason:
    return lambda run: None if holds(run) else reason.format(run=run)


UNUSED: dict[str, Reason] = {
    "learn_threshold": _unless(lambda run: run.settings.loss != "tlpr", "the loss tlpr always learns one"),
    "max_tokens": _unless(lambda run: run.body.inputs == "tokens", "only an encoder reads tokens"),
    "pos_weight": _pos_weight,
    "mixup": _unless(lambda run: run.body.mixes, "the tokens of {run.body.name} cannot be mixed"),
    "rdrop": _rdrop,
    "weight_decay": lambda run: f"{run.title} has no weight decay" if run.body.lazy else run.plain_steps,
    "warmup": lambda run: run.plain_steps,
    "clip": _unless(lambda run: not run.sparse, "{run.title} has sparse gradients, which are not clipped"),
    "patience": _stops,
    "metric": _metric,
    "validation": _validation,
    "members": _members,
    "mean_of": _mean_of,
    "folds": _folds,
    "tune": _tune,
    "per_label": _per_label,
    "shrink": lambda run: _per_label(run) or (None if run.settings.per_label else "one threshold is tuned for all labels"),
    "min_labels": _unless(
        lambda run: _tunable(run) or not decides_itself(run.settings),
        "the loss {run.settings.loss} predicts exactly one label",
    ),
    "calibrate": lambda run: None if run.settings.calibrate == NONE else _needs_held_out(run),
    "hidden": _unless(lambda run: run.body.hidden, "{run.title} has no hidden layer of its own"),
    "dropout": _unless(lambda run: run.body.dropout is not None, "{run.title} has no dropout"),
    "label_shards": _unless(lambda run: run.body.lazy, "{run.title} needs the scores of all labels at once; wide does not"),
    "trees": _unless(lambda run: run.fitting == SOLVED, "{run.title} has no label trees"),
    "beam": _unless(lambda run: run.fitting == SOLVED, "{run.title} has no label trees"),
    "ngrams": _only_texts,
    "word_starts": _only_texts,
    "char_ngrams": _only_texts,
    "max_features": _only_texts,
    "min_count": _only_texts,
    "precision": _unless(
        lambda run: run.settings.precision != "bfloat16" or run.fitting != CROSSED, "{run.title} computes in float32"
    ),
}


def check_used(
    given: TrainSettings,
    settings: TrainSettings,
    body: BodyInfo,
    examples: Examples,
    *,
    sparse: bool,
    validated: bool,
    solved: bool = False,
    listed: bool = False,
) -> Run:
    """The facts that decide which settings are used. Raises an error for a changed setting that this run does not use.

    Args:
        given: the settings as they were given.
        settings: the same, resolved.
        body: the body.
        examples: the training rows.
        sparse: whether the prepared inputs are sparse.
        validated: whether validation rows are given.
        solved: whether a linear body is solved label by label.
        listed: whether the rule is tuned on the best labels of each row only.
    """
    run = Run(settings, body, examples.kind, len(examples), sparse, validated, solved, listed)
    for each in fields(TrainSettings):
        reason = UNUSED.get(each.name)
        if run.fitting == SOLVED and each.name in STEPS_ONLY:
            reason = _solved
        if reason is not None and getattr(given, each.name) != each.default:
            why = reason(run)
            if why is not None:
                raise ValueError(f"train: `{each.name}` must be left out: {why}.")
    return run


def unreached_limits(given: TrainSettings, inputs: Any, prepared: Any) -> list[str]:
    """A sentence for each limit that was set and has no effect, because no row reaches it.

    Args:
        given: the settings as they were given.
        inputs: how rows are prepared.
        prepared: the training rows, prepared.
    """
    if inputs.kind == "texts":
        name, most = "max_features", max(len(getattr(inputs, part)) for part in inputs.parts)
    elif inputs.kind == "tokens":
        name, most = "max_tokens", int(prepared.lengths.max()) if len(prepared.lengths) else 0
    else:
        return []
    limit, default = getattr(given, name), next(each.default for each in fields(TrainSettings) if each.name == name)
    return [] if limit == default or most >= limit else [f"`{name}` has no effect: the data has at most {most:,}."]


def check_lazy(entry: BodyInfo, settings: TrainSettings, examples: Examples) -> None:
    """Raise an error for settings that lazy scores do not support."""
    for name, why in why_not_lazy(settings, examples).items() if entry.lazy else ():
        if why:
            raise ValueError(f"train: `{name}` must be changed for the body {entry.name}: {why}.")
    if entry.lazy and Processes.current().count > 1 and not settings.label_shards:
        raise ProcessesError(
            f"train: `model` {entry.name} must have `label_shards` {Processes.current().count} in several processes: its"
            " weights are updated inside backward, so labels can be sharded, but rows cannot."
        )


def check_processes(settings: TrainSettings, processes: Processes) -> None:
    """Raise an error for settings that several processes do not support."""
    if settings.label_shards:
        if settings.label_shards != processes.count:
            raise ProcessesError(
                f"train: `label_shards` must be the number of processes, {processes.count}; got {settings.label_shards}. Start"
                f" as many with: torchrun --nproc-per-node {settings.label_shards} -m manyhot.cli train ..."
            )
        return
    processes.own_size(settings.batch_size or USUAL_BATCH)
    if processes.count > 1 and not get_loss(settings.usual_loss).row_separable:
        raise ProcessesError(
            f"train: `loss` must judge each row by itself for several processes; {settings.loss!r} compares rows."
        )
