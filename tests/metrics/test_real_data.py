"""Plausible numbers on real label sets: sizes that are published, baselines that can be worked out, agreement at scale."""

import gzip
import json
import lzma
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import sklearn.metrics as reference
import torch

from manyhot import SparseLabels
from manyhot.metrics.at_k import label_propensities
from manyhot.metrics.running import Metrics
from manyhot.scores.top import TopScores

SIX = ["SubACC", "MLC-F1", "micro-F1", "macro-F1", "AvgPrec", "RankLoss"]


def mulan_labels(folder, name, part):
    """The label matrix of an ARFF file, bool ``[R, L]``, read without its features."""
    file = folder / name / f"{name}-{part}.arff.gz"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    wanted = {label.get("name") for label in ET.parse(folder / name / f"{name}.xml").getroot().iter() if label.get("name")}
    columns, rows, data = [], [], False
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            word = line.strip()
            if not data and word.lower().startswith("@attribute"):
                columns.append(word.split()[1].strip("'\""))
            elif word.lower() == "@data":
                data = True
                places = {column: place for place, column in enumerate(c for c in range(len(columns)) if columns[c] in wanted)}
            elif data and word.startswith("{"):
                found = (int(pair.split()[0]) for pair in word.strip("{}").split(",") if pair.strip())
                rows.append([places[column] for column in found if column in places])
            elif data and word:
                cells = word.split(",")
                rows.append([place for column, place in places.items() if float(cells[column]) == 1])
    return SparseLabels.from_lists(rows, num_labels=len(places)).dense()


def prior_scores(train, rows):
    """The same ranking for every row: labels by how often they occur, as logits."""
    prior = (train.double().mean(dim=0)).clamp(1e-6, 1 - 1e-6)
    return torch.logit(prior).float().expand(rows, -1)


@pytest.mark.parametrize(
    ("name", "labels", "cardinality"), [("yeast", 14, 4.237), ("bibtex", 159, 2.402), ("delicious", 983, 19.02)]
)
def test_the_six_metrics_of_a_prior_equal_scikit_learn(data_folder, name, labels, cardinality):
    train, test = mulan_labels(data_folder, name, "train"), mulan_labels(data_folder, name, "test")
    assert test.shape[1] == labels
    assert torch.cat([train, test]).double().sum(dim=1).mean().item() == pytest.approx(cardinality, abs=5e-4)
    test = test[:600]
    scores = prior_scores(train, len(test))
    metrics = Metrics([*SIX, "P@1", "hamming-error"], num_labels=labels)
    metrics.update(scores, test)
    found = metrics.compute()
    y, s, p = test.numpy(), scores.double().numpy(), (scores > 0).numpy()
    assert found["AvgPrec"] == pytest.approx(reference.label_ranking_average_precision_score(y, s), rel=1e-6)
    assert found["RankLoss"] == pytest.approx(reference.label_ranking_loss(y, s), rel=1e-6)
    assert found["micro-F1"] == pytest.approx(reference.f1_score(y, p, average="micro", zero_division=0), rel=1e-6)
    assert found["macro-F1"] == pytest.approx(reference.f1_score(y, p, average="macro", zero_division=0), rel=1e-6)
    assert found["MLC-F1"] == pytest.approx(reference.f1_score(y, p, average="samples", zero_division=1), rel=1e-6)
    assert found["SubACC"] == pytest.approx(reference.accuracy_score(y, p), rel=1e-6)
    # The commonest label is right as often as it occurs, and ranking by frequency beats chance.
    assert found["P@1"] == pytest.approx(test[:, train.sum(dim=0).argmax()].double().mean().item())
    assert 0 < found["RankLoss"] < 0.5


def test_rare_labels_of_eurlex57k_are_worth_more(data_folder):
    file = data_folder / "eurlex57k" / "dev.jsonl.xz"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        concepts = [json.loads(line)["concepts"] for line in lines]
    names = {name: place for place, name in enumerate(sorted({name for row in concepts for name in row}))}
    truth = SparseLabels.from_lists([[names[name] for name in row] for row in concepts], num_labels=len(names))
    assert len(truth) == 6000
    frequency = torch.bincount(truth.indices, minlength=len(names))
    propensities = label_propensities(frequency, len(truth))
    common = frequency.argsort(descending=True)[:5].expand(len(truth), 5)
    values = torch.linspace(1, 0, 5).expand(len(truth), 5)
    metrics = Metrics(["P@1", "P@5", "R@5", "nDCG@5", "PSP@5"], num_labels=len(names), propensities=propensities)
    for start in range(0, 6000, 2500):
        part = slice(start, start + 2500)
        metrics.update(TopScores(values[part], common[part], len(names)), truth[part])
    found = metrics.compute()
    assert found["P@1"] == pytest.approx(frequency.max().item() / 6000)
    assert found["P@5"] == pytest.approx(frequency.sort().values[-5:].sum().item() / 30000)
    assert 0 < found["PSP@5"] < found["P@5"] < found["R@5"] * 2
    best = Metrics(["PSP@5", "nDCG@5"], num_labels=len(names), propensities=propensities)
    rarest = [sorted(row, key=lambda label: propensities[label].item())[:5] for row in truth.lists()]
    padded = np.full((6000, 5), -1)
    for row, labels in enumerate(rarest):
        padded[row, : len(labels)] = labels
    best.update(TopScores(torch.linspace(1, 0.5, 5).repeat(6000, 1), torch.from_numpy(padded), len(names)), truth)
    assert best.compute() == pytest.approx({"PSP@5": 1.0, "nDCG@5": 1.0})
