"""Linear classifiers solved label by label: the float64 plain form, any number of threads, any rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from manyhot.engines.tree import plain
from manyhot.engines.tree.problem import BLOCK, Rows
from manyhot.labels.sparse import SparseLabels
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.linear.solver import Job, OneVsRest, square_length


def problem(rows=60, width=30, labels=5, *, seed=0):
    """Sparse rows of length 1 and labels that depend on them."""
    draw = np.random.default_rng(seed)
    dense = draw.random((rows, width)) * (draw.random((rows, width)) < 0.2)
    dense[np.arange(rows), draw.integers(0, width, rows)] = 1.0
    matrix = sparse.csr_matrix((dense / np.linalg.norm(dense, axis=1, keepdims=True)).astype(np.float32))
    truth = matrix @ draw.normal(size=(width, labels)) > 0.3
    return TrainingRows(matrix, SparseLabels.from_dense(torch.from_numpy(truth)))


def solved(rows, job=None, **given):
    solver = OneVsRest(rows, **{"passes": 4, "seed": 1, "threads": 1, **given})
    return next(solver.solve([job or Job(np.arange(len(rows)), 0.5)]))


@pytest.mark.parametrize("labels", [1, 5, BLOCK + 3])
def test_weights_are_those_of_the_plain_form_in_float64(labels):
    rows = problem(labels=labels)
    picked = np.arange(0, len(rows), 2)
    solver = OneVsRest(rows, passes=4, seed=1, threads=1)
    found = solved(rows, Job(picked, 0.5))
    for start in solver.starts:
        wanted = plain.solve(solver._problem(Job(picked, 0.5), start))
        own = slice(start, start + len(wanted.bias))
        np.testing.assert_allclose(found.weight[:, own], wanted.dense(30), rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(found.bias[own], wanted.bias, rtol=2e-4, atol=2e-5)


def test_many_passes_reach_the_optimum_of_the_primal_problem():
    rows, cost = problem(), 0.5
    weight, bias = (part.double().requires_grad_() for part in solved(rows, passes=400))
    signs = 2.0 * rows.labels.dense(torch.float64) - 1
    scores = torch.from_numpy(rows.inputs.toarray()).double() @ weight + bias
    loss = (weight**2).sum() / 2 + (bias**2).sum() / 2 + cost * ((1 - signs * scores).clamp(min=0) ** 2).sum()
    loss.backward()
    assert float(weight.grad.abs().max()) < 1e-3
    assert float(bias.grad.abs().max()) < 1e-3


def test_the_number_of_threads_and_of_jobs_changes_no_bit():
    rows = problem(labels=BLOCK + 3)
    jobs = [Job(np.arange(len(rows)), cost) for cost in (0.25, 1.0)] + [Job(np.arange(30), 0.5)]
    one, two = ([*OneVsRest(rows, passes=3, seed=0, threads=threads).solve(jobs)] for threads in (1, 7))
    for first, second, job in zip(one, two, jobs, strict=True):
        alone = solved(rows, job, passes=3, seed=0)
        for a, b, c in zip(first, second, alone, strict=True):
            assert torch.equal(a, b)
            assert torch.equal(a, c)


def test_a_row_that_weighs_two_counts_like_two_rows_and_one_that_weighs_zero_like_none():
    rows = problem(20)
    picked = np.concatenate([np.arange(20), np.arange(10)])
    twice = solved(rows.take(picked), passes=300)
    weights = torch.ones(20)
    weights[:10] = 2
    weighed = solved(replace(rows, sample_weight=weights), passes=300)
    torch.testing.assert_close(twice.weight, weighed.weight, rtol=1e-3, atol=1e-3)
    weights[:10], weights[10:] = 1, 0
    torch.testing.assert_close(
        solved(replace(rows, sample_weight=weights), passes=300).weight,
        solved(rows, Job(np.arange(10), 0.5), passes=300).weight,
        rtol=1e-3,
        atol=1e-3,
    )


def test_a_larger_cost_fits_the_rows_more_closely():
    rows = problem()
    signs = 2.0 * rows.labels.dense(torch.float32) - 1
    inputs = torch.from_numpy(rows.inputs.toarray())

    def error(cost):
        weight, bias = solved(rows, Job(np.arange(len(rows)), cost), passes=50)
        return float((1 - signs * (inputs @ weight + bias)).clamp(min=0).square().sum())

    assert error(4.0) < error(0.5) < error(0.05)


@pytest.mark.parametrize("factor", [1.0, 4.0, 0.25])
def test_longer_rows_get_smaller_costs(factor):
    rows = problem()
    longer = TrainingRows(rows.inputs * np.float32(factor), rows.labels)
    assert square_length(Rows.of(longer.inputs)) == factor**2
    own = OneVsRest(longer, passes=1, seed=0, threads=1)._problem(Job(np.arange(len(rows)), 0.5), 0)
    assert (own.pos_cost, own.neg_cost) == (0.5 / factor**2, 0.5 / factor**2)


def test_empty_rows_have_no_length():
    empty = sparse.csr_matrix((3, 2), dtype=np.float32)
    assert square_length(Rows.of(empty)) == 1.0
    assert square_length(Rows.of(sparse.csr_matrix(np.array([[0, 0], [3, 1]], dtype=np.float32)))) == 8.0
