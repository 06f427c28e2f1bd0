"""``manyhot train`` told the metric against the single methods of a comparison: ``python -m benchmarks.told_metric``.

    python -m benchmarks.compare_groups --data FOLDER --out RESULTS --sets flags,scene,... --losses zlpr,bce,...   # the others
    python -m benchmarks.told_metric --data FOLDER --out FILE --sets flags,scene,...                               # told
    python -m benchmarks.told_metric --out FILE --others RESULTS/cells.jsonl --page PAGE                           # the page

For each set, body and seed one model is trained for each metric, on the training file, and judged by that metric on the test
file. Texts are told the metrics of ``benchmarks.text_peers``. A cell that is there is not run again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.compare_groups import find_sets
from benchmarks.metric_defaults import CHOOSING, JUDGING
from benchmarks.text_peers import METRICS as TEXT_METRICS
from benchmarks.text_sets import SETS as TEXT_SETS
from manyhot.comparison.plan import hardware
from manyhot.comparison.records import read_cells
from manyhot.comparison.statistics import PAPER_METRICS, summarise
from manyhot.comparison.table import markdown_table
from manyhot.data.examples import Examples
from manyhot.data.read import read_examples
from manyhot.evaluation import evaluate
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train

TOLD = "told"


@lru_cache(maxsize=2)
def examples_of(name: str, folder: str) -> tuple[Examples, Examples]:
    """Training and test rows."""
    if name in TEXT_SETS:
        return TEXT_SETS[name](Path(folder))
    (files,) = find_sets(Path(folder), [name])
    first = read_examples(files.train[0])
    second = read_examples(files.test[0]).with_labels(first.label_names)
    plain = first.features is None or first.feature_names is not None
    return first, second if plain else second.with_features(first.num_features)


def run(name: str, body: str, seed: int, folder: str) -> dict[str, Any]:
    """One cell: a model for each metric."""
    torch.set_num_threads(1)
    rows, test = examples_of(name, folder)
    values, spent, why = {}, {}, {}
    for metric in TEXT_METRICS if name in TEXT_SETS else PAPER_METRICS:
        started = time.perf_counter()
        model = train(rows, TrainSettings(metric=metric, model=body, seed=seed, device="cpu", threads=1))
        spent[metric] = round(time.perf_counter() - started, 2)
        values[metric] = evaluate(model, test, (metric,))[metric]
        why[metric] = model.about["why"]
    cell = {"data": name, "model": body, "seed": seed, "method": TOLD, "title": "manyhot train, told the metric"}
    cell |= {"family": "default", "facts": {"num_labels": rows.num_labels}, "cost": {"seconds": sum(spent.values())}}
    return {**cell, "metrics": {"natural": values, "tuned": values}, "seconds": spent, "why": why}


def page(told: list[dict[str, Any]], others: list[dict[str, Any]]) -> str:
    """Average ranks, tests, and the groups in which a single method is ahead."""
    groups = {(cell["data"], cell["model"]) for cell in others} & {(cell["data"], cell["model"]) for cell in told}
    kept = [cell for cell in [*told, *others] if (cell["data"], cell["model"]) in groups]
    sets = sorted({name for name, _ in groups})
    text = [
        "# The default, told the metric, against single methods",
        "",
        f"- Date: {datetime.datetime.now(datetime.UTC).date()}",
        "- Commands: those in the first lines of `benchmarks/told_metric.py`",
        f"- Sets: {', '.join(sets)}; linear and mlp each, {len({cell['seed'] for cell in told})} seeds",
        f"- Defaults were chosen on training rows of {', '.join(name for name in sets if name in CHOOSING) or 'none of them'};"
        f" {', '.join(name for name in sets if name in JUDGING) or 'none'} had no part in that",
        "",
        "The others get 6 trials a seed, chosen on validation rows (see the page of the groups). Each is judged with its rule"
        " tuned for the metric, and again with its natural rule.",
    ]
    for rule, part in product(("tuned", "natural"), ("all", "judging")):
        own = [cell for cell in kept if part == "all" or cell["data"] in JUDGING]
        if own:
            text += [
                "",
                f"## {'All groups' if part == 'all' else 'Groups that chose nothing'}, others with the {rule} rule",
                "",
            ]
            text += _part(summarise(own, reference=TOLD), rule)
    return "\n".join(text) + "\n"


def _part(found: dict[str, Any], rule: str) -> list[str]:
    tests, methods = found["tests"][rule], found["methods"]
    rows = [
        [found["titles"][name], *(f"{tests[m]['average_ranks'].get(name, np.nan):.2f}" for m in PAPER_METRICS)]
        for name in methods
    ]
    lines = [markdown_table([f"average rank, {len(found['groups'])} groups", *PAPER_METRICS], rows), ""]
    for metric in PAPER_METRICS:
        test = tests[metric]
        behind = [n for n, each in test["wilcoxon"].items() if each["p_holm"] < 0.05 and each["median_difference"] < 0]
        ahead = [n for n, each in test["wilcoxon"].items() if each["p_holm"] < 0.05 and each["median_difference"] > 0]
        worse = [group for group, names in test["significant_best"].items() if TOLD not in names]
        friedman, nemenyi = test["friedman"], test["nemenyi"]
        p = (
            ""
            if not friedman
            else f"Friedman {json.dumps(friedman)[:80]}, critical difference {nemenyi['critical_difference']:.2f}; "
        )
        lines.append(
            f"- {metric}: {p}best mean in {test['best_in'].get(TOLD, 0)} of {test['groups']};"
            f" ahead of {', '.join(ahead) or 'none'}, behind {', '.join(behind) or 'none'}"
            f" (Wilcoxon, Holm); significantly worse than the best in {', '.join(worse) or 'no group'}."
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("MANYHOT_DATA"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", default="flags,emotions,scene,yeast,birds,medical,enron")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--others", type=Path)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    cells = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    if given.page:
        given.page.write_text(page([c for c in cells if c["data"] not in TEXT_SETS], read_cells(given.others)))
        return
    done = {(cell["data"], cell["model"], cell["seed"]) for cell in cells}
    names = given.sets.split(",")
    wanted = [
        (n, b, s) for s in range(given.seeds) for n in names for b in (("auto",) if n in TEXT_SETS else ("linear", "mlp"))
    ]
    print(hardware(), flush=True)
    with ProcessPoolExecutor(given.jobs) as pool, given.out.open("a") as file:
        waiting = {pool.submit(run, *cell, str(given.data)): cell for cell in wanted if cell not in done}
        for each in as_completed(waiting):
            try:
                file.write(json.dumps(each.result()) + "\n")
                file.flush()
            except Exception as error:  # One bad cell must not end the others.
                print(waiting[each], f"{type(error).__name__}: {error}"[:200], flush=True)


if __name__ == "__main__":
    main()
