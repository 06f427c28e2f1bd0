"""The Triton engine: in the interpreter everywhere, on the device where there is one."""

import pytest
import torch

import manyhot
from engines.triton.interpreted import check_interpreted, check_tests_interpreted
from manyhot import SparseLabels
from manyhot.engines import ops
from manyhot.engines.terms import DenseTerms, SparseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.losses.core import repeats
from manyhot.losses.core.layout import Rows
from manyhot.losses.core.logsumexp import sides_of_rows

INTERPRETED = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton import plans as triton_plans
triton_plans.CHUNK, triton_plans.SEGMENT, triton_plans.BLOCK = int(sys.argv[2]), 128, 32
triton_plans.TILE = min(triton_plans.TILE, 2 * triton_plans.CHUNK)
from engines.oracle import check_engine
shapes = ((3, 5), (7, 33), (5, 1)) if triton_plans.CHUNK > 1000 else ((4, 33), (2, 64))
check_engine(triton_engine, "cpu", torch.float32, shapes=shapes)
print("checked")
"""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [8192, 16])
def test_the_kernels_agree_with_the_plain_form_in_the_interpreter(chunk):
    check_interpreted(INTERPRETED, chunk)


@pytest.mark.slow
def test_the_exactness_rules_hold_in_the_interpreter():
    check_tests_interpreted("losses/test_exactness.py", "interpreted-triton and not bfloat16 and not float16")


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(300, 33), (3, 20_001)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", range(8))
def test_the_kernels_agree_with_the_plain_form_on_the_device(dtype, shape, kind):
    from engines.oracle import all_terms, check_call

    generator = torch.Generator().manual_seed(kind)
    terms = all_terms(generator, *shape)[kind]
    for spread in (3.0, 60.0):
        x = (spread * torch.randn(*shape, generator=generator)).to(dtype)
        check_call(triton_engine, x, terms, "cuda", dtype, generator)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(5, 1), (7, 1000), (4, 8192), (2, 131_072), (1, 300_001)])
@pytest.mark.parametrize("kind", [0, 5])
def test_every_length_is_cut_rightly(shape, kind):
    from engines.oracle import all_terms, check_call

    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(*shape, generator=generator)
    check_call(triton_engine, x, all_terms(generator, *shape)[kind], "cuda", torch.float32, generator)


@pytest.mark.gpu
def test_results_are_the_same_bit_by_bit_every_time():
    x = torch.randn(64, 100_000, device="cuda", dtype=torch.bfloat16)
    terms = DenseTerms(torch.rand(64, 100_000, device="cuda") < 0.001)
    first = triton_engine.fused(x, terms, "split", 0.0, 1.0)
    for _ in range(20):
        again = triton_engine.fused(x, terms, "split", 0.0, 1.0)
        assert all(torch.equal(one, two) for one, two in zip(first[:2], again[:2], strict=True))


@pytest.mark.gpu
def test_more_elements_than_32_bits_can_count():
    x = torch.randn(2200, 1_000_000, device="cuda", dtype=torch.bfloat16)
    lists = SparseLabels.from_lists([[i, 999_999] for i in range(2200)], num_labels=1_000_000).to("cuda")
    terms = SparseTerms(lists.indices, lists.offsets)
    values, grad, _ = triton_engine.fused(x, terms, "split", 0.0, 1.0)
    part = slice(2190, 2200)
    rows = lists[part]
    last = SparseTerms(rows.indices, rows.offsets)
    expected, wanted, _ = triton_engine.fused(x[part].clone(), last, "split", 0.0, 1.0)
    torch.testing.assert_close(values[part], expected)
    assert torch.equal(grad[part], wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("num_labels", [80, 50_000])
def test_cuda_graphs_streams_and_retained_graphs(num_labels):
    from manyhot import zlpr_loss

    x = torch.randn(32, num_labels, device="cuda", requires_grad=True)
    labels = torch.rand(32, num_labels, device="cuda") < 0.01
    loss = zlpr_loss(x, labels)
    (first,) = torch.autograd.grad(loss, x, retain_graph=True)
    (second,) = torch.autograd.grad(loss * 3, x)
    torch.testing.assert_close(second, first * 3)
    del loss  # its graph is of the default stream, which a capture may not wait for
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            (other,) = torch.autograd.grad(zlpr_loss(x, labels), x)
    torch.cuda.current_stream().wait_stream(stream)
    torch.testing.assert_close(other, first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (captured,) = torch.autograd.grad(zlpr_loss(x, labels), x)
    with torch.no_grad():
        x.neg_()
    graph.replay()
    (expected,) = torch.autograd.grad(zlpr_loss(x, labels, engine="torch"), x)
    torch.testing.assert_close(captured, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_whole_graph_compiles_with_the_operators(reduction):
    from manyhot import tlpr_loss

    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y, s0: tlpr_loss(2 * x, y, s0, reduction=reduction).sum(), fullgraph=True, dynamic=True)
    for rows in (8, 24):
        x = torch.randn(rows, 300, device="cuda", requires_grad=True)
        s0 = torch.tensor(0.5, device="cuda", requires_grad=True)
        labels = torch.rand(rows, 300, device="cuda") < 0.05
        got = torch.autograd.grad(compiled(x, labels, s0), (x, s0))
        wanted = torch.autograd.grad(tlpr_loss(2 * x, labels, s0, reduction=reduction, engine="torch").sum(), (x, s0))
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("num_labels", [50, 20_000])
def test_operators_pass_opcheck(num_labels):
    x = torch.randn(4, num_labels, device="cuda")
    labels = torch.rand(4, num_labels, device="cuda") < 0.1
    packed = ops.pack(DenseTerms(labels))
    torch.library.opcheck(torch.ops.manyhot.fused, (x, "split", None, 0.0, None, 1.0, *packed))
    torch.library.opcheck(torch.ops.manyhot.sides, (x, *packed))
    torch.library.opcheck(torch.ops.manyhot.labelwise, (x, "bce", 0.0, 0.0, 0.0, None, 1.0, *packed))


@pytest.mark.gpu
def test_loss_scaling_of_float16_loses_nothing_and_autocast_keeps_float32_sums():
    from manyhot import zlpr_loss

    x = torch.randn(4096, 50, device="cuda").half().requires_grad_()
    labels = torch.rand(4096, 50, device="cuda") < 0.1
    (scaled,) = torch.autograd.grad(zlpr_loss(x, labels) * 65536, x)
    exact = x.detach().double().requires_grad_()
    (wanted,) = torch.autograd.grad(zlpr_loss(exact, labels) * 65536, exact)
    torch.testing.assert_close(scaled.double(), wanted, rtol=2e-3, atol=1e-4)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        hidden = torch.randn(16, 8, device="cuda", requires_grad=True) @ torch.randn(8, 50, device="cuda")
        value = zlpr_loss(hidden, labels[:16])
    assert value.dtype == torch.float32
    value.backward()


@pytest.mark.gpu
def test_double_backward_goes_through_the_plain_form():
    from manyhot import zlpr_loss

    x = torch.randn(3, 7, device="cuda", requires_grad=True)
    labels = torch.rand(3, 7, device="cuda") < 0.4
    (grad,) = torch.autograd.grad(zlpr_loss(x, labels), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), x)
    exact = x.detach().double().requires_grad_()
    (grad,) = torch.autograd.grad(zlpr_loss(exact, labels), exact, create_graph=True)
    (wanted,) = torch.autograd.grad(grad.square().sum(), exact)
    torch.testing.assert_close(second.double(), wanted, rtol=1e-4, atol=1e-6)


def test_the_plain_form_is_what_the_oracle_compares_with():
    x, labels = torch.randn(2, 3, dtype=torch.float64), torch.tensor([[1, 0, 0], [0, 0, 0]])
    pos = sides_of_rows(Rows(x, DenseTerms(labels), x.shape[:1]), None)[0].value
    assert pos[0].item() == pytest.approx(-x[0, 0].item())
    assert pos[1].item() == -torch.inf


WITHOUT_GRADIENT = {
    "zlpr": manyhot.zlpr_loss,
    "pairwise": manyhot.pairwise_loss,
    "bce": manyhot.bce_loss,
    "focal": manyhot.focal_loss,
    "dice": manyhot.dice_loss,
    "rdrop": lambda x, labels, **settings: manyhot.rdrop_loss(x, -x, labels, **settings),
}


@pytest.mark.gpu
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", WITHOUT_GRADIENT)
def test_a_loss_without_a_gradient_is_that_of_float64_at_every_call(name, dtype, mode):
    loss = WITHOUT_GRADIENT[name]
    x = torch.randn(40, 80, device="cuda").to(dtype)
    labels = (torch.rand(40, 80, device="cuda") < 0.05).byte()
    for given in (labels, manyhot.SparseLabels.from_dense(labels)):
        wanted = loss(x.double(), given)
        with mode():
            own = x.clone()
            found = [loss(own, given) for _ in range(3)]
        assert not any(each.requires_grad for each in found)
        for each in found:
            torch.testing.assert_close(each.double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_few_scores_without_a_gradient_are_repeated_and_no_graph_is_kept(dtype):
    x, labels = torch.randn(64, 80, device="cuda").to(dtype), torch.zeros(64, 80, device="cuda", dtype=torch.uint8)
    with torch.no_grad():
        first = manyhot.zlpr_loss(x, labels)
        kind = repeats.kind_of("zlpr_loss", "split", x, labels, 0.0, "mean")
        assert kind is not None
        again = repeats.repeat(kind, x)
        assert again is not None
        assert not again.requires_grad
        torch.testing.assert_close(again, first, rtol=0, atol=0)
    trained = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(manyhot.zlpr_loss(trained, labels), trained)
    (wanted,) = torch.autograd.grad(manyhot.zlpr_loss(trained, labels, engine="torch"), trained)
    torch.testing.assert_close(grad, wanted, rtol=1e-2, atol=1e-6)
