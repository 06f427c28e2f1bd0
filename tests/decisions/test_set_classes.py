"""Classes of label sets give the same best set and value as a look at every set, and low scores do not widen the search."""

import math

import pytest
import torch

from manyhot.decisions.set_values import SetValues
from manyhot.decisions.tune import tune_rule
from manyhot.decisions.tuning import label_sets
from manyhot.decisions.tuning.rows import scored_rows
from manyhot.decisions.tuning.set_classes import SetClasses
from manyhot.labels.sparse import SparseLabels


def problem(seed, rows=80, labels=6):
    """Rows with few distinct sets, some of them of one row alone; a score is ``-inf`` now and then."""
    draw = torch.Generator().manual_seed(seed)
    known = torch.rand(9, labels, generator=draw) < 0.4
    truth = known[torch.randint(0, 9, (rows,), generator=draw)]
    truth[:15] = torch.rand(15, labels, generator=draw) < 0.5
    scores = truth + 0.8 * torch.randn(rows, labels, generator=draw) - 0.5
    scores[torch.rand(rows, labels, generator=draw) < 0.03] = -math.inf
    return scores, SparseLabels.from_dense(truth)


def looked_at_every_set(scores, own, sets, counts, cut, weight):
    """``(value, whether it is the row's own set)`` in plain Python; the own set counts one row less."""
    found = []
    for row, mine in zip(scores.double().tolist(), own.tolist(), strict=True):
        values = []
        for number, (members, count) in enumerate(zip(sets.lists(), counts.tolist(), strict=True)):
            left = count - (number == mine)
            total = sum((row[label] - cut for label in members), 0.0)
            values.append(total + weight * math.log(left) if left else -math.inf)
        best = max(values)
        found.append((best, values[mine] == best and best > -math.inf))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_classes_find_what_a_look_at_every_set_finds(seed):
    scores, labels = problem(seed)
    sets, counts, own = label_sets._distinct(labels)
    data = scored_rows("test", scores, labels, None)
    classes = SetClasses.of(data, own, sets, counts, 0.2)
    assert len(classes.sizes) < len(sets)
    for cut in (-0.7, 0.2, 0.5):
        for weight in (0.0, 0.25, 1.5):
            value, right = classes.at(cut, weight)
            wanted = looked_at_every_set(scores, own, sets, counts, cut, weight)
            assert value.tolist() == pytest.approx([each for each, _ in wanted], abs=1e-5)
            assert right.tolist() == [mine for _, mine in wanted]


def test_blocks_of_rows_do_not_change_the_sums(monkeypatch):
    scores, labels = problem(5)
    sets, counts, own = label_sets._distinct(labels)
    data = scored_rows("test", scores, labels, None)
    whole = SetClasses.of(data, own, sets, counts, 0.0)
    monkeypatch.setattr("manyhot.decisions.tuning.set_classes.BLOCK_ELEMENTS", 3 * len(sets))
    for first, second in zip(whole, SetClasses.of(data, own, sets, counts, 0.0), strict=True):
        assert first == pytest.approx(second, abs=1e-6)


def test_positives_with_very_low_scores_do_not_widen_the_search():
    scores, labels = problem(6, rows=400)
    usual = label_sets._spread(scores[labels.rows, labels.indices])
    lowered = scores.clone()
    lowered[labels.rows[::20], labels.indices[::20]] = -40.0
    hits = lowered[labels.rows, labels.indices]
    assert label_sets._spread(hits) < 2 * usual < float(hits[hits.isfinite()].std()) / 2
    assert label_sets._spread(torch.tensor([1.0])) == 1.0


def test_the_value_that_was_tuned_is_that_of_the_rule_on_rows_whose_sets_others_have():
    scores, labels = problem(7, rows=300)
    tuned = label_sets.set_values(scored_rows("test", scores, labels, None), labels)
    rule = tune_rule(scores, labels, objective="SubACC", sets=True, other_rows=labels, folds=0)
    assert isinstance(tuned.sets, SetValues)
    assert rule.value == pytest.approx(tuned.value, abs=0.02)
