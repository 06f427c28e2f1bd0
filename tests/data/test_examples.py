"""Examples keep inputs, labels and names together through every cut and join."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from manyhot import SparseLabels
from manyhot.data.examples import Examples, Source, concatenate_examples
from manyhot.data.files.input_file import fingerprint


def make(label_sets, names, **parts):
    numbers = [[names.index(name) for name in row] for row in label_sets]
    parts = parts or {"texts": [f"text {row}" for row in range(len(label_sets))]}
    return Examples(SparseLabels.from_lists(numbers, num_labels=len(names)), tuple(names), **parts)


ROWS = make([["a"], ["b", "c"], []], ["a", "b", "c"], texts=["one", "two", "three"], ids=["1", "2", "3"])


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        (1, ["two"]),
        (-1, ["three"]),
        (slice(1, None), ["two", "three"]),
        ([2, 0], ["three", "one"]),
        (torch.tensor([2, 2]), ["three", "three"]),
        (np.asarray([True, False, True]), ["one", "three"]),
        (torch.tensor([False, True, False]), ["two"]),
        ([], []),
    ],
)
def test_rows_are_picked_together(rows, texts):
    picked = ROWS[rows]
    assert picked.texts == texts
    assert [ROWS.texts[int(name) - 1] for name in picked.ids] == texts
    assert picked.label_sets() == [ROWS.label_sets()[int(name) - 1] for name in picked.ids]


@given(
    label_sets=st.lists(st.sets(st.sampled_from("abcdef")), min_size=1, max_size=8),
    wanted=st.lists(st.sampled_from("abcdefgh"), unique=True),
)
def test_relabelling_keeps_what_is_wanted_and_counts_the_rest(label_sets, wanted):
    again = make([sorted(row) for row in label_sets], list("abcdef")).with_labels(wanted)
    assert again.label_names == tuple(wanted)
    assert [set(row) for row in again.label_sets()] == [row & set(wanted) for row in label_sets]
    dropped = [name for row in label_sets for name in row - set(wanted)]
    assert dict(again.unseen) == {name: dropped.count(name) for name in dropped}
    assert again.unknown is None


def test_labels_that_have_columns_are_unknown_where_a_file_lacks_the_column():
    from dataclasses import replace

    unknown = SparseLabels.from_lists([[1], [], []], num_labels=3)
    columns = replace(ROWS, absent="unknown", unknown=unknown)
    again = columns.with_labels(["c", "z", "b"])
    assert again.labels.lists() == [[], [0, 2], []]
    assert again.unknown.lists() == [[1, 2], [1], [1]]


def test_joined_examples_are_their_parts():
    other = make([["z", "a"]], ["z", "a"], texts=["four"], ids=["4"])
    both = concatenate_examples([ROWS, other])
    assert both.label_names == ("a", "b", "c", "z")
    assert both.label_sets() == [["a"], ["b", "c"], [], ["a", "z"]]
    assert both.texts == ["one", "two", "three", "four"]
    assert both.ids == ["1", "2", "3", "4"]


@pytest.mark.parametrize("sparse", [False, True])
def test_features_are_joined_by_name(sparse):
    wrap = csr_matrix if sparse else np.asarray
    one = make([["a"]], ["a"], features=wrap(np.float32([[1, 2]])), feature_names=("f", "g"))
    two = make([["a"]], ["a"], features=wrap(np.float32([[3, 4]])), feature_names=("g", "h"))
    both = concatenate_examples([one, two])
    assert both.feature_names == ("f", "g", "h")
    assert (both.features.toarray() if sparse else both.features).tolist() == [[1, 2, 0], [0, 3, 4]]


def test_features_without_names_are_joined_by_number():
    one = make([["a"]], ["a"], features=csr_matrix(np.float32([[1, 2]])))
    two = make([["a"]], ["a"], features=csr_matrix(np.float32([[3, 4, 5]])))
    assert concatenate_examples([one, two]).features.toarray().tolist() == [[1, 2, 0], [3, 4, 5]]
    assert one.with_features(1).features.toarray().tolist() == [[1]]
    assert one.with_features(3).features.toarray().tolist() == [[1, 2, 0]]


def test_images_are_picked_and_joined():
    images = torch.arange(3.0).reshape(3, 1, 1, 1)
    scenes = make([["a"], [], []], ["a"], images=images)
    assert concatenate_examples([scenes[[2]], scenes[:1]]).images.flatten().tolist() == [2, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"texts": None}, "one of texts, features and images must be given"),
        ({"features": np.zeros((3, 1))}, "one of texts, features and images"),
        ({"texts": ["one"]}, "`texts` must have one row per row of `labels`, 3; got 1"),
        ({"ids": ["1"]}, "`ids` must have one row"),
        ({"label_names": ("a",)}, "one name per label, 3; got 1"),
        ({"unknown": SparseLabels.from_lists([[], [], []], num_labels=2)}, "`unknown` must have 3 labels"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change, message):
    from dataclasses import replace

    with pytest.raises(ValueError, match=message):
        replace(ROWS, **change)


def test_other_misuse_is_refused():
    features = make([["a"]], ["a"], features=np.float32([[1, 2]]), feature_names=("f", "g"))
    unnamed = make([["a"]], ["a"], features=np.float32([[1, 2]]))
    with pytest.raises(ValueError, match="'a' occurs twice"):
        ROWS.with_labels(["a", "b", "a"])
    with pytest.raises(ValueError, match="one kind of input"):
        concatenate_examples([ROWS, features])
    with pytest.raises(ValueError, match="either all parts must have feature names, or none"):
        concatenate_examples([features, unnamed])
    with pytest.raises(ValueError, match="at least one"):
        concatenate_examples([])
    with pytest.raises(ValueError, match="they are texts"):
        ROWS.with_features(3)
    with pytest.raises(ValueError, match="give the number"):
        unnamed.with_features(["f"])
    with pytest.raises(IndexError):
        ROWS[3]


def test_sources_follow_the_rows():
    from dataclasses import replace

    one, two = (replace(ROWS, source=(Source(name, "csv"),)) for name in "ab")
    assert [source.path for source in concatenate_examples([one, two])[:1].source] == ["a", "b"]


def test_fingerprints_tell_files_apart(tmp_path):
    paths = []
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / "a.csv")
        paths[-1].write_text(folder)
    found = fingerprint(paths)
    assert set(found) == {"a.csv", str(paths[1])}
    assert len(set(found.values())) == 2
