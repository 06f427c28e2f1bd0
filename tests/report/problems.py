"""Scores with truth to report on, a model around them, and a comparison with known winners."""

import numpy as np
import torch

from manyhot.comparison.statistics import summarise
from manyhot.data.examples import Examples
from manyhot.decisions.rule import DecisionRule
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.at_k import label_propensities
from manyhot.report.run.judged import Judged, Origin
from manyhot.report.run.measure import FORMAT, measure_run
from manyhot.training.rows.bundle import TrainedModel
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train


def judged(rows=60, labels=5, *, rule=None, names=None, unknown=0.0, link="hard", seed=0):
    """Scores that know something of the truth; label 0 is frequent, the last one rare."""
    draw = np.random.default_rng(seed)
    shares = np.linspace(0.5, 0.06, labels)
    truth = draw.random((rows, labels)) < shares
    scores = (draw.normal(size=(rows, labels)) + 1.5 * truth - 0.6).astype(np.float32)
    where = torch.from_numpy(draw.random((rows, labels)) >= unknown) if unknown else None
    cuts = tuple(draw.normal(scale=0.3, size=labels).tolist())
    return Judged(
        torch.from_numpy(scores),
        SparseLabels.from_dense(torch.from_numpy(truth)),
        where,
        DecisionRule(threshold=cuts) if rule is None else rule,
        link,
        None,
        tuple(names or (f"label {place}" for place in range(labels))),
        label_propensities(torch.from_numpy(1000 * shares), 1000),
    )


def origin(case, *, texts=None, what="held out"):
    """Where the rows are from: texts, one a row."""
    given = texts or [f"text of row {row}" for row in range(len(case.labels))]
    return Origin(what, Examples(case.labels, case.label_names, texts=given), files=("posts.jsonl",))


def model_for(case):
    """A small model with the names and the rule of the case; its weights do not matter."""
    texts = [f"word{row % 3} and more" for row in range(40)]
    labels = SparseLabels.from_lists([[row % case.labels.num_labels] for row in range(40)], num_labels=case.labels.num_labels)
    trained = train(Examples(labels, case.label_names, texts=texts), TrainSettings(epochs=1, tune="none"))
    return TrainedModel(
        trained.body,
        trained.shape,
        trained.inputs,
        case.label_names,
        trained.settings,
        link=case.link,
        rule=case.rule,
        about={**trained.about, "learning_rate": 0.5},
    )


def run_report(case=None, *, texts=None, most=1000):
    """What a page of a run is made from."""
    case = case or judged()
    return measure_run(model_for(case), case, origin(case, texts=texts), most=most)


METHODS = {"zlpr": 0.06, "bce": 0.03, "focal": 0.0, "dice2": -0.05}


def cells(*, sets=("ants", "bees", "cats", "dogs"), seeds=3, spread=0.004):
    """Cells of a comparison in which methods differ by known amounts."""
    draw = np.random.default_rng(5)
    found = []
    for number, data in enumerate(sets):
        for model in ("linear", "mlp"):
            for method, gain in METHODS.items():
                for seed in range(seeds):
                    value = 0.5 + 0.02 * number + gain + float(draw.normal(scale=spread))
                    metrics = {
                        "SubACC": value,
                        "micro-F1": value + 0.1,
                        "RankLoss": 0.5 - value / 2,
                        "ECE": None if method == "focal" else 0.1,
                    }
                    found.append(
                        {
                            "version": 1,
                            "key": f"{data}/{model}/{method}/{seed}",
                            "data": data,
                            "model": model,
                            "method": method,
                            "seed": seed,
                            "title": method.upper(),
                            "family": "zlpr" if method == "zlpr" else "binary relevance",
                            "facts": {
                                "num_train": 100,
                                "num_labels": 5 + number,
                                "cardinality": 1.5,
                                "imbalance": 2.0 + number,
                            },
                            "rules": {"natural": "s > 0", "tuned": {}},
                            "metrics": {"natural": dict(metrics), "tuned": dict(metrics)},
                            "cost": {
                                "seconds": 1.0 + gain,
                                "epoch_seconds": 0.01,
                                "parameters": 10,
                                "outputs": 5,
                                "peak_bytes": 2**20,
                                "device": "cpu",
                            },
                        }
                    )
    return found


def comparison(**settings):
    """What a page of a comparison is made from."""
    plan = {
        "version": 1,
        "created": "2026-01-01T00:00:00Z",
        "data": {"ants": {"files": ["ants.arff"]}},
        "models": ["linear", "mlp"],
        "seeds": 3,
        "settings": {"trials": 2},
        "versions": {"manyhot": "0"},
        "hardware": "one core",
    }
    return {"format": FORMAT, "kind": "comparison", "plan": plan, "statistics": summarise(cells(**settings)), "failed": []}
