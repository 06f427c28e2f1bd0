"""``manyhot tune``: fit the decision rule and the calibration of a model on held-out examples, and save them with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from manyhot._checks import check_choice
from manyhot.cli.commands.evaluate import tell_unseen
from manyhot.cli.io.console import JsonFlag, QuietFlag, number, say, show_json, show_pairs, show_text
from manyhot.cli.io.models import ModelArgument, bundle_folder, fitted_to, inherited_reading, open_model, warn_of_training_rows
from manyhot.cli.io.reading import FilesArgument, read_files, read_flags, reading_of
from manyhot.decisions.calibrate import KINDS, fit_calibration
from manyhot.decisions.rule import DecisionRule
from manyhot.decisions.tune import retune_rule
from manyhot.decisions.tuning.goals import OBJECTIVES
from manyhot.training.run.folder import fingerprint

ObjectiveFlag = Annotated[str, typer.Option("--metric", "--objective", help=f"Metric to tune for: {', '.join(OBJECTIVES)}.")]
PerLabelFlag = Annotated[
    bool,
    typer.Option(
        "--per-label/--one-for-all", help="Tune one threshold per label, or one for all labels.", show_default="one-for-all"
    ),
]
SetsFlag = Annotated[bool, typer.Option("--sets", help="Tune a rule that predicts whole label sets; needs --metric SubACC.")]
ShrinkFlag = Annotated[
    float,
    typer.Option(
        min=0, help="How strongly thresholds per label are shrunk towards the common one, in pseudo-positives; 0 for none."
    ),
]
FoldsFlag = Annotated[int, typer.Option(help="Number of cross-fitting folds to estimate the gain on new data; 0 for none.")]
MinFlag = Annotated[
    int | None, typer.Option(min=0, help="Predict at least this many labels per row.", show_default="as in the model")
]
CalibrateFlag = Annotated[str, typer.Option(help=f"How to calibrate the probabilities: none, {', '.join(KINDS)}.")]
AlwaysFlag = Annotated[bool, typer.Option("--always", help="Save the tuned rule even if it is not better than the old one.")]
DryFlag = Annotated[bool, typer.Option("--dry-run", help="Print the result and save nothing.")]


@read_flags
def tune(
    model: ModelArgument,
    files: FilesArgument,
    *,
    objective: ObjectiveFlag = "micro-F1",
    per_label: PerLabelFlag = False,
    sets: SetsFlag = False,
    shrink: ShrinkFlag = 5.0,
    folds: FoldsFlag = 5,
    min_labels: MinFlag = None,
    calibrate: CalibrateFlag = "none",
    always: AlwaysFlag = False,
    dry_run: DryFlag = False,
    json: JsonFlag = False,
    quiet: QuietFlag = False,
    reading: dict[str, Any],
) -> None:
    """Tune the decision rule and the probabilities on held-out examples, and save them with the model."""
    try:
        check_choice("tune", "metric", objective, tuple(OBJECTIVES))
        check_choice("tune", "calibrate", calibrate, ("none", *KINDS))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if sets and objective != "SubACC":
        raise typer.BadParameter("--sets needs --metric SubACC, the metric of whole label sets.")
    trained = open_model(model)
    if trained.lazy:
        raise typer.BadParameter(
            f"the body {trained.shape['body']} has too many labels to score them all at once. Its threshold is tuned in"
            " training: manyhot train --validation-file FILE"
        )
    found = read_files(files, reading_of(reading), inherited=inherited_reading(model, labels=True), quiet=quiet or json)
    warn_of_training_rows(model, lambda: fingerprint(found), quiet=quiet or json)
    examples = found.with_labels(trained.label_names)
    tell_unseen(examples, quiet=quiet or json)
    logits, where = trained.logits(fitted_to(trained, examples)), examples.where()
    how = {"objective": objective, "per_label": per_label, "shrink": shrink, "folds": folds, "sets": sets}
    tuned = retune_rule(logits, examples.labels, trained.rule, where=where, **how)
    taken = always or tuned.helps is not False
    rule = tuned.rule if taken else trained.rule
    least = trained.rule.min_labels if min_labels is None else min_labels
    if rule.top_k is None:
        rule = replace(rule, min_labels=least)
    trained.rule = rule
    if calibrate != "none":
        trained.calibration = fit_calibration(logits, examples.labels, kind=calibrate, where=where)
    if not dry_run:
        trained.save(bundle_folder(model))
    if json:
        told = {name: getattr(tuned, name) for name in ("objective", "value", "baseline", "cross_fitted", "gain", "gain_error")}
        show_json({**told, "helps": tuned.helps, "rule": rule.to_json(), "calibration": calibrate, "saved": not dry_run})
        return
    show_text(tuned.message)
    show_pairs("", [("rule", rule_in_words(rule)), ("calibration", calibrate)])
    say("nothing was saved" if dry_run else f"saved in {bundle_folder(model)}", quiet=quiet)


def rule_in_words(rule: DecisionRule) -> str:
    """A decision rule as a sentence.

    Example:
        >>> rule_in_words(DecisionRule(threshold=(0.5, 1.5), min_labels=1))
        'score above a threshold per label, 0.5000 to 1.500; at least 1 label per row'
    """
    if rule.top_k is not None:
        return f"the {number(rule.top_k)} best labels of each row"
    if rule.sets is not None:
        return f"the best label set of each row, {number(len(rule.sets.sets))} known sets preferred"
    if isinstance(rule.threshold, tuple):
        low, high = min(rule.threshold), max(rule.threshold)
        text = f"score above a threshold per label, {low:#.4g} to {high:#.4g}"
    else:
        text = f"{'log of the softmax of the row' if rule.softmax else 'score'} above {rule.threshold:.4g}"
    if rule.row_f1 is not None:
        text = text.replace("score", "score minus the row's threshold of the best expected F1", 1)
    if rule.min_labels:
        text += f"; at least {rule.min_labels} label{'s' if rule.min_labels > 1 else ''} per row"
    if rule.max_labels is not None:
        text += f"; at most {rule.max_labels}"
    return text
