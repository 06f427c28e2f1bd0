"""Stratified splits: every row once, every label in its share, better than chance, and a seed that works."""

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyhot import SparseLabels
from manyhot.labels.split import stratified_folds, stratified_split


def long_tailed(rows, labels, cardinality=3.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rates = 1 / torch.arange(1, labels + 1).float()
    rates = (rates * cardinality / rates.sum()).clamp(max=0.5)
    return SparseLabels.from_dense(torch.rand(rows, labels, generator=generator) < rates)


def spread(labels, parts):
    """Mean over labels of the largest gap between a part's positives and its fair share."""
    counts = torch.stack([labels[part].dense().sum(dim=0) for part in parts]).double()
    shares = torch.tensor([len(part) for part in parts]).double() / len(labels)
    return (counts - counts.sum(dim=0) * shares[:, None]).abs().amax(dim=0).mean().item()


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=4, unique=True), min_size=2, max_size=30),
    st.integers(2, 6),
    st.integers(0, 99),
)
def test_every_row_is_in_one_fold_and_folds_are_of_one_size(lists, num_folds, seed):
    labels = SparseLabels.from_lists(lists, num_labels=6)
    num_folds = min(num_folds, len(lists))
    folds = stratified_folds(labels, num_folds=num_folds, seed=seed)
    assert torch.cat(folds).sort().values.tolist() == list(range(len(lists)))
    sizes = [len(fold) for fold in folds]
    assert max(sizes) - min(sizes) <= 1
    assert all((fold.diff() > 0).all() for fold in folds)


def test_every_label_gets_its_share_in_every_fold():
    labels = long_tailed(3000, 100)
    folds = stratified_folds(labels, num_folds=5, seed=1)
    counts = torch.stack([labels[fold].dense().sum(dim=0) for fold in folds]).double()
    fair = counts.mean(dim=0)
    assert ((counts - fair).abs() <= 2 + 0.05 * fair).all()
    assert (counts.amin(dim=0)[fair >= 2] > 0).all()


@pytest.mark.parametrize("test_size", [0.05, 0.2, 0.5])
def test_a_split_is_far_more_even_than_chance(test_size):
    labels = long_tailed(2000, 150)
    train, test = stratified_split(labels, test_size=test_size, seed=3)
    assert len(test) == round(2000 * test_size)
    assert torch.cat([train, test]).sort().values.tolist() == list(range(2000))
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))
    chance = [order[len(test) :], order[: len(test)]]
    assert spread(labels, [train, test]) < 0.5 * spread(labels, chance)


def test_rows_without_labels_are_spread_evenly():
    labels = SparseLabels.from_lists([[0]] * 30 + [[]] * 70, num_labels=1)
    for fold in stratified_folds(labels, num_folds=5):
        assert (fold >= 30).sum() == 14
    _, test = stratified_split(labels, test_size=0.1)
    assert (test >= 30).sum() == 7


def test_a_label_with_one_row_per_fold_is_in_each():
    labels = SparseLabels.from_lists([[0, i % 7] if i % 7 else [0] for i in range(70)] + [[7]] * 5, num_labels=8)
    for fold in stratified_folds(labels, num_folds=5, seed=4):
        assert labels[fold].dense()[:, 7].sum() == 1


def test_the_same_seed_gives_the_same_split_and_another_one_another():
    labels = long_tailed(300, 20)
    first = [fold.tolist() for fold in stratified_folds(labels, seed=7)]
    assert first == [fold.tolist() for fold in stratified_folds(labels, seed=7)]
    others = [[fold.tolist() for fold in stratified_folds(labels, seed=seed)] for seed in range(5)]
    assert all(first != other for other in others)
    assert stratified_split(labels, seed=0)[1].tolist() != stratified_split(labels, seed=1)[1].tolist()
    state = torch.get_rng_state()
    stratified_split(labels)
    assert torch.equal(state, torch.get_rng_state())


def test_dense_soft_and_sparse_labels_are_split_alike():
    labels = long_tailed(200, 10)
    wanted = stratified_split(labels)[1].tolist()
    assert stratified_split(labels.dense())[1].tolist() == wanted
    assert stratified_split(labels.dense().float() * 0.3)[1].tolist() == wanted


def test_forty_five_thousand_rows_of_four_thousand_labels_take_seconds():
    generator = torch.Generator().manual_seed(0)
    draws = (torch.rand(45000, 5, generator=generator) ** 3 * 4271).long()
    labels = SparseLabels.from_lists([sorted(set(row)) for row in draws.tolist()], num_labels=4271)
    start = time.process_time()
    stratified_split(labels)
    assert time.process_time() - start < 15


def test_sizes_that_cannot_be_are_refused():
    labels = torch.eye(4)
    for size in (0.0, 1.0, 1.5, -0.2, True):
        with pytest.raises(ValueError, match="`test_size` must be"):
            stratified_split(labels, test_size=size)
    with pytest.raises(ValueError, match="leave rows on both sides"):
        stratified_split(labels, test_size=0.01)
    for folds in (1, 5, 2.0):
        with pytest.raises(ValueError, match="`num_folds` must be from 2 to the number of rows, 4"):
            stratified_folds(labels, num_folds=folds)
    with pytest.raises(TypeError, match="tensor or SparseLabels"):
        stratified_folds([[1]])
    with pytest.raises(ValueError, match=r"\[R, L\]"):
        stratified_folds(torch.ones(3))
