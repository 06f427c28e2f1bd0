"""The laws that every loss of the catalog keeps, and those of the family."""

import functools
import inspect

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from manyhot import (
    LOSSES,
    SparseLabels,
    bce_loss,
    lsep_loss,
    pairwise_loss,
    softmax_loss,
    tlpr_loss,
    two_sided_logsumexp,
    zlpr_loss,
)
from manyhot.labels.soften import smooth_labels

NAMES = list(LOSSES)
SEPARABLE = [name for name in NAMES if LOSSES[name].row_separable]
every_loss = pytest.mark.parametrize("name", NAMES)
every_row_loss = pytest.mark.parametrize("name", SEPARABLE)
on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def takes(name, argument):
    return argument in inspect.signature(LOSSES[name].function).parameters


def problem(seed=0, rows=6, num_labels=9, dtype=torch.float64, density=0.35, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, num_labels, generator=generator, dtype=dtype)
    return logits.to(device), (torch.rand(rows, num_labels, generator=generator) < density).to(device)


def engine_problem(device, **sizes):
    """A problem in the widest type that the fast engine of the device has: on a GPU that is float32."""
    return problem(dtype=torch.float64 if device == "cpu" else torch.float32, device=device, **sizes)


def soft_problem(seed=0, **sizes):
    logits, labels = problem(seed, **sizes)
    soft = torch.rand(labels.shape, generator=torch.Generator().manual_seed(seed + 1), dtype=logits.dtype)
    soft[:, 0], soft[:, 1] = 0.0, 1.0
    return logits, soft.to(logits.device)


seeds = st.integers(0, 2**31)


@every_loss
@given(seed=seeds)
def test_the_order_of_rows_and_labels_does_not_matter(name, seed):
    loss, (logits, labels) = LOSSES[name], problem(seed)
    rows, columns = torch.randperm(6), torch.randperm(9)
    torch.testing.assert_close(loss(logits[rows][:, columns], labels[rows][:, columns]), loss(logits, labels))


@every_row_loss
def test_rows_do_not_see_each_other(name):
    loss, (logits, labels) = LOSSES[name], problem()
    values = loss(logits, labels, reduction="none")
    assert values.shape == (6,)
    for row in range(6):
        torch.testing.assert_close(loss(logits[row], labels[row], reduction="none"), values[row])


@every_loss
@given(seed=seeds)
def test_hard_labels_are_soft_labels_at_0_and_1(name, seed):
    loss, (logits, labels) = LOSSES[name], problem(seed)
    expected = loss(logits, labels)
    for kind in (torch.uint8, torch.int64, torch.float16, torch.float32, torch.float64):
        torch.testing.assert_close(loss(logits, labels.to(kind)), expected)


@every_loss
@given(seed=seeds, soft=st.booleans(), masked=st.booleans())
def test_index_lists_are_the_same_labels(name, seed, soft, masked):
    loss = LOSSES[name]
    logits, labels = soft_problem(seed) if soft else problem(seed)
    where = torch.rand(6, 9, generator=torch.Generator().manual_seed(seed)) < 0.7 if masked else None
    dense, sparse = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    expected = loss(dense, labels, where=where)
    got = loss(sparse, SparseLabels.from_dense(labels), where=where)
    torch.testing.assert_close(got, expected)
    expected.backward()
    got.backward()
    torch.testing.assert_close(sparse.grad, dense.grad)


@every_loss
@given(seed=seeds, smoothing=st.sampled_from([0.1, 0.5, 1.0]))
def test_smoothing_inside_is_smoothing_before_for_dense_and_sparse(name, seed, smoothing):
    loss, (logits, labels) = LOSSES[name], problem(seed)
    if name == "softmax":
        labels = torch.nn.functional.one_hot(labels.double().argmax(-1), 9).bool()
    every_pair = {"max_pairs": None} if name == "lsep" else {}
    before = smooth_labels(labels.double(), smoothing, kind="single" if name == "softmax" else "uniform")
    expected = loss(logits, before, **every_pair)
    torch.testing.assert_close(loss(logits, labels, smoothing=smoothing, **every_pair), expected)
    torch.testing.assert_close(loss(logits, SparseLabels.from_dense(labels), smoothing=smoothing, **every_pair), expected)


@every_loss
@given(seed=seeds)
def test_where_is_slicing_and_excluded_scores_are_never_read(name, seed):
    loss, (logits, labels) = LOSSES[name], problem(seed)
    where = torch.rand(9, generator=torch.Generator().manual_seed(seed)) < 0.6
    poisoned = torch.where(where, logits, torch.tensor([torch.nan, torch.inf, -torch.inf]).repeat(3)).requires_grad_()
    value = loss(poisoned, labels, where=where)
    torch.testing.assert_close(value.detach(), loss(logits[:, where], labels[:, where]))
    value.backward()
    assert (poisoned.grad[:, ~where] == 0).all()
    assert poisoned.grad.isfinite().all()


@every_loss
@given(seed=seeds)
def test_a_sample_weight_of_n_is_the_row_n_times(name, seed):
    loss, (logits, labels) = LOSSES[name], problem(seed)
    counts = torch.tensor([1, 3, 0, 2, 1, 1])
    repeated = loss(logits.repeat_interleave(counts, 0), labels.repeat_interleave(counts, 0))
    torch.testing.assert_close(loss(logits, labels, sample_weight=counts.double()), repeated)


@every_row_loss
def test_reductions_are_of_the_row_values(name):
    loss, (logits, labels) = LOSSES[name], problem(density=0.5)
    values = loss(logits, labels, reduction="none")
    torch.testing.assert_close(loss(logits, labels, reduction="sum"), values.sum())
    torch.testing.assert_close(loss(logits, labels), values.mean())


@pytest.mark.parametrize("name", [name for name in NAMES if takes(name, "dim")])
def test_several_label_axes_are_one_flat_axis(name):
    loss, (logits, labels) = LOSSES[name], problem(rows=4, num_labels=15)
    grid, truth = logits.reshape(4, 3, 5), labels.reshape(4, 3, 5)
    expected = loss(logits, labels, reduction="none")
    torch.testing.assert_close(loss(grid, truth, dim=(-2, -1), reduction="none"), expected)
    moved, moved_truth = grid.permute(1, 0, 2), truth.permute(1, 0, 2)
    torch.testing.assert_close(loss(moved, moved_truth, dim=(0, 2), reduction="none"), expected)
    along_types = loss(grid, truth, dim=1, reduction="none")
    torch.testing.assert_close(along_types, loss(grid.mT, truth.mT, reduction="none"))


@pytest.mark.parametrize("name", [name for name in NAMES if takes(name, "pos_weight")])
def test_weights_per_label_are_repeated_labels(name):
    loss, (logits, labels) = LOSSES[name], problem()
    counts = torch.tensor([1, 2, 1, 3, 1, 1, 0, 1, 1])
    summed = {"label_reduction": "sum"} if takes(name, "label_reduction") else {}
    repeated = loss(logits.repeat_interleave(counts, 1), labels.repeat_interleave(counts, 1), **summed)
    weight = counts.double()
    torch.testing.assert_close(loss(logits, labels, pos_weight=weight, neg_weight=weight, **summed), repeated)
    one_for_all = loss(logits, labels, pos_weight=2.5, neg_weight=0.5, **summed)
    per_label = loss(logits, labels, pos_weight=torch.full((9,), 2.5), neg_weight=torch.full((9,), 0.5), **summed)
    torch.testing.assert_close(one_for_all, per_label)


@every_loss
@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_agree_with_finite_differences(name, sparse):
    loss = LOSSES[name]
    logits, labels = soft_problem(3, rows=3, num_labels=5)
    labels = SparseLabels.from_dense(labels) if sparse else labels
    where = torch.ones(3, 5, dtype=torch.bool)
    where[0, 2] = False
    where[2] = False
    logits.requires_grad_()
    assert gradcheck(lambda x: loss(x, labels, where=where), (logits,))
    assert gradgradcheck(lambda x: loss(x, labels, where=where), (logits,))


@on_each_device
@every_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_give_a_float32_loss_and_a_gradient_in_their_own_type(name, dtype, device):
    loss, (logits, labels) = LOSSES[name], problem(dtype=torch.float32, device=device)
    half = logits.to(dtype).requires_grad_()
    value = loss(half, labels)
    value.backward()
    assert value.dtype == torch.float32
    assert half.grad.dtype == dtype
    torch.testing.assert_close(value.detach(), loss(half.detach().double(), labels).float())


@on_each_device
@every_loss
def test_strided_and_expanded_tensors_are_taken(name, device):
    loss, (logits, labels) = LOSSES[name], engine_problem(device)
    strided = torch.stack([logits, logits], dim=-1).flatten(1)[:, ::2]
    assert not strided.is_contiguous()
    torch.testing.assert_close(loss(strided, labels), loss(logits, labels))
    row = labels[:1].expand(6, 9)
    torch.testing.assert_close(loss(logits, row), loss(logits, row.contiguous()))
    wide = logits[:1].expand(6, 9)
    torch.testing.assert_close(loss(wide, labels), loss(wide.contiguous(), labels))


@on_each_device
@every_loss
@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_empty_batches_and_empty_label_sets_cost_nothing(name, shape, device):
    logits = torch.zeros(shape, requires_grad=True, device=device)
    value = LOSSES[name](logits, torch.zeros(shape, dtype=torch.bool, device=device))
    value.backward()
    assert value.item() == 0
    assert logits.grad.shape == shape


@on_each_device
@every_row_loss
def test_vmap_and_func_grad(name, device):
    if name == "lsep":
        pytest.skip("drawing pairs is random, which vmap refuses by default")
    loss, (logits, labels) = LOSSES[name], engine_problem(device)
    values = torch.func.vmap(functools.partial(loss, reduction="none"))(logits, labels)
    torch.testing.assert_close(values, loss(logits, labels, reduction="none"))
    gradients = torch.func.vmap(torch.func.grad(lambda x, y: loss(x, y)))(logits, labels)
    reference = logits.clone().requires_grad_()
    loss(reference, labels, reduction="sum").backward()
    torch.testing.assert_close(gradients, reference.grad)


# torch.compile sets off deprecation warnings of torch's own.
compiles = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@on_each_device
@every_loss
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own, at the first dual level
def test_forward_mode_derivatives_flow_whether_or_not_a_gradient_is_asked_for(name, gradients, device):
    loss, (logits, labels) = LOSSES[name], problem(dtype=torch.float32, device=device)
    direction = torch.randn_like(logits)
    leaf = logits.clone().requires_grad_()
    expected = (torch.autograd.grad(loss(leaf, labels), leaf)[0] * direction).sum()
    for _ in range(2):  # the second call of a kind is a repeated one
        with forward_ad.dual_level(), torch.set_grad_enabled(gradients):
            value = loss(forward_ad.make_dual(leaf if gradients else logits, direction), labels)
            tangent = forward_ad.unpack_dual(value).tangent
        torch.testing.assert_close(tangent.detach(), expected, rtol=1e-4, atol=1e-5)


@on_each_device
@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_without_a_gradient_the_value_is_the_same(name, dtype, device):
    loss, (logits, labels) = LOSSES[name], problem(dtype=torch.float32, device=device)
    given = {"labels": labels, "lists": SparseLabels.from_dense(labels), "soft": labels.float() * 0.8 + 0.1}
    for kind in given.values():
        leaf = logits.to(dtype).requires_grad_()
        value = loss(leaf, kind)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                torch.testing.assert_close(loss(leaf, kind), value.detach(), rtol=1e-5, atol=1e-6)


@on_each_device
@compiles
@every_loss
@pytest.mark.parametrize("sparse", [False, True])
def test_a_whole_graph_compiles_with_dynamic_shapes(name, sparse, device):
    torch._dynamo.reset()
    loss = LOSSES[name]
    compiled = torch.compile(lambda x, y: loss(x, y), fullgraph=True, dynamic=True, backend="aot_eager")
    if sparse:
        compiled = torch.compile(
            lambda x, i, o, v: loss(x, SparseLabels(i, o, 9, values=v, validate=False)),
            fullgraph=True,
            dynamic=True,
            backend="aot_eager",
        )
    for rows in (6, 11):
        logits, labels = soft_problem(1, rows=rows, dtype=torch.float64 if device == "cpu" else torch.float32, device=device)
        plain, other = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        if sparse:
            lists = SparseLabels.from_dense(labels)
            value = compiled(other, lists.indices, lists.offsets, lists.values)
        else:
            value = compiled(other, labels)
        expected = loss(plain, labels)
        torch.testing.assert_close(value, expected)
        value.backward()
        expected.backward()
        torch.testing.assert_close(other.grad, plain.grad)


@on_each_device
@compiles
@pytest.mark.parametrize("name", ["two_sided_logsumexp", *LOSSES])
def test_a_whole_graph_compiles_where_nothing_asks_for_a_gradient(name, device):
    torch._dynamo.reset()
    loss = two_sided_logsumexp if name == "two_sided_logsumexp" else LOSSES[name]
    logits, labels = soft_problem(1, rows=6, dtype=torch.float32, device=device)
    compiled = torch.compile(lambda x, y: loss(x, y), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits, labels), loss(logits, labels))
    with torch.no_grad():
        torch.testing.assert_close(compiled(logits.requires_grad_(), labels), loss(logits, labels))


@on_each_device
@compiles
@pytest.mark.slow
@pytest.mark.parametrize("function", [zlpr_loss, functools.partial(tlpr_loss, threshold=0.5)])
def test_inductor_compiles_the_family(function, device):
    logits, labels = soft_problem(1, dtype=torch.float32, device=device)
    compiled = torch.compile(lambda x, y: function(x, y), fullgraph=True, dynamic=True)
    plain, other = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    value, expected = compiled(other, labels), function(plain, labels)
    torch.testing.assert_close(value, expected)
    value.backward()
    expected.backward()
    torch.testing.assert_close(other.grad, plain.grad)


@on_each_device
@every_loss
def test_autocast_does_not_lower_the_arithmetic(name, device):
    loss, (logits, labels) = LOSSES[name], problem(dtype=torch.float32, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        value = loss(logits, labels)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(logits, labels))


@every_loss
def test_the_module_is_the_function(name):
    info, (logits, labels) = LOSSES[name], problem(dtype=torch.float32)
    settings = {key: value for key, value in info.settings.items() if key != "threshold"}
    module = info.module(**settings)
    where = torch.rand(6, 9) < 0.8
    torch.testing.assert_close(module(logits, labels, where=where), info(logits, labels, where=where))
    assert repr(module).startswith(type(module).__name__)


@given(seed=seeds)
def test_zlpr_lies_between_the_pairwise_loss_and_summed_bce(seed):
    logits, labels = problem(seed)
    lower = lsep_loss(logits, labels, reduction="none")
    middle = zlpr_loss(logits, labels, reduction="none")
    upper = bce_loss(logits, labels, label_reduction="sum", reduction="none")
    assert (lower <= middle + 1e-12).all()
    assert (middle <= upper + 1e-12).all()


@given(seed=seeds, soft=st.booleans())
def test_zlpr_is_convex_along_every_line(seed, soft):
    start, labels = soft_problem(seed) if soft else problem(seed)
    end = start + 10 * torch.randn(start.shape, generator=torch.Generator().manual_seed(seed), dtype=start.dtype)
    ends = zlpr_loss(start, labels, reduction="none") + zlpr_loss(end, labels, reduction="none")
    middle = zlpr_loss((start + end) / 2, labels, reduction="none")
    assert (middle <= ends / 2 + 1e-12).all()


@given(labels=st.lists(st.floats(0.01, 0.99), min_size=1, max_size=8))
def test_soft_zlpr_is_least_at_half_the_logit(labels):
    labels = torch.tensor([labels], dtype=torch.float64)
    best = (torch.logit(labels) / 2).requires_grad_()
    value = zlpr_loss(best, labels)
    value.backward()
    floor = 2 * torch.log1p(torch.sqrt(labels * (1 - labels)).sum())
    torch.testing.assert_close(value.detach(), floor)
    torch.testing.assert_close(best.grad, torch.zeros_like(best), atol=1e-12, rtol=0)
    torch.testing.assert_close(torch.sigmoid(2 * best.detach()), labels)


@given(seed=seeds)
def test_one_positive_is_softmax_and_cross_entropy(seed):
    logits, _ = problem(seed)
    classes = torch.randint(9, (6,), generator=torch.Generator().manual_seed(seed))
    one_hot = torch.nn.functional.one_hot(classes, 9)
    expected = torch.nn.functional.cross_entropy(logits, classes)
    torch.testing.assert_close(pairwise_loss(logits, one_hot), expected)
    torch.testing.assert_close(softmax_loss(logits, one_hot), expected)
    torch.testing.assert_close(softmax_loss(logits, classes), expected)
    soft = torch.softmax(torch.randn(6, 9, dtype=torch.float64), -1)
    torch.testing.assert_close(softmax_loss(logits, soft), torch.nn.functional.cross_entropy(logits, soft))


@given(seed=seeds, shift=st.floats(-20, 20))
def test_tlpr_at_zero_is_zlpr_and_moves_with_the_scores(seed, shift):
    logits, labels = soft_problem(seed)
    torch.testing.assert_close(tlpr_loss(logits, labels, 0.0), zlpr_loss(logits, labels))
    threshold = torch.randn(6, dtype=torch.float64)
    torch.testing.assert_close(
        tlpr_loss(logits + shift, labels, threshold + shift, reduction="none"),
        tlpr_loss(logits, labels, threshold, reduction="none"),
    )


def test_the_threshold_gets_a_gradient_per_model_and_per_row():
    logits, labels = problem()
    for threshold in (torch.tensor(0.3, dtype=torch.float64), torch.randn(6, dtype=torch.float64)):
        threshold.requires_grad_()
        assert gradcheck(lambda s0: tlpr_loss(logits, labels, s0), (threshold,))


def test_weighting_the_positives_moves_the_boundary_by_the_log_of_the_weight():
    logits, labels = problem(rows=1, num_labels=1)
    labels[:] = True
    value = zlpr_loss(logits, labels, pos_weight=20.0)
    torch.testing.assert_close(value, torch.nn.functional.softplus(torch.log(torch.tensor(20.0).double()) - logits).squeeze())


def test_bce_is_torchs_and_focal_and_asymmetric_reduce_to_it():
    logits, labels = soft_problem()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
    torch.testing.assert_close(bce_loss(logits, labels), expected)
    torch.testing.assert_close(LOSSES["focal"](logits, labels, gamma=0.0, alpha=None), expected)
    torch.testing.assert_close(LOSSES["asymmetric"](logits, labels, gamma_pos=0.0, gamma_neg=0.0, margin=0.0), expected)
    weight = torch.rand(9, dtype=torch.float64) + 0.5
    torch.testing.assert_close(
        bce_loss(logits, labels, pos_weight=weight),
        torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, pos_weight=weight),
    )
