"""The linear engines as registered torch operators, which ``torch.compile`` does not trace into.

The device decides which engine runs. An engine saves a list of tensors for backward; an empty tensor stands for None.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot.engines.linear.problem import Gradients, LinearProblem, Memory, Needs
from manyhot.engines.ops import TERMS, pack, unpack
from manyhot.engines.registry import ENTRIES, entry_for

_PROBLEM = f"Tensor hidden, Tensor weight, Tensor? bias, int chunk, int kept, {TERMS}"
_LIBRARY: Any = torch.library.Library("manyhot", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(f"linear_sums({_PROBLEM}) -> Tensor[]")
_LIBRARY.define(
    f"linear_gradient({_PROBLEM}, Tensor[] memory, Tensor grad_pos, Tensor grad_neg, bool by_hidden, bool by_weight,"
    " bool by_bias) -> Tensor[]"
)
_FIELDS = 15


def sums(problem: LinearProblem) -> tuple[Tensor, Tensor, Memory]:
    """``engine.sums`` as an operator."""
    pos, neg, *memory = torch.ops.manyhot.linear_sums(*_arguments(problem))
    return pos, neg, tuple(memory)


def gradient(problem: LinearProblem, memory: Memory, pulls: tuple[Tensor, Tensor], needs: Needs) -> Gradients:
    """``engine.gradient`` as an operator."""
    needs = (needs[0], needs[1], needs[2] and problem.bias is not None)
    made = iter(torch.ops.manyhot.linear_gradient(*_arguments(problem), list(memory), *pulls, *needs))
    first, second, third = (next(made) if needed else None for needed in needs)
    return first, second, third


def _arguments(problem: LinearProblem) -> tuple[Any, ...]:
    hidden, weight, bias, terms, chunk, kept = problem
    return hidden, weight, bias, chunk, kept, *pack(terms)


def _problem(arguments: Any) -> LinearProblem:
    hidden, weight, bias, chunk, kept, *terms = arguments
    return LinearProblem(hidden, weight, bias, unpack(tuple(terms)), chunk, kept)


def _register(engine: Any, key: str) -> None:
    def run_sums(*arguments: Any) -> list[Tensor]:
        problem = _problem(arguments)
        pos, neg, memory = engine.sums(problem)
        return [pos, neg, *(problem.hidden.new_empty(0) if part is None else part for part in memory)]

    def run_gradient(*arguments: Any) -> list[Tensor]:
        problem, (memory, *pulls, by_hidden, by_weight, by_bias) = _problem(arguments[:_FIELDS]), arguments[_FIELDS:]
        remembered = tuple(part if part.numel() else None for part in memory)
        made = engine.gradient(problem, remembered, tuple(pulls), (by_hidden, by_weight, by_bias))
        return [part for part in made if part is not None]

    _LIBRARY.impl("linear_sums", run_sums, key)
    _LIBRARY.impl("linear_gradient", run_gradient, key)


for _entry in ENTRIES:
    if _entry.linear is not None:
        _register(_entry.linear, _entry.dispatch_key)


def _fake_sums(*arguments: Any) -> list[Tensor]:
    problem = _problem(arguments)
    entry: Any = entry_for("auto", problem.hidden.device.type)
    rows = [problem.hidden.new_empty(problem.num_rows, dtype=torch.float32) for _ in range(2)]
    return [*rows, *entry.linear.empty_memory(problem)]


def _fake_gradient(*arguments: Any) -> list[Tensor]:
    problem, (by_hidden, by_weight, by_bias) = _problem(arguments[:_FIELDS]), arguments[-3:]
    made = []
    if by_hidden:
        made.append(problem.hidden.new_empty(problem.hidden.shape, dtype=torch.float32))
    if by_weight:
        made.append(problem.weight.new_empty(problem.weight.shape))
    if by_bias:
        made.append(problem.hidden.new_empty(problem.num_labels, dtype=torch.float32))
    return made


torch.library.register_fake("manyhot::linear_sums", _fake_sums, lib=_LIBRARY)
torch.library.register_fake("manyhot::linear_gradient", _fake_gradient, lib=_LIBRARY)
