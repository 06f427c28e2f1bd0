"""Two predictions at once by the Triton engine: in the interpreter everywhere, on the device where there is one."""

import pytest
import torch

from engines.pairs_oracle import (
    SPREADS_AND_LINKS,
    check_operator,
    check_pair,
    check_pairs,
    check_sure_pairs,
    check_whole_graph,
    pair_problem,
)
from engines.triton.interpreted import check_interpreted, check_tests_interpreted
from manyhot import SparseLabels, rdrop_loss
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton import plans

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton import plans as triton_plans
triton_plans.PAIR = int(sys.argv[2])
from engines.pairs_oracle import check_pairs, check_sure_pairs
check_sure_pairs(triton_engine, "cpu", torch.float32)
check_pairs(triton_engine, "cpu", torch.float32, shapes=((3, 5), (7, 33)) if triton_plans.PAIR > 1000 else ((2, 100),))
print("checked")
"""


@pytest.mark.slow
@pytest.mark.parametrize("longest", [4096, 32])
def test_pairs_agree_with_the_plain_form_in_the_interpreter(longest):
    check_interpreted(INTERPRETED, longest)


RAGGED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.rows.test_rdrop import check_ragged
from manyhot.engines.triton import plans
plans.PAIR, plans.BITMASK_FROM = int(sys.argv[2]), 0
shapes = ((3, 1001), (3, 515), (3, 281), (3, 64), (5, 33)) if plans.PAIR > 1000 else ((3, 99), (3, 65))
check_ragged("cpu", torch.float32, shapes)
print("checked")
"""


def check_ragged(device, dtype, shapes):
    """Rows that begin anywhere in contiguous memory: what they share with their neighbours is theirs alone. Index lists are
    read as bits there, if ``plans.BITMASK_FROM`` allows it."""
    generator = torch.Generator().manual_seed(0)
    for shape in shapes:
        for spread in (3.0, 60.0):
            a, b = ((spread * torch.randn(*shape, generator=generator)).to(dtype) for _ in range(2))
            a[1], b[-1] = -80.0, -80.0  # unlike their neighbours
            for labels in (torch.rand(*shape, generator=generator) < 0.1, torch.ones(*shape, dtype=torch.uint8)):
                lists = SparseLabels.from_dense(labels > 0)
                for terms in (DenseTerms(labels), SparseTerms(lists.indices, lists.offsets)):
                    check_pair(triton_engine, a, b, terms, device, dtype, generator)


@pytest.mark.slow
@pytest.mark.parametrize("longest", [4096, 32])
def test_rows_that_begin_anywhere_are_read_in_groups_in_the_interpreter(longest):
    check_interpreted(RAGGED, longest)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_labels", [33, 128, 281, 513, 4096, 4271, 8191, 20_001])
def test_rows_that_begin_anywhere_are_read_in_groups_on_the_device(dtype, num_labels, monkeypatch):
    monkeypatch.setattr(plans, "BITMASK_FROM", 0)
    check_ragged("cuda", dtype, [(16, num_labels)])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_infinite_and_missing_scores_stay_in_their_row(dtype):
    a, b = (torch.randn(8, 4271, device="cuda").to(dtype) for _ in range(2))
    labels = torch.rand(8, 4271, device="cuda") < 0.01
    wanted = triton_engine.rdrop(a, b, DenseTerms(labels))
    a[2, -1], a[2, 0], b[5, 0], b[5, -1] = float("nan"), float("inf"), -float("inf"), float("nan")
    got = triton_engine.rdrop(a, b, DenseTerms(labels))
    others = [0, 1, 3, 4, 6, 7]
    assert all(torch.equal(one[others], two[others]) for one, two in zip(got, wanted, strict=True))


@pytest.mark.slow
def test_the_rules_for_two_predictions_hold_in_the_interpreter():
    check_tests_interpreted("losses/test_divergence.py", "interpreted-triton")


# A factor of the link has kernels of its own, which take long to compile: it is tried at one length, where every kind of labels
# meets it in one of the types. So have short rows that begin anywhere: here in float32, in half types in ``check_ragged``.
TYPES = list(enumerate([torch.float32, torch.bfloat16, torch.float16]))
SHORT = [(turn, dtype, (300, 40 if turn else 33), SPREADS_AND_LINKS) for turn, dtype in TYPES]
LONG = [(turn, dtype, shape, SPREADS_AND_LINKS[:2]) for shape in ((3, 20_001), (5, 9000)) for turn, dtype in TYPES]


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize(("turn", "dtype", "shape", "tried"), SHORT + LONG)
def test_pairs_agree_with_the_plain_form_on_the_device(turn, dtype, shape, tried):
    check_pairs(triton_engine, "cuda", dtype, [shape], tried, turn)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pairs_beyond_doubt_agree_with_the_plain_form_on_the_device(dtype):
    check_sure_pairs(triton_engine, "cuda", dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(5, 1), (7, 1000), (4, 8192), (2, 131_072), (1, 300_001)])
@pytest.mark.parametrize("kind", [None, 0, 5])
def test_pairs_of_every_length_are_cut_rightly(shape, kind):
    from engines.oracle import all_terms

    generator = torch.Generator().manual_seed(0)
    a, b = (3 * torch.randn(*shape, generator=generator) for _ in range(2))
    terms = None if kind is None else all_terms(generator, *shape)[kind]
    check_pair(triton_engine, a, b, terms, "cuda", torch.float32, generator)


@pytest.mark.gpu
@pytest.mark.parametrize("num_labels", [80, 50_000])
def test_pairs_are_the_same_bit_by_bit_every_time(num_labels):
    a, b, labels = pair_problem("cuda", 64, num_labels, torch.bfloat16)
    first = triton_engine.rdrop(a.detach(), b.detach(), DenseTerms(labels), alpha=2.0)
    for _ in range(10):
        again = triton_engine.rdrop(a.detach(), b.detach(), DenseTerms(labels), alpha=2.0)
        assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("num_labels", [50, 20_000])
def test_the_operator_for_pairs_passes_opcheck(num_labels):
    check_operator("cuda", num_labels)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_whole_graph_with_rdrop_compiles():
    check_whole_graph("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("num_labels", [80, 50_000])
def test_rdrop_in_cuda_graphs_and_with_retained_graphs(num_labels):
    a, b, labels = pair_problem("cuda", 16, num_labels)
    value = rdrop_loss(a, b, labels)
    first = torch.autograd.grad(value, (a, b), retain_graph=True)
    second = torch.autograd.grad(value * 3, (a, b))
    torch.testing.assert_close(second, tuple(grad * 3 for grad in first))
    del value  # its graph is of the default stream, which a capture may not wait for
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            other = torch.autograd.grad(rdrop_loss(a, b, labels), (a, b))
    torch.cuda.current_stream().wait_stream(stream)
    torch.testing.assert_close(other, first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = torch.autograd.grad(rdrop_loss(a, b, labels), (a, b))
    with torch.no_grad():
        a.neg_()
    graph.replay()
    wanted = torch.autograd.grad(rdrop_loss(a, b, labels, engine="torch"), (a, b))
    torch.testing.assert_close(captured, wanted, rtol=1e-4, atol=1e-7)
