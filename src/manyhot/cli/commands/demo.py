"""``manyhot demo``: ZLPR and binary cross-entropy side by side on digit scenes, with nothing to download."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import torch
import typer

from manyhot._files import make_folder, write_json
from manyhot.cli.commands.report import report_on
from manyhot.cli.io.console import JsonFlag, QuietFlag, say, show_json, show_table, show_text
from manyhot.cli.io.progress import Watch
from manyhot.data.examples import Examples
from manyhot.data.sets.digit_scenes import BALANCED, IMBALANCED, DigitScenes, digit_scenes
from manyhot.decisions.rule import DecisionRule
from manyhot.decisions.tune import tune_rule
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.progress import Event

if TYPE_CHECKING:
    from manyhot.training.rows.bundle import TrainedModel

VARIANTS = {"balanced": BALANCED, "imbalanced": IMBALANCED}
COMPARED = ("zlpr", "bce")
METRICS = ("micro-F1", "macro-F1", "SubACC")
OBJECTIVE = "macro-F1"
# The same settings for both losses. The body is small, so that all runs together take two minutes. It uses one thread: on a
# busy machine, threads that synchronise after every small layer are many times slower.
SMALL: dict[str, Any] = {
    "model": "conv",
    "hidden": 48,
    "dropout": 0.0,
    "batch_size": 16,
    "patience": 0,
    "threads": 1,
}
# Each loss uses the learning rate that is better on the validation scenes of its first seed.
RATES = (0.004, 0.01)
DIGITS = tuple(str(digit) for digit in range(10))

RowsFlag = Annotated[int, typer.Option(min=100, help="Number of training pictures.")]
EpochsFlag = Annotated[int, typer.Option(min=1, help="Number of epochs of each run.")]
SeedsFlag = Annotated[
    int, typer.Option(min=1, help="Number of runs of each loss; each run has its own pictures and initial weights.")
]
FolderFlag = Annotated[Path, typer.Option(help="The folder for the results.")]


@dataclass(frozen=True)
class Outcome:
    """One model under one rule on the test scenes."""

    variant: str
    loss: str
    seed: int
    rule: str
    learning_rate: float
    seconds: float
    scores: dict[str, float]


class DemoRun(NamedTuple):
    """A trained model, its best validation score and how long it took."""

    model: TrainedModel
    value: float
    seconds: float


def demo(
    *,
    rows: RowsFlag = 1250,
    epochs: EpochsFlag = 7,
    seeds: SeedsFlag = 3,
    folder: FolderFlag = Path("runs/demo"),
    json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Compare ZLPR with binary cross-entropy on pictures of digits: under two minutes, nothing to download.

    The labels of a picture are the handwritten digits on it. In the imbalanced variant the 9 is 500 times rarer than the 0.
    """
    silent = quiet or json
    make_folder(folder)
    started = time.perf_counter()
    outcomes: list[Outcome] = []
    first: dict[tuple[str, str], TrainedModel] = {}
    for variant, loss in ((variant, loss) for variant in VARIANTS for loss in COMPARED):
        outcomes += _compared(variant, loss, first, rows=rows, epochs=epochs, seeds=seeds, quiet=silent)
    results = folder / "results.json"
    write_json(results, [asdict(outcome) for outcome in outcomes])
    test = _scenes("imbalanced", rows, 0)[2]
    title = "Digit scenes, imbalanced, ZLPR"
    report = report_on(first["imbalanced", "zlpr"], test, folder / "report", files=(), title=title)
    if json:
        show_json({"report": str(report), "results": str(results), "outcomes": [asdict(outcome) for outcome in outcomes]})
        return
    _show(outcomes, seeds)
    say("Each loss was trained for a few epochs with two learning rates: an illustration, not a ranking.", quiet=quiet)
    say(f"{time.perf_counter() - started:.0f} s in all", quiet=quiet)
    show_text(f"All numbers: {results}")
    show_text(f"Report on one of the models: {report}")


def _compared(
    variant: str, loss: str, first: dict[tuple[str, str], TrainedModel], *, rows: int, epochs: int, seeds: int, quiet: bool
) -> Iterator[Outcome]:
    """Outcomes of all seeds. The first seed is trained with each of ``RATES``; the best one on validation scenes is used for
    all seeds. The model of the first seed is stored in ``first``.
    """
    tried = {rate: _train(variant, loss, 0, rate, rows=rows, epochs=epochs, quiet=quiet) for rate in RATES}
    rate = max(tried, key=lambda each: tried[each].value)
    first[variant, loss] = tried[rate].model
    values = ", ".join(f"{each:g}: {run.value:.3f}" for each, run in tried.items())
    say(f"{variant} {loss}: learning rate {rate:g} (validation {OBJECTIVE} by rate {values})", quiet=quiet)
    yield from _outcomes(variant, loss, 0, rate, tried[rate], rows=rows, quiet=quiet)
    for seed in range(1, seeds):
        run = _train(variant, loss, seed, rate, rows=rows, epochs=epochs, quiet=quiet)
        yield from _outcomes(variant, loss, seed, rate, run, rows=rows, quiet=quiet)


def _train(variant: str, loss: str, seed: int, rate: float, *, rows: int, epochs: int, quiet: bool) -> DemoRun:
    # Imported here because it loads slowly, and other commands do not need it.
    from manyhot.training.rows.train import train

    fit, held_out, _ = _scenes(variant, rows, seed)
    settings = TrainSettings(
        **SMALL, loss=loss, epochs=epochs, learning_rate=rate, metric=OBJECTIVE, tune="none", pos_weight=1.0, seed=seed
    )
    best, started = 0.0, time.perf_counter()
    with Watch(quiet=quiet, title=f"{variant} {loss} seed {seed} rate {rate:g}") as watch:

        def note(event: Event) -> None:
            nonlocal best
            if event.kind == "epoch":
                best = max(best, event.value)
            watch(event)

        model = train(fit, settings, validation=held_out, progress=note)
    return DemoRun(model, best, time.perf_counter() - started)


def _outcomes(variant: str, loss: str, seed: int, rate: float, run: DemoRun, *, rows: int, quiet: bool) -> Iterator[Outcome]:
    """Metrics on the test scenes with ``s > 0`` and with the rule tuned on the validation scenes."""
    from manyhot.metrics.sums import Sums

    _, held_out, test = _scenes(variant, rows, seed)
    tuned = tune_rule(run.model.logits(held_out), held_out.labels, objective=OBJECTIVE)
    logits = run.model.logits(test)
    for name, rule in (("natural", DecisionRule()), ("tuned", tuned.rule)):
        metrics = Sums(list(METRICS), num_labels=len(DIGITS), rule=rule)
        metrics.update(logits, test.labels)
        outcome = Outcome(variant, loss, seed, name, rate, run.seconds, metrics.compute())
        values = "  ".join(f"{metric} {value:.4f}" for metric, value in outcome.scores.items())
        say(f"{variant} {loss} seed {seed}: {name} rule  {values}", quiet=quiet)
        yield outcome


def _scenes(variant: str, rows: int, seed: int) -> tuple[Examples, Examples, Examples]:
    """Training, validation and test scenes of one seed."""
    shares = VARIANTS[variant]
    return (
        _examples(digit_scenes(rows, frequencies=shares, seed=3 * seed)),
        _examples(digit_scenes(rows // 2, frequencies=shares, seed=3 * seed + 1)),
        _examples(digit_scenes(rows, part="test", frequencies=shares, seed=3 * seed + 2)),
    )


def _examples(scenes: DigitScenes) -> Examples:
    return Examples(SparseLabels.from_dense(scenes.labels.to(torch.bool)), DIGITS, images=scenes.images)


def _show(outcomes: Sequence[Outcome], seeds: int) -> None:
    """Print mean and spread over the seeds."""
    rows = []
    for variant, loss, rule in dict.fromkeys((each.variant, each.loss, each.rule) for each in outcomes):
        same = [each for each in outcomes if (each.variant, each.loss, each.rule) == (variant, loss, rule)]
        cells = []
        for metric in METRICS:
            values = [each.scores[metric] for each in same]
            spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.3f}{spread}")
        rows.append((variant, loss, rule, *cells))
    show_text(f"Test pictures, mean ± standard deviation over {seeds} seeds", style="bold")
    show_table(("digits", "loss", "rule", *METRICS), rows, right=(3, 4, 5), whole=range(6))
