"""SparseLabels: made from anything, the same as dense, and particular about what it is given."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyhot import SparseLabels

lists_of_labels = st.lists(st.lists(st.integers(0, 8), unique=True, max_size=9), max_size=7)


@given(lists=lists_of_labels)
def test_lists_dense_scipy_and_padded_say_the_same(lists):
    labels = SparseLabels.from_lists(lists, num_labels=9)
    dense = labels.dense()
    assert labels.lists() == [sorted(row) for row in lists]
    assert dense.shape == labels.shape == (len(lists), 9)
    assert dense.sum() == sum(map(len, lists))
    padded = torch.full((len(lists), 9), -1)
    for row, indices in enumerate(lists):
        padded[row, : len(indices)] = torch.tensor(indices, dtype=torch.int64)
    others = [
        SparseLabels.from_dense(dense),
        SparseLabels.from_dense(dense.float()),
        SparseLabels.from_scipy(scipy.sparse.csr_array(dense.numpy())),
        SparseLabels.from_scipy(scipy.sparse.coo_matrix(dense.numpy().astype(np.float64))),
        SparseLabels.from_padded(padded, num_labels=9),
    ]
    for other in others:
        assert other.lists() == labels.lists()
        assert other.num_labels == 9
        assert other.values is None


def test_soft_values_survive_every_way():
    dense = torch.tensor([[0.0, 0.25, 1.0], [0.5, 0.0, 0.0]])
    labels = SparseLabels.from_dense(dense)
    assert torch.equal(labels.dense(), dense)
    assert torch.equal(SparseLabels.from_scipy(scipy.sparse.csr_array(dense.numpy())).dense(), dense)
    listed = SparseLabels.from_lists([[2, 1], [0]], num_labels=3, values=[[1.0, 0.25], [0.5]])
    assert torch.equal(listed.dense(), dense)
    assert torch.equal(labels[torch.tensor([1, 0])].dense(), dense[[1, 0]])
    assert torch.equal(labels.columns(1, 3).dense(), dense[:, 1:3])
    assert torch.equal(labels.transposed().dense(), dense.T)


@given(lists=lists_of_labels.filter(len), data=st.data())
def test_rows_are_picked_like_a_tensors(lists, data):
    labels = SparseLabels.from_lists(lists, num_labels=9)
    dense = labels.dense()
    picked = data.draw(st.lists(st.integers(-len(lists), len(lists) - 1)))
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(lists), max_size=len(lists))))
    start, stop = data.draw(st.integers(0, 7)), data.draw(st.integers(0, 7))
    index = torch.tensor(picked, dtype=torch.int64)
    assert torch.equal(labels[index].dense(), dense[index])
    assert torch.equal(labels[mask].dense(), dense[mask])
    assert torch.equal(labels[start:stop].dense(), dense[start:stop])
    assert torch.equal(labels[:: -1 + 2].dense(), dense)
    assert labels[-1].tolist() == sorted(lists[-1])
    assert torch.equal(SparseLabels.collate([labels[start:stop], labels]).dense(), torch.cat([dense[start:stop], dense]))
    rows, columns = torch.meshgrid(torch.arange(len(lists)), torch.arange(9), indexing="ij")
    assert torch.equal(labels.contains(rows, columns), dense)


def test_no_rows_and_no_labels():
    empty = SparseLabels.from_lists([], num_labels=4)
    assert len(empty) == 0
    assert empty.dense().shape == (0, 4)
    nothing = SparseLabels.from_lists([[], []], num_labels=0)
    assert nothing.dense().shape == (2, 0)
    assert not nothing.contains(torch.tensor([0]), torch.tensor([0])).item()


def test_collating_hard_and_soft_keeps_both():
    hard, soft = SparseLabels.from_lists([[1]], num_labels=2), SparseLabels.from_dense(torch.tensor([[0.5, 0.0]]))
    assert torch.equal(SparseLabels.collate([hard, soft]).dense(), torch.tensor([[0.0, 1.0], [0.5, 0.0]]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SparseLabels.from_lists([[0], [5]], num_labels=5), r"\[0, 5\); got 5 in row 1"),
        (lambda: SparseLabels.from_lists([[-1]], num_labels=5), "got -1 in row 0"),
        (lambda: SparseLabels.from_lists([[1, 2, 1]], num_labels=5), "label 1 is repeated in row 0"),
        (lambda: SparseLabels.from_padded(torch.tensor([[3, 3, -1]]), num_labels=5), "label 3 is repeated in row 0"),
        (lambda: SparseLabels(torch.tensor([2, 1]), torch.tensor([0, 2]), 5), "label 1 is out of order in row 0"),
        (lambda: SparseLabels(torch.tensor([1]), torch.tensor([0, 2]), 5), "offsets` must increase from 0 to 1"),
        (lambda: SparseLabels(torch.tensor([1]), torch.tensor([0, 1]), -1), "num_labels` must be >= 0"),
        (lambda: SparseLabels(torch.tensor([1]), torch.tensor([], dtype=torch.int64), 3), "one more entry"),
        (lambda: SparseLabels.from_lists([[1]], num_labels=3, values=[[1.5]]), r"\[0, 1\]; got 1.5 in row 0"),
        (lambda: SparseLabels.from_lists([[1]], num_labels=3, values=[[0.5, 0.5]]), "one number for each"),
        (lambda: SparseLabels.from_padded(torch.zeros(2, 2), num_labels=3), "integer tensor"),
        (lambda: SparseLabels.from_dense(torch.zeros(2, 2, 2)), r"must be \[R, L\]"),
        (lambda: SparseLabels.from_dense(torch.tensor([[0, -1]])), "must not be negative; got -1"),
        (lambda: SparseLabels.from_dense(torch.tensor([[0.5, -0.5]])), "must not be negative"),
        (lambda: SparseLabels.collate([SparseLabels.from_lists([], num_labels=n) for n in (2, 3)]), "one `num_labels`"),
    ],
)
def test_bad_index_lists_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_wrong_types_are_named():
    with pytest.raises(TypeError, match="`indices` must be an int64 tensor"):
        SparseLabels(torch.tensor([1.0]), torch.tensor([0, 1]), 3)


def test_a_data_loader_collates_and_pins_where_it_can():
    from torch.utils.data import DataLoader

    labels = SparseLabels.from_lists([[i % 5] for i in range(10)], num_labels=5)
    rows = [labels[i : i + 1] for i in range(10)]
    batches = list(DataLoader(rows, batch_size=4, collate_fn=SparseLabels.collate))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert batches[0].lists() == [[0], [1], [2], [3]]


@pytest.mark.gpu
def test_moving_to_the_gpu_and_back():
    labels = SparseLabels.from_lists([[1], [0, 2]], num_labels=3).pin_memory()
    moved = labels.to("cuda", non_blocking=True)
    assert moved.device.type == "cuda"
    assert moved.rows.device.type == "cuda"
    assert moved.to("cpu").lists() == labels.lists()


@pytest.mark.parametrize("row", [[1.7], [0, 1.5], ["a"], [True], [None], [float("nan")]])
def test_what_is_no_label_number_is_refused_with_its_row(row):
    with pytest.raises(TypeError, match=r"from_lists: row 1 must list label numbers, whole numbers; got"):
        SparseLabels.from_lists([[0], row], num_labels=3)


def test_whole_floats_and_numpy_numbers_are_label_numbers():
    labels = SparseLabels.from_lists([[2.0, 0.0], np.array([1], dtype=np.uint8), []], num_labels=3)
    assert labels.lists() == [[0, 2], [1], []]


def test_lists_with_a_stride_are_laid_out_one_behind_the_other():
    table = torch.tensor([[0, 9], [2, 9], [1, 9]])
    labels = SparseLabels(table[:, 0], torch.tensor([[0, 0], [2, 0], [3, 0]])[:, 0], 4, values=torch.rand(3, 2)[:, 0])
    assert labels.lists() == [[0, 2], [1]]
    assert all(part.is_contiguous() for part in (labels.indices, labels.offsets, labels.values))


def test_lists_on_several_devices_are_an_error():
    indices, offsets = torch.tensor([0, 1]), torch.tensor([0, 2])
    with pytest.raises(ValueError, match="`offsets` must be on the device of `indices`, cpu; got meta"):
        SparseLabels(indices, offsets.to("meta"), 4, validate=False)
    with pytest.raises(ValueError, match="`values` must be on the device of `indices`, cpu; got meta"):
        SparseLabels(indices, offsets, 4, values=torch.ones(2, device="meta"), validate=False)
