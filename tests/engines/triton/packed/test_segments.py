"""Long rows read as words twice: in the interpreter everywhere, with programs that wait on the device where there is one."""

import pytest
import torch

from engines.triton.interpreted import check_interpreted
from engines.triton.packed.test_forms import compare, every_offset
from engines.triton.packed.test_kernel import expected, problem
from manyhot import SparseLabels
from manyhot.engines.terms import SparseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton import plans
from manyhot.engines.triton.calls import Call, chunk_memory, new_grad, new_rows

# Rows of 700 labels or so in tiles of 256, all by one program.
WHOLE = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from engines.triton.packed.test_segments import as_segments, check_rows, check_segments
as_segments(256, 1, 1024)
for kind in ("hard", "soft", "weighted", "lists"):
    check_segments("cpu", torch.float32, 2, 701, kind, 60.0)
    check_segments("cpu", torch.float32, 2, 768, kind)
    check_segments("cpu", torch.bfloat16, 2, 700, kind)
check_segments("cpu", torch.float16, 2, 701, "hard")
check_segments("cpu", torch.float16, 2, 701, "lists")
for kind in ("hard", "soft", "lists"):
    check_rows("cpu", torch.float32, 701, kind)
print("checked")
"""
# Rows of several programs. In the interpreter none can wait, so they run twice: the second time all sums are there.
CHUNKS = """
import sys
import torch
import triton
import triton.language as tl
sys.path.insert(0, sys.argv[1])
from manyhot.engines.triton.rows import merge
@triton.jit
def add_nothing(arrived, row, pos_top, pos_sum, neg_top, neg_sum, CHUNKS: tl.constexpr):
    return 0.0, 0.0, 1
@triton.jit
def wait_for_nothing(arrived, row, CHUNKS: tl.constexpr):
    pass
merge.add_chunks, merge.wait_for_row = add_nothing, wait_for_nothing
from engines.triton.packed.test_segments import as_segments, check_chunks
as_segments(128, 3, 256)
for kind in ("hard", "soft", "lists"):
    for dtype, num_labels, spread in ((torch.float32, 517, 3.0), (torch.float32, 700, 60.0), (torch.bfloat16, 517, 3.0)):
        check_chunks(dtype, 3, num_labels, kind, spread)
print("checked")
"""


def as_segments(block, chunks, segment):
    """Let every row that can be read as words take the kernel for long rows, so divided."""
    plans._packed_plan = lambda *_: plans.Plan("words", 1, block, chunks, segment, 1)


def check_segments(device, dtype, rows, num_labels, kind, spread=3.0):
    x, terms, t, weights = problem(device, dtype, rows, num_labels, kind, spread)
    assert Call(x, terms, "fused", wordwise=True).layout.plan.kernel == "words"
    values, grad, _ = triton_engine.fused(x, terms)
    agree(values, grad, x, t, weights)


def agree(values, grad, x, t, weights):
    wanted, slope = expected(x, t, weights)
    torch.testing.assert_close(values.double(), wanted, rtol=1e-5, atol=1e-5)
    half = 8e-3 if triton_engine.interpreted() else 4e-3  # the interpreter cuts what the device rounds
    close = {"rtol": 1e-5, "atol": 1e-6} if x.dtype == torch.float32 else {"rtol": half, "atol": 1e-5}
    torch.testing.assert_close(grad.double(), slope, **close)


def check_rows(device, dtype, num_labels, kind):
    """Both forms with every kind of offset."""
    x, terms, *_ = problem(device, dtype, 3, num_labels, kind)
    for form in ("split", "joint"):
        for offset in every_offset(3, device):
            compare(x, terms, form, offset)


def check_chunks(dtype, rows, num_labels, kind, spread=3.0):
    x, terms, t, weights = problem("cpu", dtype, rows, num_labels, kind, spread)
    call = Call(x, terms, "fused", wordwise=True)
    partial, arrived = chunk_memory(x, call.layout.plan.chunks)
    values, grad = new_rows(x), new_grad(x).fill_(torch.nan)
    for _ in range(2):
        call.launch("split", out_value=values, out_grad=grad, partial=partial, arrived=arrived)
    agree(values, grad, x, t, weights)


@pytest.mark.slow
def test_long_rows_agree_with_float64_in_the_interpreter():
    check_interpreted(WHOLE)


@pytest.mark.slow
def test_long_rows_of_several_programs_agree_with_float64_in_the_interpreter():
    check_interpreted(CHUNKS)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["hard", "soft", "weighted", "lists"])
@pytest.mark.parametrize("num_labels", [2_200_000, 2_200_003])
def test_long_rows_agree_with_float64_on_the_device(dtype, kind, num_labels):
    for spread in (3.0, 60.0):
        check_segments("cuda", dtype, 3, num_labels, kind, spread)


@pytest.mark.gpu
def test_long_rows_may_have_long_lists():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3_000_001, generator=generator).cuda()
    t = (torch.rand(x.shape, generator=generator) < 0.01).cuda()
    lists = SparseLabels.from_dense(t)
    values, grad, _ = triton_engine.fused(x, SparseTerms(lists.indices, lists.offsets))
    agree(values, grad, x, t.double(), (1.0, 1.0))
