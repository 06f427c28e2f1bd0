"""Scores that are used in the kernel that computes them: in the interpreter everywhere, on the device where there is one."""

from types import SimpleNamespace

import pytest
import torch

from engines.linear.oracle import check_problem, close, hostile_problems, kept_sizes, made_up
from engines.oracle import all_terms, moved
from engines.triton.interpreted import check_interpreted
from manyhot.engines.linear.problem import LinearProblem
from manyhot.engines.terms import SparseTerms
from manyhot.engines.triton.linear import engine, product

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.linear.test_product import check_hostile, check_lists
from manyhot.engines.triton.linear import backward, engine, inputs, product
for module in (backward, engine, inputs, product):
    module.COLS = 16
small, large = product.ProductTile(4, 8, 4, 2, 1, 2), product.ProductTile(4, 16, 4, 2, 1, 3)
product.TILES = {"sums": large, "terms": small, "gradient": small}
if sys.argv[2] == "hostile":
    check_hostile("cpu", torch.float32, 16)
else:
    check_lists("cpu", torch.float32, sys.argv[2], 6, 50, 8, 16)
print("checked")
"""


def lean(kind, generator, rows, num_labels):
    """Terms that the kernel serves: lists, and lists with values, a weight for each positive and one for negatives."""
    terms = all_terms(generator, rows, num_labels)
    if kind == "lists":
        return terms[5]
    return terms[7]._replace(where=None, pos_weight=torch.rand(num_labels, generator=generator), neg_weight=0.5)


def check_lists(device, dtype, kind, rows, num_labels, size, chunk):
    """Check a problem whatever kernels are faster there, and that the kernel really served it."""
    modes, original, faster, many = set(), product._launch, product.faster, engine.MANY

    def recorded(problem, inputs, tile, mode, *rest):
        modes.add(mode)
        original(problem, inputs, tile, mode, *rest)

    product._launch, product.faster, engine.MANY = recorded, lambda *_: True, 4 if kind == "lists" else many
    try:
        generator = torch.Generator().manual_seed(0)
        for kept in kept_sizes(num_labels, chunk):
            parts = made_up(generator, rows, num_labels, size, bias=kept > 0, spread=0.9 / size**0.5)
            parts = [part if part is None else part.to(dtype) for part in parts]
            terms = lean(kind, generator, rows, num_labels)
            check_problem(engine, LinearProblem(*parts, terms, chunk, kept), generator, device)
    finally:
        product._launch, product.faster, engine.MANY = original, faster, many
    if device == "cpu" or torch.cuda.get_device_capability() == product.CAPABILITY:
        assert modes == ({"sums", "gradient"} if dtype == torch.float16 else {"sums", "terms", "gradient"})


def check_hostile(device, dtype, chunk):
    generator = torch.Generator().manual_seed(0)
    for name, hidden, weight, bias, terms in hostile_problems(generator):
        for kept in (0, min(chunk, weight.shape[0])):  # all kept: ``check_lists``
            problem = LinearProblem(hidden.to(dtype), weight.to(dtype), bias, terms, chunk, kept)
            try:
                check_problem(engine, problem, generator, device)
            except AssertionError as error:
                raise AssertionError(f"{name}, {kept} labels kept") from error


@pytest.mark.slow
@pytest.mark.parametrize("part", ["hostile", "lists", "soft lists"])
def test_sides_losses_and_gradients_are_those_of_dense_scores_in_the_interpreter(part):
    check_interpreted(INTERPRETED, part)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["lists", "soft lists"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "size"), [(37, 64), (300, 768)])
def test_sides_losses_and_gradients_are_those_of_dense_scores(dtype, kind, rows, size):
    check_lists("cuda", dtype, kind, rows, 9000, size, 4096)


def test_few_labels_many_positives_and_odd_numbers_of_rows_are_left_to_cublas():
    def faster(rows, num_labels, size, listed):
        lists = SparseTerms(torch.empty(rows * listed, dtype=torch.int64), torch.empty(0))
        hidden, weight = torch.empty(rows, size, device="meta"), torch.empty(num_labels, size, device="meta")
        problem = LinearProblem(hidden, weight, None, lists, 2048, 0)
        return product.faster(problem, SimpleNamespace(indices=lists.indices))

    assert all(faster(rows, 2_812_281, 768, 5) for rows in (128, 256, 512, 520, 1024))
    assert faster(512, 131_072, 768, 5)
    assert faster(512, 32_768, 768, 5)
    assert not faster(512, 16_384, 768, 5)
    assert not faster(512, 131_072, 768, 50)
    assert not faster(512, 131_072, 4096, 5)
    assert not any(faster(rows, 2_812_281, 768, 5) for rows in (1, 64, 129))


@pytest.mark.gpu
def test_what_the_kernel_saves_for_backward_is_what_other_kernels_read():
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (part.cuda() for part in made_up(generator, 128, 70_000, 64, spread=0.1))
    terms = moved(all_terms(generator, 128, 70_000)[5], "cuda")
    terms = terms._replace(indices=terms.indices[:200], offsets=terms.offsets.clamp_max(200))
    parts = (hidden.bfloat16(), weight.bfloat16(), bias)
    found = []
    for first, second in ((True, True), (True, False), (False, True), (False, False)):
        problem = LinearProblem(*parts, terms, 16_384, 0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(product, "faster", lambda *_, use=first: use)
            _, _, memory = engine.losses(problem, "split", 0.0, 1 / 128)
            patch.setattr(product, "faster", lambda *_, use=second: use)
            found.append(engine.gradient(problem, memory, (torch.ones((), device="cuda"), None), (True, True, True)))
    for made in found[1:]:
        for one, other in zip(found[0], made, strict=True):
            close(one, other, 3e-2)
