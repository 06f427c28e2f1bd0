"""Starting kernels again without asking Triton: whatever it looks at in the arguments must lead to the right kernel."""

import pytest
import torch

from manyhot import SparseLabels, bce_loss, zlpr_loss
from manyhot.engines.terms import DenseTerms
from manyhot.engines.triton import engine as triton_engine
from manyhot.engines.triton.launch.launcher import Launcher, _kinds_of, kind_of

on_device = pytest.mark.gpu


def check(x, labels, **settings):
    for loss in (zlpr_loss, bce_loss):
        (got,) = torch.autograd.grad(loss(x, labels, **settings), x)
        (wanted,) = torch.autograd.grad(loss(x, labels, **settings, engine="torch"), x)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-7)


@on_device
@pytest.mark.parametrize("num_labels", [(1, 15), (16, 17), (48, 80), (1, 16, 80)])
def test_every_number_of_rows_and_labels_one_after_the_other(num_labels):
    for rows in (1, 2, 15, 16, 17, 64, 1, 33) if len(num_labels) == 2 else (1, 33, 1):
        for labels in num_labels:
            x = torch.randn(rows, labels, device="cuda", requires_grad=True)
            check(x, torch.rand(rows, labels, device="cuda") < 0.3)


@on_device
@pytest.mark.parametrize("shift", [0, 1, 2, 4, 8])
def test_tensors_that_do_not_start_at_round_addresses(shift):
    for _ in range(2):
        memory = torch.randn(64 * 48 + 16, device="cuda")
        x = memory[shift : shift + 64 * 48].view(64, 48).detach().requires_grad_()
        labels = (torch.rand(64 * 48 + 16, device="cuda") < 0.2)[shift : shift + 64 * 48].view(64, 48)
        check(x, labels)
        check(x[:, 3:40], labels[:, 3:40])


@on_device
@pytest.mark.parametrize("num_labels", [3, 20, 128, 600, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_index_lists_may_start_at_any_address(num_labels, dtype):
    x = torch.randn(40, num_labels, device="cuda").to(dtype).requires_grad_()
    dense = torch.rand(40, num_labels, device="cuda") < 0.3
    lists = SparseLabels.from_dense(dense)
    (wanted,) = torch.autograd.grad(zlpr_loss(x, dense), x)
    for shift in (1, 0, 1):
        indices = torch.nn.functional.pad(lists.indices, (shift, 0))[shift:]
        assert indices.data_ptr() % 16 == 8 * shift
        (got,) = torch.autograd.grad(zlpr_loss(x, SparseLabels(indices, lists.offsets, num_labels)), x)
        torch.testing.assert_close(got, wanted)


@on_device
def test_types_take_turns():
    x = torch.randn(32, 80, device="cuda", requires_grad=True)
    hard = torch.rand(32, 80, device="cuda") < 0.2
    for _ in range(2):
        for labels in (hard, hard.to(torch.uint8), hard.long(), hard.float(), hard.double(), hard.to(torch.bfloat16)):
            check(x, labels)
        for weight in (None, 2, 2.0, torch.rand(80, device="cuda"), torch.rand(80, device="cuda").double()):
            check(x, hard, pos_weight=weight)
        for smoothing in (0.0, 0.1, 0.2):
            check(x, hard, smoothing=smoothing)
        check(x, hard, where=~hard | (x.detach() > 0))
        check(x, hard, sample_weight=torch.rand(32, device="cuda"))


@on_device
def test_launches_go_to_the_stream_that_is_current():
    x = torch.randn(4096, 4096, device="cuda")
    terms = DenseTerms(torch.rand(4096, 4096, device="cuda") < 0.01)
    triton_engine.fused(x, terms)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.zero_()
        values, _, _ = triton_engine.fused(x, terms)
    assert not stream.query()
    stream.synchronize()
    positives = terms.labels.sum(dim=1).double()
    torch.testing.assert_close(values.double(), (1 + positives).log() + (1 + 4096 - positives).log(), rtol=1e-5, atol=1e-5)


@on_device
def test_profilers_hear_of_every_launch():
    knobs = pytest.importorskip("triton.knobs", reason="this Triton has no hooks")
    if not hasattr(knobs.runtime.launch_enter_hook, "add"):
        pytest.skip("this Triton has one hook, not a chain")
    x, heard = torch.randn(32, 80, device="cuda"), []
    terms = DenseTerms(x > 1)
    before = triton_engine.fused(x, terms)
    hook = heard.append
    knobs.runtime.launch_enter_hook.add(hook)
    try:
        during = [triton_engine.fused(x, terms) for _ in range(3)][-1]
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    after = triton_engine.fused(x, terms)
    assert len(heard) == 3
    for got in (during, after):
        assert all(torch.equal(one, two) for one, two in zip(before[:2], got[:2], strict=True))


@on_device
def test_a_second_device_is_served_wherever_the_caller_is():
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one CUDA device")
    x = torch.randn(32, 80, device="cuda:1", requires_grad=True)
    check(x, torch.rand(32, 80, device="cuda:1") < 0.2)
    assert torch.cuda.current_device() == 0


def test_numbers_of_one_kind_are_those_that_triton_does_not_tell_apart():
    assert kind_of(1) != kind_of(2)
    assert kind_of(16) != kind_of(17)
    assert kind_of(2**31) != kind_of(32)
    assert kind_of(17) == kind_of(23)
    assert kind_of(0.5) == kind_of(3.0)


def test_index_lists_of_any_alignment_are_of_one_kind_and_other_tensors_are_not():
    memory = torch.zeros(8, dtype=torch.int64)
    aligned, shifted = memory[:4], memory[1:5]
    assert _kinds_of([aligned, None, shifted], frozenset((2,))) == _kinds_of([aligned, None, aligned], frozenset((2,)))
    assert _kinds_of([shifted, None, shifted], frozenset((2,))) != _kinds_of([aligned, None, shifted], frozenset((2,)))


def test_every_kernel_that_reads_index_lists_takes_them_at_any_address():
    pytest.importorskip("triton", reason="triton is not installed")
    from manyhot.engines.triton.packed.kernel import packed_kernel
    from manyhot.engines.triton.rows.few import few_kernel
    from manyhot.engines.triton.rows.labelwise import labelwise_kernel
    from manyhot.engines.triton.rows.rdrop import rdrop_kernel
    from manyhot.engines.triton.rows.segments import segment_kernel
    from manyhot.engines.triton.rows.whole import row_kernel

    for kernel in (packed_kernel, few_kernel, labelwise_kernel, rdrop_kernel, segment_kernel, row_kernel):
        names = kernel.arg_names[1:]
        assert Launcher(kernel, (), 1).anywhere == {names.index(name) for name in ("offsets", "indices", "values")}
