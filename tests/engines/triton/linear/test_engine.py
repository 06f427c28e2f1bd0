"""The linear engine on CUDA: in the interpreter everywhere, on the device where there is one."""

import pytest
import torch

from engines.linear.oracle import check_problem, hostile_problems, kept_sizes, made_up
from engines.oracle import all_terms
from engines.triton.interpreted import check_interpreted
from manyhot.engines.linear.problem import LinearProblem
from manyhot.engines.triton.linear import engine

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.linear.test_engine import check_kinds, check_hostile
from manyhot.engines.triton.linear import backward, engine, inputs
for module in (backward, engine, inputs):
    module.COLS = 16
inputs.ROWS = 4
if sys.argv[2] == "hostile":
    check_hostile("cpu", torch.float32, 16)
else:
    check_kinds("cpu", torch.float32, [int(sys.argv[2])], 50, 16)
print("checked")
"""


def check_kinds(device, dtype, kinds, num_labels, chunk, rows=6):
    for kind in kinds:
        generator = torch.Generator().manual_seed(kind)
        terms = all_terms(generator, rows, num_labels)[kind]
        for kept in kept_sizes(num_labels, chunk):
            parts = made_up(generator, rows, num_labels, 8, bias=kept > 0, spread=0.3)
            parts = [part if part is None else part.to(dtype) for part in parts]
            check_problem(engine, LinearProblem(*parts, terms, chunk, kept), generator, device)


def check_hostile(device, dtype, chunk):
    generator = torch.Generator().manual_seed(0)
    for name, hidden, weight, bias, terms in hostile_problems(generator):
        for kept in kept_sizes(weight.shape[0], chunk):
            try:
                check_problem(
                    engine, LinearProblem(hidden.to(dtype), weight.to(dtype), bias, terms, chunk, kept), generator, device
                )
            except AssertionError as error:
                raise AssertionError(f"{name}, {kept} labels kept") from error


@pytest.mark.slow
@pytest.mark.parametrize("part", ["hostile", 0, 3, 5, 6, 7])
def test_sides_losses_and_gradients_are_those_of_dense_scores_in_the_interpreter(part):
    check_interpreted(INTERPRETED, part)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "kind"),
    [*((torch.float32, kind) for kind in range(8)), (torch.bfloat16, 0), (torch.bfloat16, 5), (torch.float16, 5)],
)
def test_sides_losses_and_gradients_are_those_of_dense_scores(dtype, kind):
    check_kinds("cuda", dtype, [kind], 9000, 4096, rows=37)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32])
def test_hostile_scores_lose_nothing(dtype):
    check_hostile("cuda", dtype, 2048)


@pytest.mark.gpu
def test_results_are_the_same_bit_by_bit_every_time():
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (part.cuda() for part in made_up(generator, 64, 20_000, 64, spread=0.1))
    terms = all_terms(generator, 64, 20_000)[5]
    terms = terms._replace(indices=terms.indices.cuda(), offsets=terms.offsets.cuda())
    for kept in (0, 20_000):
        problem = LinearProblem(hidden.bfloat16(), weight.bfloat16(), bias, terms, 4096, kept)
        first = None
        for _ in range(5):
            values, _, memory = engine.losses(problem, "split", 0.0, 1 / 64)
            made = (values, *engine.gradient(problem, memory, (torch.ones((), device="cuda"), None), (True, True, True)))
            first = made if first is None else first
            assert all(torch.equal(one, two) for one, two in zip(first, made, strict=True))
