"""Which weight of the positives ``manyhot train`` should have by default: ``python -m benchmarks.train_default``.

    python -m benchmarks.train_default --data FOLDER --out FILE                # runs what FILE does not have yet
    python -m benchmarks.train_default --out FILE --table                      # the table from FILE alone

``manyhot train`` with its own defaults but for ``pos_weight``, on the sets with a test file (texts as
``benchmarks.compare_groups --prepare`` writes them); measured by the rule it tunes and
by the natural one (``tune="none"``).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.compare_groups import find_sets
from manyhot.comparison.table import markdown_table
from manyhot.data.examples import Examples
from manyhot.data.read import read_examples
from manyhot.decisions.rule import DecisionRule
from manyhot.evaluation import evaluate
from manyhot.training.rows.choose import MOST_WEIGHT
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train

NAMES = "cooking_stackexchange,goemotions,medical,enron,bibtex,corel5k,reuters21578,delicious,emotions,scene,yeast,birds,flags"
METRICS = ("micro-F1", "macro-F1", "MLC-F1", "SubACC", "AvgPrec", "RankLoss", "ECE")
WEIGHTS = ("1", "10", "labels", "auto")
RULES = ("tuned", "natural")


def examples_of(name: str, folder: Path) -> tuple[Examples, Examples]:
    """Training and test rows."""
    (files,) = find_sets(folder, [name])
    first = read_examples(files.train[0])
    second = read_examples(files.test[0]).with_labels(first.label_names)
    plain = first.features is None or first.feature_names is not None
    return first, second if plain else second.with_features(first.num_features)


def run(rows: Examples, test: Examples, weight: str, seed: int) -> dict[str, Any]:
    """One cell."""
    given: float | str = (
        weight if weight == "auto" else min(rows.num_labels, MOST_WEIGHT) if weight == "labels" else int(weight)
    )
    started = time.perf_counter()
    model = train(rows, TrainSettings(pos_weight=given, seed=seed, device="cpu"))
    seconds = time.perf_counter() - started
    found = {"tuned": evaluate(model, test, METRICS), "body": model.shape["body"], "seconds": round(seconds, 2)}
    rule = DecisionRule()
    if weight == "auto":
        rule = train(rows, TrainSettings(pos_weight=given, seed=seed, tune="none", device="cpu")).rule
    return found | {"natural": evaluate(model, test, METRICS, rule=rule), "threshold": rule.threshold}


def table(path: Path) -> str:
    """Differences from weight 1 over sets, by body and rule; then the sets."""
    cells = [json.loads(line) for line in path.read_text().splitlines()]
    seeds = {name: common_seeds([cell for cell in cells if cell["set"] == name]) for name in {cell["set"] for cell in cells}}
    bodies = {cell["set"]: cell["body"] for cell in cells if seeds[cell["set"]]}
    means: dict[tuple[str, str, str, str], float] = {}
    for name, weight, rule, metric in product(bodies, WEIGHTS, RULES, METRICS):
        own = [c for c in cells if c["set"] == name and c["weight"] == weight and c["seed"] in seeds[name]]
        means[name, weight, rule, metric] = 100 * float(np.mean([cell[rule][metric] for cell in own]))
    rows = []
    for rule, body, weight in product(RULES, sorted(set(bodies.values())), WEIGHTS[1:]):
        names = [name for name in bodies if bodies[name] == body]
        texts = []
        for metric in METRICS:
            gap = np.asarray([means[name, weight, rule, metric] - means[name, "1", rule, metric] for name in names]).round(6)
            texts.append(f"{gap.mean():+.2f} ({(gap > 0).sum()} up, {(gap < 0).sum()} down)")
        rows.append([f"{rule} rule, {body} ({len(names)} sets): weight {weight}", *texts])
    sets = [
        [
            f"{name} ({bodies[name]}, {len(seeds[name])} seeds)",
            *(f"{means[name, weight, rule, 'micro-F1']:.1f}" for rule, weight in product(RULES, WEIGHTS)),
            *(f"{means[name, weight, 'tuned', 'ECE']:.1f}" for weight in WEIGHTS[:3]),
        ]
        for name in sorted(bodies)
    ]
    headings = [f"micro-F1, {rule}, {weight}" for rule, weight in product(RULES, WEIGHTS)]
    headings += [f"ECE, {weight}" for weight in WEIGHTS[:3]]
    return "\n".join(
        [
            "Differences from weight 1 in points, means over sets; ups and downs are sets.",
            "",
            markdown_table(["", *METRICS], rows),
            "",
            "The sets, percent:",
            "",
            markdown_table(["", *headings], sets),
        ]
    )


def common_seeds(cells: list[dict[str, Any]]) -> set[int]:
    """Seeds that every weight has."""
    return set.intersection(*({cell["seed"] for cell in cells if cell["weight"] == weight} for weight in WEIGHTS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("MANYHOT_DATA"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", default=NAMES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        print(table(given.out))
        return
    torch.set_num_threads(1)
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    done = {(cell["set"], cell["weight"], cell["seed"]) for cell in map(json.loads, lines)}
    for seed in range(given.seeds):
        for name in given.sets.split(","):
            left = [weight for weight in WEIGHTS if (name, weight, seed) not in done]
            rows = examples_of(name, Path(given.data)) if left else None
            for weight in left:
                cell = {"set": name, "weight": weight, "seed": seed, **run(*rows, weight, seed)}
                with given.out.open("a") as file:
                    file.write(json.dumps(cell) + "\n")
                print(name, weight, seed, {m: round(cell["tuned"][m], 3) for m in METRICS[:2]}, cell["seconds"], flush=True)


if __name__ == "__main__":
    main()
