"""The backward pass of the linear engine on CUDA: host side."""

from __future__ import annotations

import torch
from torch import Tensor

from manyhot.engines.linear.problem import Gradients, LinearProblem, Memory, Needs, Update, new_gradients
from manyhot.engines.triton.calls import blocks
from manyhot.engines.triton.linear.inputs import (
    COLS,
    WARPS,
    KernelInputs,
    Saved,
    aligned_parts,
    launch,
    multiply,
    new_buffer,
    tile_rows,
)
from manyhot.engines.triton.linear.product import tile_gradient, uses_tiles

# The tile of column sums.
SUMMED_ROWS, SUMMED = 64, 128


def gradient(
    problem: LinearProblem, memory: Memory, pulls: tuple[Tensor, Tensor | None], needs: Needs, update: Update | None = None
) -> Gradients:
    """Backward: a second pass over the labels; see ``LinearEngine``.

    After ``losses``, ``pulls`` is ``(grad, None)`` with the gradient by ``sum scale loss``, a scalar on the device.
    """
    inputs, remembered = KernelInputs(problem), Saved(*memory)  # type: ignore[arg-type]
    made = new_gradients(problem, needs, update)
    done = _from_terms(problem, remembered, pulls, made, update) if remembered.state.shape[0] == 5 else 0
    if done < problem.num_labels:
        _from_scores(problem, inputs, remembered, pulls, made, update, done)
    return made


def _from_terms(
    problem: LinearProblem,
    remembered: Saved,
    pulls: tuple[Tensor, Tensor | None],
    made: Gradients,
    update: Update | None,
) -> int:
    """Gradients from kept terms, which need only products; returns how many labels were done."""
    by_hidden, by_weight, by_bias = made
    stop, terms = problem.kept, remembered.scores
    assert terms is not None
    factor = (remembered.state[4] * pulls[0]).unsqueeze(1)
    scaled = (problem.hidden * factor).to(problem.hidden.dtype)
    if by_hidden is not None:
        for first, last in aligned_parts(stop):
            _accumulate(by_hidden, terms[:, first:last], problem.weight_of(first, last))
        by_hidden *= factor
    if by_weight is not None:
        for first, last in aligned_parts(stop):
            _product(terms[:, first:last].mT, scaled, by_weight[first:last])
    if by_bias is not None:
        _sum_columns(terms[:, :stop], factor.squeeze(1), by_bias[:stop])
    if update is not None:
        for first, last in problem.chunks():
            if problem.keeps(last):
                update.apply(problem._replace(hidden=scaled), first, last, terms[:, first:last])
    return stop


def _sum_columns(terms: Tensor, factors: Tensor | None, out: Tensor) -> None:
    """``out = sum over rows of factors terms`` in float32."""
    from manyhot.engines.triton.linear.gradient import column_sums_kernel

    numbers = (*terms.shape, terms.stride(0))
    programs = blocks(terms.shape[1], SUMMED)
    launch(column_sums_kernel, programs, (terms, factors, out), numbers, (factors is not None, SUMMED_ROWS, SUMMED), 4)


def _from_scores(
    problem: LinearProblem,
    inputs: KernelInputs,
    remembered: Saved,
    pulls: tuple[Tensor, Tensor | None],
    made: Gradients,
    update: Update | None,
    done: int,
) -> None:
    """Gradients of the labels from ``done`` on, chunk by chunk, from kept or recomputed scores."""
    by_hidden, by_weight, by_bias = made
    hidden, buffer, tiles = problem.hidden, new_buffer(problem), uses_tiles(problem, inputs)
    for start, stop in problem.chunks():
        if start < done:
            continue
        own, grad = problem.weight_of(start, stop), buffer[:, : stop - start]
        if remembered.scores is not None and problem.keeps(stop):
            _turn(problem, inputs, remembered, pulls, (start, stop), remembered.scores[:, start:stop], grad)
        elif tiles:
            tile_gradient(problem, inputs, remembered, pulls, (start, stop), grad)
        else:
            multiply(hidden, own, grad)
            _turn(problem, inputs, remembered, pulls, (start, stop), grad, grad)
        if by_hidden is not None:
            for first, last in aligned_parts(stop - start):
                _accumulate(by_hidden, grad[:, first:last], own[first:last])
        if by_weight is not None:
            for first, last in aligned_parts(stop - start):
                _product(grad[:, first:last].mT, hidden, by_weight[start + first : start + last])
        if by_bias is not None:
            _sum_columns(grad, None, by_bias[start:stop])
        if update is not None:
            update.apply(problem, start, stop, grad)


def _turn(
    problem: LinearProblem,
    inputs: KernelInputs,
    memory: Saved,
    pulls: tuple[Tensor, Tensor | None],
    chunk: tuple[int, int],
    scores: Tensor,
    grad: Tensor,
) -> None:
    """Turn the scores of a chunk into their gradient."""
    from manyhot.engines.triton.linear.gradient import gradient_kernel

    start, stop = chunk
    rows, across = tile_rows(problem), blocks(stop - start, COLS)
    labels, has_where, *weights = inputs.kinds
    constants = (labels, inputs.lean, has_where, problem.bias is not None, *weights, inputs.both)
    lists = (inputs.indices, inputs.values, memory.cuts)
    strides = (scores.stride(0), grad.stride(0), *inputs.strides)
    launch(
        gradient_kernel,
        blocks(problem.num_rows, rows) * across,
        (scores, grad, problem.bias, inputs.truth, *lists, inputs.where, inputs.pos, inputs.neg, memory.listed, memory.state,
         *pulls),
        (problem.num_rows, problem.num_labels, start, *strides, blocks(problem.num_labels, COLS), across, *inputs.numbers),
        (*constants, pulls[1] is not None, (stop - start) % COLS == 0, rows, COLS),
        WARPS,
    )  # fmt: skip


def _accumulate(total_: Tensor, a: Tensor, b: Tensor) -> None:
    """``total += a @ b`` in float32."""
    if a.dtype == torch.float32:
        total_.addmm_(a, b)
    else:
        torch.addmm(total_, a, b, out_dtype=torch.float32, out=total_)


def _product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """``out = a @ b`` in the type of ``out``."""
    if a.dtype == out.dtype:
        torch.mm(a, b, out=out)
    elif out.dtype == torch.float32:
        torch.mm(a, b, out_dtype=torch.float32, out=out)
    else:
        out.copy_(a @ b)
