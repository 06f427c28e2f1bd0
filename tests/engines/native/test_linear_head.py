"""Linear heads in C against dense float64 scores: every instruction set, shapes at the edges of tiles, panels and vectors."""

import pytest
import torch

from engines.linear.oracle import check_problem, hostile_problems, kept_sizes, made_up
from engines.oracle import all_terms
from manyhot.engines.linear.problem import LinearProblem
from manyhot.engines.native import calls, linear_head
from manyhot.engines.native import engine as native
from manyhot.engines.native import linear as native_linear

pytestmark = pytest.mark.skipif(not native.available()[0], reason="engine not built")


@pytest.fixture(params=native.variants())
def variant(request, monkeypatch):
    """The widest instruction set that the engine may use."""
    narrower = native.variants()[: native.variants().index(request.param) + 1]
    monkeypatch.setattr(calls, "variants", lambda: narrower)


def head(generator, rows, num_labels, size, kind=5, chunk=4096, kept=0):
    terms = all_terms(generator, rows, num_labels)[kind]
    problem = LinearProblem(*made_up(generator, rows, num_labels, size, spread=0.5), terms, chunk, kept)
    assert linear_head.serves(problem)
    return problem


@pytest.mark.parametrize("rows", [1, 3, 8, 17, 33, 65])
@pytest.mark.parametrize(("num_labels", "size"), [(1, 1), (15, 16), (130, 33), (601, 20)])
def test_rows_labels_and_sizes_need_not_fill_vectors(variant, rows, num_labels, size):
    generator = torch.Generator().manual_seed(rows)
    check_problem(native_linear, head(generator, rows, num_labels, size), generator)


@pytest.mark.parametrize("kind", range(8))
def test_all_terms_are_read_at_the_labels_of_their_tile(variant, kind):
    generator = torch.Generator().manual_seed(kind)
    for chunk, kept in ((4096, 0), (4096, 1500), (200, 0), (200, 600), (200, 1500)):
        check_problem(native_linear, head(generator, 5, 1500, 24, kind, chunk, kept), generator)


def test_tiles_with_hostile_scores_are_merged_without_loss(variant):
    generator = torch.Generator().manual_seed(0)
    for name, *parts in hostile_problems(generator):
        for kept in kept_sizes(parts[1].shape[0], 16):
            problem = LinearProblem(*parts, 16, kept)
            assert linear_head.serves(problem)
            try:
                check_problem(native_linear, problem, generator)
            except AssertionError as error:
                raise AssertionError(f"{name}, {kept} labels kept") from error


def test_results_do_not_depend_on_the_number_of_threads():
    generator = torch.Generator().manual_seed(0)
    problem = head(generator, 20, 9000, 48, kept=4096)
    threads, made = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            pos, neg, memory = native_linear.sums(problem)
            made.append([pos, neg, *native_linear.gradient(problem, memory, (pos.sigmoid(), neg.sigmoid()), (True,) * 3)])
    finally:
        torch.set_num_threads(threads)
    for other in made[1:]:
        assert all(torch.equal(one, two) for one, two in zip(made[0], other, strict=True))


def test_every_gradient_is_written_completely():
    generator = torch.Generator().manual_seed(0)
    problem = head(generator, 6, 700, 20)
    _, _, memory = native_linear.sums(problem)
    into = [torch.full(part.shape, torch.nan) for part in problem[:3]]
    linear_head.gradient(problem, [], native_linear.log_sums(memory), (torch.ones(6), torch.ones(6)), tuple(into))
    assert all(part.isfinite().all() for part in into)


def test_other_types_and_very_many_rows_take_the_products_of_torch():
    hidden, weight, bias = made_up(torch.Generator().manual_seed(0), 4, 50, 8)
    terms = all_terms(torch.Generator().manual_seed(0), 4, 50)[5]
    assert linear_head.serves(LinearProblem(hidden, weight, bias, terms, 32, 0))
    assert not linear_head.serves(LinearProblem(hidden.bfloat16(), weight, bias, terms, 32, 0))
    assert not linear_head.serves(LinearProblem(hidden, weight.mT.contiguous().mT, bias, terms, 32, 0))
    assert not linear_head.serves(LinearProblem(hidden, weight, bias.double(), terms, 32, 0))
    assert not linear_head.serves(LinearProblem(hidden.expand(20_000, 4, 8).reshape(-1, 8), weight, bias, terms, 32, 0))
