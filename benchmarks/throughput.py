"""Rows per second of reading, training and predicting: ``python -m benchmarks.throughput --data FOLDER``.

The model is what is computed with its weights: scores, loss, gradient, step. Preparing inputs is counted apart: words to
numbers, features to scale. Everything else is outside both: drawing and cutting batches, folds, tuning the rule, decisions.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.tuning import processor
from manyhot.data.read import read_examples
from manyhot.training.rows.inputs.registry import INPUTS
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from manyhot.training.run.fit import Fit

FILES = {
    "goemotions, text": ("goemotions/train.tsv.gz", {}),
    "cooking_stackexchange, text": ("cooking_stackexchange/cooking.stackexchange.txt.gz", {}),
    "bibtex, sparse features": ("bibtex/bibtex-train.arff.gz", {}),
    "yeast, dense features": ("yeast/yeast-train.arff.gz", {}),
    "eurlex57k (dev), text, bag": ("eurlex57k/dev.jsonl.xz", {"model": "bag", "epochs": 2}),
}


class Watch:
    """Seconds of wall clock and of CPU, summed over what is timed."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0
        self.rows = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu


def timed(watch: Watch, function: Callable[..., Any], rows: Callable[..., int]) -> Callable[..., Any]:
    """The same function, on the watch."""

    def run(*arguments: Any, **settings: Any) -> Any:
        watch.rows += rows(*arguments)
        with watch.running():
            return function(*arguments, **settings)

    return run


class Inside:
    """Where time goes while it is entered: the model, by its steps and its scores outside of them, and preparing inputs."""

    def __init__(self) -> None:
        self.whole, self.model, self.preparing = Watch(), Watch(), Watch()
        self.scoring: Any = None

    def __enter__(self) -> Inside:
        self.kept = (Fit.step, [(kind, kind.__dict__["fit"], kind.rows) for kind in INPUTS.values()])
        Fit.step = timed(self.model, Fit.step, lambda *given: len(given[2][1]))  # type: ignore[method-assign]
        for kind, fit, rows in self.kept[1]:
            kind.fit = classmethod(timed(self.preparing, fit.__func__, _none))
            kind.rows = timed(self.preparing, rows, _none)
        modules = torch.nn.modules.module
        self.hooks = [
            modules.register_module_forward_pre_hook(self._before),
            modules.register_module_forward_hook(self._after),
        ]
        self.timer = self.whole.running()
        self.timer.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.timer.__exit__(None, None, None)
        for hook in self.hooks:
            hook.remove()
        Fit.step = self.kept[0]  # type: ignore[method-assign]
        for kind, fit, rows in self.kept[1]:
            kind.fit, kind.rows = fit, rows

    def _before(self, *given: Any) -> None:
        # Steps, which are timed whole, run modules in training mode; of modules in each other the outermost is timed.
        if not given[0].training and self.scoring is None:
            self.scoring = (given[0], self.model.running())
            self.scoring[1].__enter__()

    def _after(self, *given: Any) -> None:
        if self.scoring is not None and self.scoring[0] is given[0]:
            self.scoring[1].__exit__(None, None, None)
            self.scoring = None

    def shares(self) -> str:
        """Of the CPU seconds, for the table."""
        whole = max(self.whole.cpu, 1e-9)
        inside, before = self.model.cpu / whole, self.preparing.cpu / whole
        return f"{100 * inside:.0f} | {100 * before:.0f} | {100 * (1 - inside - before):.0f} |"


def _none(*given: Any) -> int:
    del given
    return 0


def measure(name: str, data: Path) -> list[str]:
    file, settings = FILES[name]
    read_examples(data / file)
    reading = Watch()
    with reading.running():
        examples = read_examples(data / file)
    rows = len(examples)
    chosen = TrainSettings(threads=1, **settings)
    # Libraries are loaded by what needs them first.
    train(examples[:200], replace(chosen, epochs=1)).predict(examples[:10])
    with Inside() as training:
        model = train(examples, chosen)
    with Inside() as predicting:
        model.predict(examples)
    stepped = training.model.rows
    head = f"| {name}, {rows:,} rows, {examples.num_labels:,} labels, {model.shape['body']} "
    return [
        f"{head}| reading | {rows / reading.wall:,.0f} | {rows / reading.cpu:,.0f} | | | |",
        f"| | training, {stepped:,} rows stepped over | {stepped / training.whole.wall:,.0f} |"
        f" {stepped / training.whole.cpu:,.0f} | {training.shares()}",
        f"| | predicting | {rows / predicting.whole.wall:,.0f} | {rows / predicting.whole.cpu:,.0f} | {predicting.shares()}",
    ]


def page(lines: list[str], sets: list[str]) -> str:
    named = "" if sets == list(FILES) else " --sets " + " ".join(f'"{name}"' for name in sets)
    text = [
        "# Rows per second of reading, training and predicting",
        "",
        f"- Date: {datetime.datetime.now(datetime.UTC).date()}",
        f"- Command: `python -m benchmarks.throughput --data FOLDER{named}`",
        f"- Hardware: {processor()}, 1 thread of {os.cpu_count()} cores; load in the last minute {os.getloadavg()[0]:.1f}",
        f"- Versions: Python {platform.python_version()}, torch {torch.__version__}, NumPy {np.__version__}",
        "",
        "From file to examples in memory; from these to a finished model, all fits, cross-fitting and tuning in it; from texts"
        " or features to predicted labels. Shares are of CPU seconds: the model (scores, loss, gradient, step), preparing"
        " inputs (words to numbers, features to scale), and the rest. Rows per second of wall clock suffer from what else"
        " runs on the machine; those per CPU second hardly do.",
        "",
        "| set | stage | rows a second | rows a CPU second | model, % | preparing inputs, % | rest, % |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*text, *lines]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("MANYHOT_DATA"), help="folder with the data sets")
    parser.add_argument("--sets", nargs="+", choices=tuple(FILES), default=list(FILES))
    parser.add_argument("--output", type=Path, default=None)
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data or MANYHOT_DATA must name the folder with the data sets")
    torch.set_num_threads(1)
    text = page([line for name in options.sets for line in measure(name, Path(options.data))], options.sets)
    if options.output:
        options.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
