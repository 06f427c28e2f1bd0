"""Tuning: the cut is the best of all cuts, by brute force; shrinkage keeps rare labels from flooding real data."""

import gzip
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyhot import LinearScores, SparseLabels, encode_label_sets, label_names
from manyhot.decisions.rule import DecisionRule, decide
from manyhot.decisions.tune import tune_rule
from manyhot.decisions.tuning import floor

INF = math.inf
OBJECTIVES = ("micro-F1", "macro-F1", "MLC-F1", "SubACC", "jaccard", "hamming-error")


def measure(objective, predicted, labels, where=None):
    """The objective from its definition, in NumPy."""
    predicted, labels = predicted.numpy(), labels.bool().numpy()
    where = np.ones_like(labels) if where is None else where.numpy()
    predicted, labels = predicted & where, labels & where

    def f1(axis, empty):
        both, total = (predicted & labels).sum(axis), predicted.sum(axis) + labels.sum(axis)
        return np.mean(np.where(total > 0, 2 * both / np.maximum(total, 1), empty))

    if objective == "micro-F1":
        return f1(None, 0.0)
    if objective == "macro-F1":
        return f1(0, 0.0)
    if objective == "MLC-F1":
        return f1(1, 1.0)
    if objective == "SubACC":
        return (predicted == labels).all(axis=1).mean()
    if objective == "jaccard":
        union = (predicted | labels).sum(axis=1)
        return np.mean(np.where(union > 0, (predicted & labels).sum(axis=1) / np.maximum(union, 1), 1.0))
    return (predicted != labels).sum() / where.sum()


def all_cuts(scores):
    values = sorted({x for x in scores.flatten().tolist() if math.isfinite(x)})
    return [x - 0.5 for x in values] + [99.0]


def best_by_force(objective, scores, labels, where=None):
    values = [measure(objective, scores > cut, labels, where) for cut in all_cuts(scores)]
    return min(values) if objective == "hamming-error" else max(values)


@st.composite
def problems(draw, max_rows=7, max_labels=4):
    rows, labels = draw(st.integers(1, max_rows)), draw(st.integers(1, max_labels))
    values = draw(st.lists(st.integers(-4, 4), min_size=rows * labels, max_size=rows * labels))
    truth = draw(st.lists(st.booleans(), min_size=rows * labels, max_size=rows * labels))
    return torch.tensor(values, dtype=torch.float32).reshape(rows, labels), torch.tensor(truth).reshape(rows, labels)


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(problem=problems(), data=st.data())
def test_no_cut_for_all_labels_is_better_than_the_tuned_one(objective, problem, data):
    scores, labels = problem
    where = None
    if data.draw(st.booleans()):
        flags = data.draw(st.lists(st.booleans(), min_size=scores.numel(), max_size=scores.numel()))
        where = torch.tensor(flags).reshape(scores.shape)
        where[0, 0] = True
    tuned = tune_rule(scores, labels, objective=objective, where=where, folds=0)
    wanted = best_by_force(objective, scores, labels, where)
    assert tuned.value == pytest.approx(wanted, abs=1e-12)
    assert measure(objective, decide(scores, tuned.rule, where=where), labels, where) == pytest.approx(wanted, abs=1e-12)
    assert tuned.baseline == pytest.approx(measure(objective, scores > 0, labels, where), abs=1e-12)
    sparse = tune_rule(scores, SparseLabels.from_dense(labels), objective=objective, where=where, folds=0)
    assert sparse.rule == tuned.rule


@pytest.mark.parametrize("objective", ["micro-F1", "macro-F1", "hamming-error"])
@given(problem=problems(max_rows=4, max_labels=3))
def test_no_choice_of_a_cut_per_label_is_better_than_the_tuned_one(objective, problem):
    scores, labels = problem
    tuned = tune_rule(scores, labels, objective=objective, per_label=True, shrink=0, flood=INF, folds=0)
    options = [all_cuts(scores[:, [label]]) for label in range(scores.shape[1])]
    values = [measure(objective, scores > torch.tensor(cuts), labels) for cuts in itertools.product(*options)]
    wanted = min(values) if objective == "hamming-error" else max(values)
    assert tuned.value == pytest.approx(wanted, abs=1e-12)
    assert measure(objective, decide(scores, tuned.rule), labels) == pytest.approx(wanted, abs=1e-12)


def random_problem(rows=600, labels=12, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    rates = torch.linspace(0.01, 0.4, labels)
    truth = torch.rand(rows, labels, generator=generator) < rates
    scores = 1.5 * torch.randn(rows, labels, generator=generator, dtype=dtype) + 2.5 * truth + 2 * (rates - 1)
    return scores, truth


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_no_grid_beats_the_tuned_cut_on_continuous_scores(objective, dtype):
    scores, labels = random_problem(dtype=torch.float64)
    scores = scores.to(dtype)
    tuned = tune_rule(scores, labels, objective=objective, folds=0)
    sign = -1 if objective == "hamming-error" else 1
    grid = max(sign * measure(objective, scores > cut, labels) for cut in torch.linspace(-6, 4, 1000).tolist())
    assert sign * tuned.value >= grid - 1e-12
    assert tuned.value == pytest.approx(measure(objective, decide(scores, tuned.rule), labels), abs=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(4))
def test_a_floor_from_some_rows_changes_no_cut(objective, seed, monkeypatch):
    scores, labels = random_problem(rows=400, labels=7, seed=seed)
    scores = (scores * 4).round() / 4 if seed % 2 else scores
    whole = tune_rule(scores, labels, objective=objective, folds=0)
    monkeypatch.setattr(floor, "SAMPLED", 100)
    looks = []
    monkeypatch.setattr(
        floor.Search, "bisect", lambda search, *most, own=floor.Search.bisect: looks.append(search) or own(search, *most)
    )
    assert tune_rule(scores, labels, objective=objective, folds=0) == whole
    assert len(looks[0].data.scores) < 400  # the sample


def test_cuts_lie_midway_between_scores_and_never_split_equal_ones():
    scores = torch.tensor([[3.0], [2.0], [2.0], [-1.0]])
    labels = torch.tensor([[1], [1], [0], [0]])
    assert tune_rule(scores, labels, folds=0).rule.threshold == 0.5
    assert tune_rule(scores, labels, folds=0, per_label=True, shrink=0, flood=INF).rule.threshold == (0.5,)


def test_neighbouring_floats_are_told_apart():
    low = torch.tensor(0.1)
    high = low.nextafter(torch.tensor(1.0))
    scores = torch.stack([low, high]).reshape(2, 1)
    tuned = tune_rule(scores, torch.tensor([[0], [1]]), objective="SubACC", folds=0)
    assert tuned.value == 1.0
    assert decide(scores, tuned.rule).tolist() == [[False], [True]]


def test_infinite_and_missing_scores_are_taken_for_what_they_are():
    scores = torch.tensor([[INF, -INF], [math.nan, 1.0], [0.5, math.nan]])
    labels = torch.tensor([[1, 0], [0, 1], [0, 1]])
    for objective in OBJECTIVES:
        tuned = tune_rule(scores, labels, objective=objective, folds=0)
        assert tuned.value == pytest.approx(best_by_force(objective, scores, labels))
        assert math.isfinite(tuned.rule.threshold)


def test_labels_without_positives_and_data_without_any_get_finite_cuts():
    scores, labels = random_problem()
    labels[:, 3] = False
    cuts = tune_rule(scores, labels, per_label=True, folds=0).rule.threshold
    assert all(math.isfinite(cut) for cut in cuts)
    nothing = tune_rule(scores, torch.zeros_like(labels), objective="hamming-error", folds=0)
    assert nothing.value == 0.0
    assert not decide(scores, nothing.rule).any()


@pytest.mark.parametrize("objective", ["micro-F1", "macro-F1", "hamming-error"])
def test_much_shrinkage_gives_every_label_the_common_cut_and_little_its_own(objective):
    generator = torch.Generator().manual_seed(2)
    labels = torch.rand(1000, 5, generator=generator) < 0.2
    scores = torch.randn(1000, 5, generator=generator) + 3 * labels + torch.linspace(-4, 4, 5)
    common = tune_rule(scores, labels, objective=objective, folds=0).rule.threshold
    far = torch.tensor(
        tune_rule(scores, labels, objective=objective, per_label=True, shrink=1e9, flood=INF, folds=0).rule.threshold
    )
    near = torch.tensor(tune_rule(scores, labels, objective=objective, per_label=True, shrink=1, folds=0).rule.threshold)
    assert (far - common).abs().max() < 0.05
    assert near[-1] - near[0] > 6


def test_no_label_is_predicted_more_often_than_the_flood_bound_allows():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(1000, 20, generator=generator)
    labels = torch.zeros(1000, 20, dtype=torch.bool)
    labels[:4] = True
    for flood in (1.0, 3.0):
        rule = tune_rule(scores, labels, objective="macro-F1", per_label=True, shrink=0, flood=flood, folds=0).rule
        assert decide(scores, rule).sum(dim=0).max() <= flood * 5


def test_the_cross_fitted_value_tells_a_gain_from_a_fit_to_noise():
    generator = torch.Generator().manual_seed(3)
    labels = torch.rand(300, 40, generator=generator) < 0.03
    noise = torch.randn(300, 40, generator=generator)
    tuned = tune_rule(noise, labels, objective="macro-F1", per_label=True, shrink=0, flood=INF, seed=1)
    assert tuned.gain < (tuned.value - tuned.baseline) / 2
    scores, labels = random_problem(rows=2000)
    shifted = tune_rule(scores - 3, labels)
    assert shifted.helps
    assert shifted.recommended == shifted.rule
    assert shifted.gain == pytest.approx(shifted.cross_fitted - shifted.baseline)
    assert shifted.cross_fitted <= shifted.value


def test_it_says_so_where_tuning_would_not_help():
    scores, labels = random_problem(rows=2000)
    best = tune_rule(scores, labels, folds=0).rule.threshold
    again = tune_rule(scores - best, labels)
    assert again.helps is False
    assert "would not help" in again.message
    assert again.recommended == DecisionRule()
    assert tune_rule(scores, labels, folds=0).helps is None


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_cross_fitting_gives_each_row_to_a_rule_that_has_not_seen_it(objective):
    scores, labels = random_problem(rows=400)
    tuned = tune_rule(scores, labels, objective=objective, seed=5)
    again = tune_rule(scores, labels, objective=objective, seed=5)
    assert tuned == again
    sign = -1 if objective == "hamming-error" else 1
    assert sign * tuned.cross_fitted <= sign * tuned.value
    assert tuned.gain == pytest.approx(sign * (tuned.cross_fitted - tuned.baseline))


def test_lazy_scores_and_more_axes_are_taken():
    scores, labels = random_problem()
    lazy = LinearScores(torch.eye(12), scores.T.contiguous().T @ torch.eye(12))
    assert tune_rule(scores.reshape(2, 300, 12), labels.reshape(2, 300, 12), folds=0) == tune_rule(scores, labels, folds=0)
    dense = lazy.dense()
    assert tune_rule(lazy, dense > 0.5, folds=0) == tune_rule(dense, dense > 0.5, folds=0)


def test_calls_that_make_no_sense_are_refused():
    scores, labels = random_problem(rows=20)
    with pytest.raises(ValueError, match=r"`objective` must be one of.*Did you mean 'micro-F1'"):
        tune_rule(scores, labels, objective="micro-f1")
    with pytest.raises(ValueError, match="`per_label` must be False for SubACC"):
        tune_rule(scores, labels, objective="SubACC", per_label=True)
    with pytest.raises(ValueError, match="must be hard"):
        tune_rule(scores, labels * 0.5)
    with pytest.raises(ValueError, match="`folds` must be 0 or from 2"):
        tune_rule(scores, labels, folds=1)
    with pytest.raises(ValueError, match="`labels` must fit `logits`"):
        tune_rule(scores, SparseLabels.from_dense(labels[:5]))
    with pytest.raises(ValueError, match="`shrink` must be a number >= 0"):
        tune_rule(scores, labels, shrink=-1)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_many_blocks_give_what_one_block_gives(objective, monkeypatch):
    scores, labels = random_problem()
    settings = [{}]
    if objective in ("micro-F1", "macro-F1", "hamming-error"):
        settings.append({"per_label": True, "shrink": 0, "flood": INF})
    whole = [tune_rule(scores, labels, objective=objective, folds=3, **setting) for setting in settings]
    monkeypatch.setattr("manyhot.decisions.tuning.rows.BLOCK_ELEMENTS", 2000)
    assert whole == [tune_rule(scores, labels, objective=objective, folds=3, **setting) for setting in settings]


def test_the_prior_of_very_large_data_is_read_off_a_part_of_the_rows(monkeypatch):
    scores, labels = random_problem(rows=4000)
    whole = torch.tensor(tune_rule(scores, labels, per_label=True, shrink=50, folds=0).rule.threshold)
    monkeypatch.setattr("manyhot.decisions.tuning.rows.BLOCK_ELEMENTS", 12000)
    part = torch.tensor(tune_rule(scores, labels, per_label=True, shrink=50, folds=0).rule.threshold)
    assert (whole - part).abs().mean() < 0.2


@pytest.fixture(scope="module")
def cooking(data_folder):
    """Scores of a ridge regression on tf-idf, ``(validation scores, labels, test scores, labels)``: 736 labels, most rare."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    path = data_folder / "cooking_stackexchange" / "cooking.stackexchange.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.split() for line in file]
    sets = [[word for word in row if word.startswith("__label__")] for row in rows]
    texts = [" ".join(word for word in row if not word.startswith("__label__")) for row in rows]
    labels = encode_label_sets(sets, names=label_names(sets)).dense()
    parts = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:9000].split([3000, 3000, 3000])
    words = TfidfVectorizer(sublinear_tf=True, min_df=2)
    train = words.fit_transform([texts[i] for i in parts[0]])
    kernel = torch.from_numpy((train @ train.T).toarray())
    weights = torch.linalg.solve(kernel + 0.3 * torch.eye(len(kernel)), labels[parts[0]].double())
    scores = [torch.from_numpy((words.transform([texts[i] for i in part]) @ train.T) @ weights.numpy()) for part in parts[1:]]
    return scores[0].float() - 0.5, labels[parts[1]], scores[1].float() - 0.5, labels[parts[2]]


def test_a_cut_per_label_does_not_collapse_on_real_data_as_the_naive_one_does(cooking):
    scores, labels, held_scores, held_labels = cooking

    def held_out(objective, **settings):
        rule = tune_rule(scores, labels, objective=objective, folds=0, **settings).rule
        chosen = decide(held_scores, rule)
        return measure("micro-F1", chosen, held_labels), measure("macro-F1", chosen, held_labels)

    micro, _ = held_out("micro-F1")
    micro_each, _ = held_out("micro-F1", per_label=True)
    macro_micro, macro = held_out("macro-F1")
    each_micro, each = held_out("macro-F1", per_label=True)
    naive_micro, naive = held_out("macro-F1", per_label=True, shrink=0, flood=INF)
    assert micro > measure("micro-F1", held_scores > 0, held_labels) + 0.05
    assert micro_each > micro - 0.01
    assert each > macro - 0.005
    assert each_micro > 0.9 * macro_micro
    assert naive_micro < 0.5 * each_micro
    assert naive < each


def test_the_cross_fitted_value_is_near_what_held_out_data_give(cooking):
    scores, labels, held_scores, held_labels = cooking
    for per_label in (False, True):
        tuned = tune_rule(scores, labels, objective="macro-F1", per_label=per_label)
        held = measure("macro-F1", decide(held_scores, tuned.rule), held_labels)
        assert tuned.helps
        assert abs(tuned.cross_fitted - held) < 0.03
        assert tuned.value - held > tuned.cross_fitted - held


@pytest.mark.gpu
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("per_label", [False, True])
def test_a_gpu_tunes_as_the_cpu_does(objective, per_label):
    if per_label and objective not in ("micro-F1", "macro-F1", "hamming-error"):
        pytest.skip("only objectives that are sums over labels have a cut per label")
    scores, labels = random_problem()
    wanted = tune_rule(scores, labels, objective=objective, per_label=per_label)
    tuned = tune_rule(scores.cuda(), labels.cuda(), objective=objective, per_label=per_label)
    assert tuned.rule == wanted.rule
    assert tuned.cross_fitted == pytest.approx(wanted.cross_fitted)
