"""The linear engines on the CPU against dense float64 scores."""

import pytest
import torch

from engines.linear.oracle import check_problem, hostile_problems, kept_sizes, made_up
from engines.oracle import all_terms
from manyhot.engines.linear import plain
from manyhot.engines.linear.problem import LinearProblem
from manyhot.engines.native import linear as native_linear

ENGINES = [
    pytest.param(plain, id="plain"),
    pytest.param(
        native_linear, id="native", marks=pytest.mark.skipif(not native_linear.available()[0], reason="engine not built")
    ),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", range(8))
@pytest.mark.parametrize("bias", [False, True])
def test_sides_and_gradients_are_those_of_dense_scores(engine, kind, bias):
    generator = torch.Generator().manual_seed(kind)
    terms = all_terms(generator, 6, 70)[kind]
    for kept in kept_sizes(70, 32):
        problem = LinearProblem(*made_up(generator, 6, 70, 5, bias=bias), terms, 32, kept)
        check_problem(engine, problem, generator)


@pytest.mark.parametrize("engine", ENGINES)
def test_hostile_scores_lose_nothing(engine):
    generator = torch.Generator().manual_seed(0)
    for name, *parts in hostile_problems(generator):
        for kept in kept_sizes(parts[1].shape[0], 16):
            try:
                check_problem(engine, LinearProblem(*parts, 16, kept), generator)
            except AssertionError as error:
                raise AssertionError(f"{name}, {kept} labels kept") from error


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_summed_in_float32(engine, dtype):
    generator = torch.Generator().manual_seed(0)
    terms = all_terms(generator, 6, 70)[5]
    hidden, weight, bias = (part.to(dtype) for part in made_up(generator, 6, 70, 5, spread=0.3))
    check_problem(engine, LinearProblem(hidden, weight, bias, terms, 32, 70), generator)


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_of_another_type_are_cast_chunk_by_chunk(engine):
    generator = torch.Generator().manual_seed(0)
    terms = all_terms(generator, 6, 70)[5]
    hidden, weight, bias = made_up(generator, 6, 70, 5, spread=0.3)
    problem = LinearProblem(hidden.bfloat16(), weight, bias, terms, 32, 0)
    check_problem(engine, problem, generator)
    made = engine.gradient(problem, engine.sums(problem)[2], (torch.ones(6), torch.ones(6)), (True, True, True))
    assert made[1].dtype == torch.float32


@pytest.mark.parametrize("engine", ENGINES)
def test_parts_that_are_not_contiguous_are_read_as_they_are(engine):
    generator = torch.Generator().manual_seed(0)
    terms = all_terms(generator, 6, 70)[3]
    hidden, weight, bias = made_up(generator, 6, 70, 5)
    parts = hidden.mT.contiguous().mT, weight.repeat(1, 2)[:, :5], bias.repeat_interleave(2)[::2]
    assert not any(part.is_contiguous() for part in parts)
    check_problem(engine, LinearProblem(*parts, terms, 32, 70), generator)


@pytest.mark.parametrize("engine", ENGINES)
def test_only_what_is_asked_for_is_made(engine):
    generator = torch.Generator().manual_seed(0)
    problem = LinearProblem(*made_up(generator, 6, 70, 5), all_terms(generator, 6, 70)[5], 32, 0)
    memory = engine.sums(problem)[2]
    for needs in ((True, False, False), (False, True, False), (False, False, True)):
        made = engine.gradient(problem, memory, (torch.ones(6), torch.ones(6)), needs)
        assert tuple(part is not None for part in made) == needs
