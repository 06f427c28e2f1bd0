"""spaCy's multi-label text categoriser beside manyhot_textcat: same architecture, rows, passes and optimiser.

MANYHOT_DATA=... python -m benchmarks.spacy_textcat > benchmarks/results/spacy-textcat-DATE.md
"""

import argparse
import gzip
import os
import platform
import random
import time
from datetime import date
from pathlib import Path

import numpy as np
import spacy
import torch
from spacy.training import Example
from spacy.util import minibatch

from manyhot import Metrics, tune_rule

FACTORIES = ("textcat_multilabel", "manyhot_textcat")


def read(name, rows):
    folder = Path(os.environ["MANYHOT_DATA"]) / "goemotions"
    labels = next(folder.glob("labels.txt*")).read_text().split()
    with gzip.open(next(folder.glob(f"{name}.tsv*")), "rt") as file:
        lines = [line.rstrip("\n").split("\t") for line in file][:rows]
    return labels, [(text, {labels[int(number)] for number in numbers.split(",")}) for text, numbers, *_ in lines]


def examples_of(nlp, names, rows):
    return [Example.from_dict(nlp.make_doc(text), {"cats": {name: name in own for name in names}}) for text, own in rows]


def truth_of(component, examples):
    return torch.tensor([[example.reference.cats[name] > 0.5 for name in component.labels] for example in examples])


def measure(scores, truth, rule=None):
    metrics = Metrics(["micro-F1", "macro-F1"], num_labels=truth.shape[1], rule=rule)
    metrics.update(scores, truth)
    return {name: float(value) for name, value in metrics.compute().items()}


def run(factory, names, train, dev, test, passes):
    spacy.util.fix_random_seed(0)
    random.seed(0)
    nlp = spacy.blank("en")
    component = nlp.add_pipe(factory)
    for name in names:
        component.add_label(name)
    examples, held_out, unseen = (examples_of(nlp, names, rows) for rows in (train, dev, test))
    optimizer = nlp.initialize(lambda: examples[:200])
    start = time.perf_counter()
    for _ in range(passes):
        random.shuffle(examples)
        for batch in minibatch(examples, 64):
            nlp.update(batch, sgd=optimizer)
    seconds = time.perf_counter() - start

    def scored(rows):
        # Both write probabilities with 0.5 as the cut; their log odds are scores with 0 as the cut.
        probabilities = torch.from_numpy(np.asarray(component.predict([row.predicted for row in rows])).astype("d"))
        return probabilities.clamp(1e-12, 1 - 1e-12).logit()

    scores, truth = scored(unseen), truth_of(component, unseen)
    tuned = tune_rule(scored(held_out), truth_of(component, held_out), objective="macro-F1", per_label=True).recommended
    found = {f"{factory}, cut at 0.5": measure(scores, truth), f"{factory}, tuned on dev": measure(scores, truth, tuned)}
    return found, seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--passes", type=int, default=4)
    given = parser.parse_args()
    names, train = read("train", given.rows)
    dev, test = (read(part, given.rows // 2)[1] for part in ("dev", "test"))
    print("# spaCy: the stock multi-label categoriser beside manyhot_textcat\n")
    print(
        f"goemotions, the first {len(train)} training rows, {given.passes} passes, tested on the first {len(test)} test rows;"
    )
    print(
        "the default architecture (TextCatEnsemble) and optimiser for both, thresholds tuned alike, one seed, one CPU thread."
    )
    print(f"spaCy {spacy.__version__}, {platform.machine()}, {date.today()}.")
    print(f"Command: `python -m benchmarks.spacy_textcat --rows {given.rows} --passes {given.passes}`\n")
    print("| categoriser | micro-F1 | macro-F1 | training, s |\n|---|---|---|---|")
    for factory in FACTORIES:
        found, seconds = run(factory, names, train, dev, test, given.passes)
        for title, scores in found.items():
            print(f"| {title} | {scores['micro-F1']:.4f} | {scores['macro-F1']:.4f} | {seconds:.0f} |", flush=True)
