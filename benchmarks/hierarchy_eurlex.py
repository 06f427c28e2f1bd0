"""EuroVoc's hierarchy on eurlex57k: decisions as they are, closed upwards, and top-down.

    python -m benchmarks.hierarchy_eurlex --data FOLDER [--rows 12000] [--characters 2000] [--page PAGE]

One bag model is trained on the labels of the file, which are the most special concepts, another on the same labels closed
upwards. All rows and labels are used, unless ``--rows`` takes the first training rows alone; labels without a training row are
left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.text_sets import SETS
from manyhot import SparseLabels, TrainSettings
from manyhot.data.examples import Examples
from manyhot.decisions.hierarchy import Hierarchy
from manyhot.metrics.counts import count_sets
from manyhot.training.rows.train import train


def parents_of(data: Path) -> list[tuple[str, str]]:
    """``(concept, parent)`` of every concept."""
    with gzip.open(data / "eurlex57k" / "EURLEX57K.json.gz", "rt", encoding="utf-8") as file:
        concepts = json.load(file)
    return [(name, parent) for name, concept in concepts.items() for parent in concept["parents"]]


def some_labels(examples: Examples, names: list[str]) -> Examples:
    """The examples with these labels alone."""
    own = {name: place for place, name in enumerate(names)}
    new = [own.get(name) for name in examples.label_names]
    lists = [[new[each] for each in row if new[each] is not None] for row in examples.labels.lists()]
    return replace(examples, labels=SparseLabels.from_lists(lists, num_labels=len(names)), label_names=tuple(names))


def shortened(examples: Examples, rows: int | None, characters: int | None) -> Examples:
    """The first rows, and the first characters of their texts."""
    part = examples[:rows]
    return part if characters is None else replace(part, texts=[text[:characters] for text in part.texts or []])


def micro_f1(predicted: SparseLabels, truth: SparseLabels) -> float:
    hits, said, true = (float(each.sum()) for each in count_sets(predicted, truth)[1])
    return 2 * hits / max(said + true, 1.0)


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Rows of the table, and what they are from."""
    whole, test = SETS["eurlex57k"](given.data)
    rows, test = shortened(whole, given.rows, given.characters), shortened(test, None, given.characters)
    counts = torch.bincount(rows.labels.indices, minlength=rows.num_labels)
    names = [name for name, count in zip(rows.label_names, counts.tolist(), strict=True) if count]
    tree = Hierarchy(names, parents_of(given.data), ignore_unknown=True)
    rows, test = some_labels(rows, names), some_labels(test, names)
    closed = tree.close(test.labels, "up")
    lines, started = [], time.perf_counter()
    settings = TrainSettings(model="bag", tune="none", epochs=given.epochs, threads=given.threads)
    for trained_on, labels in (("file", rows.labels), ("closed upwards", tree.close(rows.labels, "up"))):
        model = train(replace(rows, labels=labels), settings)
        own = model.predict(test)
        for decision, found in (
            ("as they are", own),
            ("closed upwards", tree.close(own, "up")),
            ("top-down", tree.close(own, "down")),
        ):
            told = {"trained": trained_on, "decisions": decision, **tree.metrics(found, test.labels)}
            told |= {"file F1": micro_f1(found, test.labels), "closed F1": micro_f1(found, closed)}
            lines.append({**told, "labels a row": len(found.indices) / len(found)})
    about = {"rows": len(rows), "test": len(test), "labels": len(names), "seconds": time.perf_counter() - started}
    about |= {"with parent": sum(bool(each) for each in tree.parents)}
    return {"lines": lines, **about, "true": len(test.labels.indices) / len(test), "closed": len(closed.indices) / len(test)}


def page(found: dict[str, Any], given: argparse.Namespace) -> str:
    """The result page."""
    keys = ("h-precision", "h-recall", "h-F1", "broken-rows", "file F1", "closed F1", "labels a row")
    table = ["| trained on labels | decisions | " + " | ".join(keys) + " |", "|---|---|" + "---:|" * len(keys)]
    for line in found["lines"]:
        shown = [f"{line[key]:.3f}" for key in keys[:-1]] + [f"{line[keys[-1]]:.2f}"]
        table.append(f"| {line['trained']} | {line['decisions']} | " + " | ".join(shown) + " |")
    return "\n".join(
        [
            "# EuroVoc's hierarchy on eurlex57k",
            "",
            f"Bag models on {'all' if given.rows is None else 'the first'} {found['rows']:,} training rows, texts"
            f" {'whole' if given.characters is None else f'cut at {given.characters:,} characters'}, no tuned thresholds;",
            f"all {found['test']:,} test rows. {found['labels']:,} labels, {found['with parent']:,} of them below another one.",
            f"A test row has {found['true']:.2f} labels in the file and {found['closed']:.2f} when they are closed upwards.",
            "`h-` metrics close predictions and truth upwards (micro). `file F1` and `closed F1` are the micro-F1 against the",
            "labels of the file and against those closed upwards; `broken-rows` have a label without any of its parents.",
            "",
            *table,
            "",
            f"{time.strftime('%Y-%m-%d')}, {device_name()}, other work on the machine, Python {platform.python_version()},"
            f" torch {torch.__version__}; both models {found['seconds']:,.0f} s. One seed.",
            "",
            f"    python -m benchmarks.hierarchy_eurlex {shlex.join(given_flags(given))} --data DATA --page PAGE",
            "",
        ]
    )


def device_name() -> str:
    """What the models were trained on."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"{platform.machine()} CPU"


def given_flags(given: argparse.Namespace) -> list[str]:
    """The flags that make the page again."""
    named = {"rows": given.rows, "characters": given.characters, "epochs": given.epochs, "threads": given.threads}
    return [word for name, value in named.items() if value is not None for word in (f"--{name}", str(value))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--characters", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    text = page(measure(given), given)
    if given.page:
        given.page.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
