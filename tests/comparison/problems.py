"""A small data set in files, for grids that end in seconds."""

import numpy as np

from manyhot.comparison.methods import parse_methods
from manyhot.comparison.plan import Plan
from manyhot.comparison.sets import pair_files
from manyhot.comparison.settings import CompareSettings

SMALL = {"trials": 2, "epochs": 4, "patience": 4, "hidden": 8, "device": "cpu"}


def write_table(path, rows, seed, labels=4, features=6):
    """Features and labels that depend on them, as CSV with one column of 0 and 1 a label."""
    draw = np.random.default_rng(seed)
    weights = np.random.default_rng(99).normal(size=(features, labels))
    inputs = draw.normal(size=(rows, features))
    hits = (inputs @ weights + draw.normal(size=(rows, labels)) * 0.5 > 0.7).astype(int)
    lines = [",".join([*(f"x{n}" for n in range(features)), *(f"y{n}" for n in range(labels))])]
    lines += [",".join([*(f"{v:.4f}" for v in x), *map(str, y)]) for x, y in zip(inputs, hits, strict=True)]
    path.write_text("\n".join(lines) + "\n")


READING = {"labels": "y*", "features": "x*"}


def small_plan(folder, *, losses="zlpr,bce", seeds=2, models=("linear",), **settings):
    """A plan over one set in two files."""
    train, test = folder / "toy-train.csv", folder / "toy-test.csv"
    if not train.exists():
        write_table(train, 90, 0)
        write_table(test, 40, 1)
    return Plan(
        tuple(pair_files([str(train), str(test)], READING)),
        tuple(models),
        tuple(parse_methods([losses])),
        seeds,
        CompareSettings(**{**SMALL, **settings}),
    )
