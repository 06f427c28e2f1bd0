"""Decisions for whole label sets: the best of all sets is decided for, saved and read back, and tuned without looking ahead."""

from itertools import chain, combinations

import pytest
import torch

from manyhot import DecisionRule, LinearScores, SparseLabels, TopScores, decide, decide_sparse, tune_rule
from manyhot.decisions.set_values import SetValues
from manyhot.decisions.top_lists import decide_top

LABELS = 5
ALL_SETS = list(chain.from_iterable(combinations(range(LABELS), size) for size in range(LABELS + 1)))


def drawn(seed, *, listed=9, other=None):
    """Scores of some rows, and values of some of the sets."""
    draw = torch.Generator().manual_seed(seed)
    places = torch.randperm(len(ALL_SETS), generator=draw)[:listed].tolist()
    values = torch.randn(listed, generator=draw).abs().tolist()
    sets = SetValues(tuple(ALL_SETS[place] for place in places), tuple(values), -0.3 if other is None else other)
    return torch.randn(40, LABELS, generator=draw), sets


def best_of_all(scores, threshold, sets, allowed=lambda _: True):
    """The set with the highest sum and value, by trying all of them."""
    value = dict(zip(sets.sets, sets.values, strict=True))
    candidates = [own for own in ALL_SETS if allowed(own) and (own in value or sets.other > -torch.inf)]
    found = torch.zeros_like(scores, dtype=torch.bool)
    for row, own_scores in enumerate(scores.double()):
        totals = [float(sum(own_scores[i] - threshold for i in own)) + value.get(own, sets.other) for own in candidates]
        found[row, list(candidates[max(range(len(totals)), key=totals.__getitem__)])] = True
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("other", [-0.3, -2.0, -torch.inf])
def test_the_best_of_all_label_sets_is_decided_for(seed, other):
    scores, sets = drawn(seed, other=other)
    rule = DecisionRule(threshold=0.2, sets=sets)
    wanted = best_of_all(scores, 0.2, sets)
    assert torch.equal(decide(scores, rule), wanted)
    assert torch.equal(decide_sparse(scores, rule).dense(torch.bool), wanted)


def test_limits_on_the_number_of_labels_hold_for_listed_sets_and_for_others():
    scores, sets = drawn(3)
    rule = DecisionRule(threshold=0.2, sets=sets, min_labels=1, max_labels=2)
    assert torch.equal(decide(scores, rule), best_of_all(scores, 0.2, sets, lambda own: 1 <= len(own) <= 2))


def test_a_label_that_may_not_be_predicted_bars_every_set_that_has_it():
    scores, sets = drawn(1)
    where = torch.ones_like(scores, dtype=torch.bool)
    where[:, 2] = False
    found = decide(scores, DecisionRule(sets=sets), where=where)
    assert torch.equal(found, best_of_all(scores, 0.0, sets, lambda own: 2 not in own))
    scores[:, 2] = torch.nan
    assert torch.equal(decide(scores, DecisionRule(sets=sets)), found)
    scores[:, 2] = -torch.inf
    assert torch.equal(decide(scores, DecisionRule(sets=sets)), found)


def test_an_infinite_score_is_in_every_decision_that_can_have_it():
    scores, _ = drawn(2)
    scores[:, 1] = torch.inf
    sets = SetValues(((0,), (1, 3)), (5.0, 1.0), 0.0)
    assert bool(decide(scores, DecisionRule(sets=sets))[:, 1].all())


def test_values_of_nothing_are_the_threshold_alone():
    scores, sets = drawn(4)
    nothing = SetValues(sets.sets, (0.0,) * len(sets.sets), 0.0)
    assert torch.equal(decide(scores, DecisionRule(threshold=0.3, sets=nothing)), scores > 0.3)


def test_lazy_scores_decide_as_dense_ones_do_and_top_lists_are_refused():
    scores, sets = drawn(5)
    lazy = LinearScores(scores, torch.eye(LABELS))
    rule = DecisionRule(sets=sets)
    assert torch.equal(decide(lazy, rule), decide(scores, rule))
    with pytest.raises(ValueError, match="needs the scores of all labels"):
        decide_top(TopScores.from_dense(scores, k=5), rule)


def test_a_rule_with_sets_is_read_back_as_it_was_written():
    _, sets = drawn(6, other=-torch.inf)
    rule = DecisionRule(threshold=(0.1, 0.2, 0.3, 0.4, 0.5), sets=sets)
    assert DecisionRule.from_json(rule.to_json()) == rule
    assert not rule.by_threshold


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sets": ((0,), (0,)), "values": (0, 0)}, "must be distinct"),
        ({"sets": ((1, 0),), "values": (0,)}, "increasing label numbers"),
        ({"sets": ((0,),), "values": (0, 1)}, "one number per set"),
        ({"sets": ((0,),), "values": (0,), "other": 1.0}, "at most the least"),
    ],
)
def test_sets_that_contradict_themselves_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        SetValues(**given)


def test_sets_of_more_labels_than_there_are_scores_are_refused():
    with pytest.raises(ValueError, match="saved with this model"):
        decide(torch.zeros(2, 3), DecisionRule(sets=SetValues(((4,),), (0.0,))))


def paired(seed, rows=400):
    """Rows in which labels come in pairs, with scores that say so for one of the two only now and then."""
    draw = torch.Generator().manual_seed(seed)
    pair = torch.randint(0, 3, (rows,), generator=draw)
    labels = torch.zeros(rows, 6)
    for place in range(2):
        labels[torch.arange(rows), 2 * pair + place] = 1
    return labels + 0.7 * torch.randn(rows, 6, generator=draw) - 0.5, labels


def test_tuned_sets_are_right_more_often_on_rows_not_seen_than_a_threshold():
    scores, labels = paired(0)
    others, truth = paired(1)
    plain = tune_rule(scores, labels, objective="SubACC")
    tuned = tune_rule(scores, labels, objective="SubACC", sets=True)
    right = [float((decide(others, each.rule) == (truth > 0)).all(dim=1).float().mean()) for each in (plain, tuned)]
    assert right[1] > right[0] + 0.2
    assert tuned.helps
    assert abs(tuned.cross_fitted - right[1]) < 0.08


def test_a_row_s_own_set_does_not_speak_for_it():
    """Every row has a set of its own: none of them is known to the others, and listing them gains nothing."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.stack([torch.tensor([place >> bit & 1 for bit in range(6)]) for place in range(1, 64)]).float()
    scores = labels + 0.9 * torch.randn(63, 6, generator=draw) - 0.5
    plain = tune_rule(scores, labels, objective="SubACC", folds=0)
    tuned = tune_rule(scores, labels, objective="SubACC", sets=True, folds=0)
    assert torch.equal(decide(scores, tuned.rule), decide(scores, plain.rule)) or tuned.value <= plain.value + 0.05


def test_sets_of_other_rows_are_known_too():
    scores, labels = paired(0, rows=60)
    others = SparseLabels.from_lists([[5]] * 3, num_labels=6)
    tuned = tune_rule(scores, labels, objective="SubACC", sets=True, other_rows=others, folds=0)
    assert (5,) in tuned.rule.sets.sets


def test_sets_go_with_subset_accuracy_alone():
    scores, labels = paired(0, rows=60)
    with pytest.raises(ValueError, match="`sets` needs the objective SubACC"):
        tune_rule(scores, labels, objective="micro-F1", sets=True)
