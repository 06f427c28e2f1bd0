"""Bodies: sums over sparse rows with a gradient of the rows that occur, and the mean of several bodies as one."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.nn.functional import embedding_bag

from manyhot.training.rows.bodies.networks import NARROW, Columns, mean_hidden, mean_linear
from manyhot.training.rows.bodies.registry import make_body
from manyhot.training.rows.inputs.row_batches import take_rows

SHAPE = {"body": "bag", "width": 30, "num_labels": 5, "hidden": 4, "dropout": 0.0, "sparse": True, "activation": "none"}


def sparse_batch(rows=7, width=30, *, density=0.2, seed=0):
    matrix = sparse.random(rows, width, density=density, format="csr", random_state=np.random.default_rng(seed))
    return take_rows(matrix.astype(np.float32), slice(0, rows))


def test_the_gradient_of_a_sum_over_sparse_rows_is_that_of_torch_and_has_only_the_columns_that_occur():
    batch, columns = sparse_batch(), Columns(30, NARROW, sparse_gradient=True)
    torch.nn.init.normal_(columns.weight)
    pulled = torch.randn(7, NARROW)
    columns(batch).backward(pulled)
    found = columns.weight.grad
    other = columns.weight.detach().clone().requires_grad_()
    embedding_bag(
        batch.columns, other, batch.offsets, per_sample_weights=batch.values, mode="sum", include_last_offset=True
    ).backward(pulled)
    torch.testing.assert_close(found.to_dense(), other.grad)
    assert found.is_sparse
    assert found._indices()[0].tolist() == sorted(set(batch.columns.tolist()))


@pytest.mark.parametrize("out", [4, NARROW])
def test_a_batch_of_empty_rows_has_no_gradient_to_speak_of(out):
    columns = Columns(30, out, sparse_gradient=True)
    found = columns(take_rows(sparse.csr_matrix((3, 30), dtype=np.float32), slice(0, 3)))
    found.sum().backward()
    assert found.tolist() == [[0.0] * out] * 3
    assert columns.weight.grad.to_dense().count_nonzero() == 0


@pytest.mark.parametrize("activation", ["none", "relu"])
def test_the_mean_of_bodies_has_the_mean_of_their_logits(activation):
    bodies = [make_body({**SHAPE, "activation": activation}) for _ in range(3)]
    batch = sparse_batch()
    joined = mean_hidden(bodies)
    torch.testing.assert_close(joined(batch), torch.stack([body(batch) for body in bodies]).mean(dim=0))
    again = make_body({**SHAPE, "activation": activation, "hidden": joined.head.in_features})
    again.load_state_dict(joined.state_dict())
    torch.testing.assert_close(again(batch), joined(batch))


def test_the_mean_of_one_body_is_that_body():
    body = make_body(SHAPE)
    assert mean_hidden([body]) is body


def test_a_bag_without_activation_is_linear_in_its_rows():
    body = make_body(SHAPE)
    batch = sparse_batch()
    twice = batch._replace(values=2 * batch.values)
    nothing = batch._replace(values=0 * batch.values)
    torch.testing.assert_close(body(twice) - body(nothing), 2 * (body(batch) - body(nothing)))


def test_a_description_from_before_there_was_a_choice_has_an_activation():
    body = make_body({name: value for name, value in SHAPE.items() if name != "activation"})
    assert isinstance(body.activation, torch.nn.ReLU)


def test_the_mean_of_linear_bodies_has_the_mean_of_their_logits():
    bodies = [make_body({**SHAPE, "body": "linear"}) for _ in range(3)]
    for body in bodies:
        torch.nn.init.normal_(body.head.weight)
    batch = sparse_batch()
    torch.testing.assert_close(mean_linear(bodies)(batch), torch.stack([body(batch) for body in bodies]).mean(dim=0))
