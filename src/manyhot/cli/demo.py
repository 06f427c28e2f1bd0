"""``manyhot demo``: digit scenes end to end, ZLPR and cross-entropy side by side, with nothing to download."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from manyhot.cli.console import JsonFlag, QuietFlag, say, show_json, show_table, show_text
from manyhot.cli.progress import Watch
from manyhot.data.digit_scenes import BALANCED, IMBALANCED, DigitScenes, digit_scenes
from manyhot.data.examples import Examples
from manyhot.decide import DecisionRule
from manyhot.labels.sparse import SparseLabels
from manyhot.train.durable import make_folder, write_json
from manyhot.train.settings import TrainSettings
from manyhot.tune import tune_rule

VARIANTS = {"balanced": BALANCED, "imbalanced": IMBALANCED}
COMPARED = ("zlpr", "bce")
METRICS = ("micro-F1", "macro-F1", "SubACC")
OBJECTIVE = "macro-F1"
# The same for both losses. A small body, so that twelve runs fit into two minutes; on one thread, because two that wait for
# each other after every small layer are many times slower where anything else runs on the machine.
SMALL: dict[str, Any] = {
    "model": "conv",
    "hidden": 48,
    "dropout": 0.0,
    "learning_rate": 0.005,
    "batch_size": 16,
    "patience": 0,
    "threads": 1,
}
DIGITS = tuple(str(digit) for digit in range(10))

RowsFlag = Annotated[int, typer.Option(min=100, help="Training scenes.")]
EpochsFlag = Annotated[int, typer.Option(min=1, help="Passes over them.")]
SeedsFlag = Annotated[int, typer.Option(min=1, help="Runs of each, with other scenes and other first weights.")]
FolderFlag = Annotated[Path, typer.Option(help="Where the results are written.")]


@dataclass(frozen=True)
class Outcome:
    """One model under one rule on the test scenes."""

    variant: str
    loss: str
    seed: int
    rule: str
    seconds: float
    scores: dict[str, float]


def demo(
    *,
    rows: RowsFlag = 1400,
    epochs: EpochsFlag = 7,
    seeds: SeedsFlag = 3,
    folder: FolderFlag = Path("runs/demo"),
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Train on handwritten digits, ZLPR against cross-entropy: under two minutes, nothing to download.

    A scene shows some digits, its labels are which. In the imbalanced variant the 9 is 500 times rarer than the 0.
    """
    silent = quiet or json
    make_folder(folder)
    started = time.perf_counter()
    outcomes: list[Outcome] = []
    for variant, loss in ((variant, loss) for variant in VARIANTS for loss in COMPARED):
        for seed in range(seeds):
            outcomes += _run(variant, loss, seed, rows=rows, epochs=epochs, quiet=silent)
    report = folder / "results.json"
    write_json(report, [asdict(outcome) for outcome in outcomes])
    if json:
        show_json({"report": str(report), "outcomes": [asdict(outcome) for outcome in outcomes]})
        return
    _show(outcomes, seeds)
    say("Few epochs and one learning rate for both losses: an illustration, not a ranking.", quiet=quiet)
    say(f"{time.perf_counter() - started:.0f} s in all", quiet=quiet)
    show_text(f"All numbers: {report}")


def _run(variant: str, loss: str, seed: int, *, rows: int, epochs: int, quiet: bool) -> Iterator[Outcome]:
    """Train once, then decide the test scenes by ``s > 0`` and by the rule tuned on the validation scenes."""
    # Here, not above: metrics load slowly, and no other verb should wait for them.
    from manyhot.metrics.running import Metrics
    from manyhot.train.loop import train

    shares = VARIANTS[variant]
    fit = _examples(digit_scenes(rows, frequencies=shares, seed=3 * seed))
    held_out = _examples(digit_scenes(rows // 2, frequencies=shares, seed=3 * seed + 1))
    test = _examples(digit_scenes(rows, part="test", frequencies=shares, seed=3 * seed + 2))
    settings = TrainSettings(**SMALL, loss=loss, epochs=epochs, metric=OBJECTIVE, tune="none", seed=seed)
    started = time.perf_counter()
    with Watch(quiet=quiet, title=f"{variant} {loss} seed {seed}") as watch:
        model = train(fit, settings, validation=held_out, progress=watch)
    seconds = time.perf_counter() - started
    tuned = tune_rule(model.logits(held_out), held_out.labels, objective=OBJECTIVE)
    logits = model.logits(test)
    for name, rule in (("natural", DecisionRule()), ("tuned", tuned.rule)):
        metrics = Metrics(list(METRICS), num_labels=len(DIGITS), rule=rule)
        metrics.update(logits, test.labels)
        outcome = Outcome(variant, loss, seed, name, seconds, metrics.compute())
        values = "  ".join(f"{metric} {value:.4f}" for metric, value in outcome.scores.items())
        say(f"{variant} {loss} seed {seed}: {name} rule  {values}", quiet=quiet)
        yield outcome


def _examples(scenes: DigitScenes) -> Examples:
    return Examples(SparseLabels.from_dense(scenes.labels.to(torch.bool)), DIGITS, images=scenes.images)


def _show(outcomes: Sequence[Outcome], seeds: int) -> None:
    """Mean and spread over the seeds, as they came out."""
    rows = []
    for variant, loss, rule in dict.fromkeys((each.variant, each.loss, each.rule) for each in outcomes):
        same = [each for each in outcomes if (each.variant, each.loss, each.rule) == (variant, loss, rule)]
        cells = []
        for metric in METRICS:
            values = [each.scores[metric] for each in same]
            spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.3f}{spread}")
        rows.append((variant, loss, rule, *cells))
    show_text(f"Test scenes, mean ± standard deviation over {seeds} seeds", style="bold")
    show_table(("digits", "loss", "rule", *METRICS), rows, right=(3, 4, 5), whole=range(6))
