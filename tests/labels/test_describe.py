"""Label statistics against plain loops and published figures; leaks by content."""

import gzip
import itertools
from collections import Counter

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyhot import SparseLabels
from manyhot.labels.describe import LabelPair, describe_labels, find_leaks


@given(st.lists(st.lists(st.integers(0, 4), max_size=5, unique=True), min_size=1, max_size=12))
def test_the_numbers_are_those_of_a_loop_over_rows(lists):
    found = describe_labels(SparseLabels.from_lists(lists, num_labels=5), top_pairs=100)
    counts = Counter(label for row in lists for label in row)
    assert found.counts == tuple(counts[label] for label in range(5))
    assert found.cardinality == pytest.approx(sum(map(len, lists)) / len(lists))
    assert found.density == pytest.approx(found.cardinality / 5)
    assert found.empty_rows == sum(not row for row in lists)
    assert found.distinct_sets == len({frozenset(row) for row in lists})
    assert found.without_positives == tuple(label for label in range(5) if not counts[label])
    if counts:
        most = max(counts.values())
        assert found.imbalance == most / min(counts.values())
        assert found.mean_imbalance == pytest.approx(np.mean([most / count for count in counts.values()]))
    pairs = Counter(pair for row in lists for pair in itertools.combinations(sorted(row), 2))
    assert {(pair.first, pair.second): pair.count for pair in found.pairs} == dict(pairs)
    for pair in found.pairs:
        assert pair.lift == pytest.approx(pair.count * len(lists) / (counts[pair.first] * counts[pair.second]))
    assert [pair.count for pair in found.pairs] == sorted(pairs.values(), reverse=True)


def test_unknown_entries_are_left_out():
    labels = torch.tensor([[1, 1], [1, 0]])
    found = describe_labels(labels, where=torch.tensor([[True, False], [True, True]]), names=["a", "b"])
    assert (found.counts, found.density, found.without_positives) == ((2, 0), pytest.approx(2 / 3), ("b",))
    assert found.pairs == ()


def test_names_must_fit():
    with pytest.raises(ValueError, match="one name per label, 2; got 1"):
        describe_labels(torch.eye(2), names=["a"])
    with pytest.raises(ValueError, match=r"\[R, L\]"):
        describe_labels(torch.ones(2))


def test_yeast_has_its_published_statistics(data_folder):
    lists = []
    for part in ("train", "test"):
        with gzip.open(data_folder / "yeast" / f"yeast-{part}.arff.gz", "rt") as file:
            rows = (line.strip() for line in file)
            lists += [row.split(",")[103:] for row in rows if row and row[0] not in "@%"]
    found = describe_labels(torch.tensor([[int(value) for value in row] for row in lists]))
    assert (found.rows, found.labels, found.distinct_sets) == (2417, 14, 198)
    assert round(found.cardinality, 3) == 4.237
    assert round(found.density, 3) == 0.303


def test_leaks_are_found_by_content_whatever_holds_it():
    assert find_leaks(["x", "y", "y"], ["y", "z", "y "]).pairs == ((0, 1),)
    train = np.array([[0.0, 1.5], [2.0, 0.0]])
    test = np.array([[2.0, -0.0], [3.0, 0.0]])
    for make in (torch.from_numpy, np.asarray, scipy.sparse.csr_array, lambda x: torch.from_numpy(x).float()):
        assert find_leaks(make(train), make(test)).pairs == ((0, 1),)
    assert find_leaks(train, torch.from_numpy(test).float()).share == 0.5
    assert find_leaks([], []).share == 0.0


def test_what_is_neither_text_nor_features_is_refused():
    with pytest.raises(TypeError, match=r"`test_rows` must be texts or features.*row 1 is int"):
        find_leaks(["a"], ["a", 3])
    with pytest.raises(ValueError, match="shape"):
        find_leaks(np.zeros(3), np.zeros((1, 3)))


def test_pairs_of_very_many_labels_are_found_among_the_frequent_ones_in_little_memory():
    import tracemalloc

    rows = [list(range(5000)) for _ in range(20)] + [[4000, 4500]] * 30 + [[7]] * 5
    labels = SparseLabels.from_lists(rows, num_labels=5000)
    tracemalloc.start()
    found = describe_labels(labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.pairs[0] == LabelPair(4000, 4500, 50, 50 * 55 / (50 * 50))
    assert peak < 200 * 2**20
