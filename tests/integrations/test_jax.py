import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import Mesh, PartitionSpec
from optax import sigmoid_binary_cross_entropy

import manyhot
from integrations import hostile
from manyhot.integrations import jax as ours

LOSSES = {
    "zlpr_loss": {},
    "pairwise_loss": {"scale": 2.0, "margin": 0.25},
    "bce_loss": {},
    "focal_loss": {},
    "asymmetric_loss": {},
}


def loss_and_gradient(loss, logits, labels, **settings):
    def total(x):
        values = getattr(ours, loss)(x, labels, **settings)
        return values.sum(), values

    gradient, values = jax.grad(total, has_aux=True)(jnp.asarray(logits))
    return np.asarray(values), np.asarray(gradient)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", hostile.CASES)
def test_values_and_gradients_are_those_of_torch_on_hostile_rows(name, loss):
    case = hostile.CASES[name]
    values, gradient = hostile.reference(name, loss, **LOSSES[loss])
    found, got = loss_and_gradient(loss, case.logits, case.labels, where=case.where, **LOSSES[loss])
    np.testing.assert_allclose(found, values, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(got, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", hostile.CASES)
def test_compiled_it_is_the_same(name):
    case = hostile.CASES[name]
    values, gradient = hostile.reference(name, "zlpr_loss")
    step = jax.jit(jax.value_and_grad(lambda x: ours.zlpr_loss(x, case.labels, where=case.where).sum()))
    total, got = step(jnp.asarray(case.logits))
    np.testing.assert_allclose(total, values.sum(), rtol=2e-6)
    np.testing.assert_allclose(got, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["bool", "int32", "float32"])
@pytest.mark.parametrize("settings", [{}, {"smoothing": 0.1}, {"pos_weight": 3.0, "neg_weight": np.float32([0.5, 0, 2, 1, 1])}])
def test_label_types_weights_and_smoothing_agree_with_torch(kind, settings):
    random = np.random.default_rng(1)
    logits, labels = random.normal(size=(4, 5)).astype("f"), random.random((4, 5)) < 0.4
    there = {name: torch.tensor(each) if isinstance(each, np.ndarray) else each for name, each in settings.items()}
    wanted = manyhot.zlpr_loss(torch.tensor(logits), torch.tensor(labels), reduction="none", engine="torch", **there)
    got = ours.zlpr_loss(logits, labels.astype(kind), **settings)
    np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-6)


def test_an_infinitely_wrong_score_has_an_infinite_loss_and_a_finite_gradient():
    for labels in (np.array([[0, 1, 0]]), np.array([[0.0, 1.0, 0.0]], "f")):
        value, gradient = loss_and_gradient("zlpr_loss", np.array([[np.inf, 1, -2]], "f"), labels)
        assert value[0] == np.inf
        assert gradient[0, 0] == 1
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize(("loss", "threshold"), [("pairwise_loss", ()), ("tlpr_loss", (1e7,))])
def test_a_level_that_all_scores_share_costs_no_digits(loss, threshold):
    apart, labels = np.float32([[3, 1, -2, 2, 0], [-1, 2, 3, 0, -3]]), np.array([[1, 0, 0, 1, 0], [1, 1, 0, 0, 0]])
    wanted = getattr(manyhot, loss)(torch.tensor(apart), torch.tensor(labels), *[0.0 for _ in threshold], reduction="none")
    got = getattr(ours, loss)(apart + np.float32(1e7), labels, *threshold)
    np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-6)


def test_padded_lists_are_the_dense_labels():
    logits = np.random.default_rng(0).normal(size=(3, 6)).astype("f")
    lists = ours.PaddedLabels(jnp.array([[5, 0, -1], [-1, -1, -1], [2, -1, -1]]))
    dense = np.zeros((3, 6), bool)
    dense[0, [0, 5]] = dense[2, 2] = True
    for got, wanted in zip(
        loss_and_gradient("zlpr_loss", logits, lists), loss_and_gradient("zlpr_loss", logits, dense), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    soft = ours.PaddedLabels(lists.indices, jnp.full((3, 3), 0.25))
    np.testing.assert_allclose(ours.zlpr_loss(logits, soft), ours.zlpr_loss(logits, dense * np.float32(0.25)), rtol=1e-6)


@pytest.mark.parametrize("mark", [-1.0, -100.0, np.nan])
def test_unknown_labels_can_be_marked_in_the_labels(mark):
    for name, case in hostile.CASES.items():
        if case.where is not None:
            labels = np.where(case.where, case.labels, mark).astype("f")
            for got, wanted in zip(
                loss_and_gradient("zlpr_loss", case.logits, labels, unknown=True),
                hostile.reference(name, "zlpr_loss"),
                strict=True,
            ):
                np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"unknown": True}])
def test_a_step_needs_no_more_memory_than_binary_cross_entropy(settings):
    """What XLA plans beside arguments and results, so that one copy more is seen."""
    logits, labels = jnp.zeros((64, 1000)), jnp.zeros((64, 1000))
    losses = (lambda x, t: ours.zlpr_loss(x, t, **settings).mean(), lambda x, t: sigmoid_binary_cross_entropy(x, t).mean())
    compiled = (jax.jit(jax.value_and_grad(loss)).lower(logits, labels).compile() for loss in losses)
    own, other = (step.memory_analysis().temp_size_in_bytes for step in compiled)
    assert own <= 1.1 * other


def test_the_threshold_gets_its_gradient():
    logits, labels = torch.randn(3, 4), torch.eye(3, 4)
    s0 = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    value = manyhot.tlpr_loss(logits, labels, s0, engine="torch")
    value.backward()
    found, gradient = jax.value_and_grad(lambda t: ours.tlpr_loss(logits.numpy(), labels.numpy(), t).mean())(
        jnp.asarray(s0.detach().numpy())
    )
    np.testing.assert_allclose(found, value.item(), rtol=1e-6)
    np.testing.assert_allclose(gradient, s0.grad.numpy(), rtol=1e-5)


def test_vmap_is_a_loop_over_rows_and_another_axis_is_the_transpose():
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=(5, 7)).astype("f"), random.random((5, 7)) < 0.3
    rows = ours.zlpr_loss(logits, labels)
    np.testing.assert_allclose(jax.vmap(ours.zlpr_loss)(logits, labels), rows, rtol=1e-6)
    np.testing.assert_allclose(ours.zlpr_loss(logits.T, labels.T, axis=0), rows, rtol=1e-6)
    grads = jax.vmap(jax.grad(ours.zlpr_loss))(jnp.asarray(logits), labels)
    np.testing.assert_allclose(grads, loss_and_gradient("zlpr_loss", logits, labels)[1], rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("how", ["pmap", "shard_map inside", "shard_map outside"])
def test_labels_sharded_over_devices_give_the_whole_loss_and_gradient(how, sparse):
    random = np.random.default_rng(2)
    logits, labels = random.normal(size=(3, 8)).astype("f") * 5, random.random((3, 8)) < 0.3
    logits[0, 3], labels[0, 3] = 30, True
    labels[1] = False
    values, gradient = loss_and_gradient("zlpr_loss", logits, labels)
    lists = ours.PaddedLabels(jnp.asarray(np.sort(np.where(labels, np.arange(8), -1), axis=1)))

    def loss(shard, own, number):
        truth = lists.shard(2 * number, 2) if sparse else own
        return ours.zlpr_loss(shard, truth, axis_name="labels").sum()

    if how == "pmap":
        parts = logits.reshape(3, 4, 2).swapaxes(0, 1), labels.reshape(3, 4, 2).swapaxes(0, 1), np.arange(4)
        totals, found = jax.pmap(jax.value_and_grad(loss), axis_name="labels")(*parts)
        total, found = totals[0], np.asarray(found).swapaxes(0, 1).reshape(3, 8)
    else:
        mesh = Mesh(np.array(jax.devices()[:4]), ("labels",))
        split, whole = PartitionSpec(None, "labels"), PartitionSpec()

        def local(shard, own):
            return loss(shard, own, jax.lax.axis_index("labels"))

        if how == "shard_map inside":
            both = jax.shard_map(jax.value_and_grad(local), mesh=mesh, in_specs=(split, split), out_specs=(whole, split))
        else:
            both = jax.value_and_grad(jax.shard_map(local, mesh=mesh, in_specs=(split, split), out_specs=whole))
        total, found = jax.jit(both)(jnp.asarray(logits), jnp.asarray(labels))
    np.testing.assert_allclose(total, values.sum(), rtol=1e-6)
    np.testing.assert_allclose(found, gradient, rtol=1e-5, atol=1e-7)


def test_sums_of_bfloat16_are_float32():
    logits = jnp.full((1, 4096), -8.0, jnp.bfloat16)
    value, gradient = jax.value_and_grad(lambda x: ours.zlpr_loss(x, jnp.zeros((1, 4096), bool)).sum())(logits)
    assert value.dtype == jnp.float32
    assert gradient.dtype == jnp.bfloat16
    assert float(value) == pytest.approx(np.log1p(4096 * np.exp(-8)), rel=1e-5)


def test_no_labels_and_no_rows():
    for shape in ((3, 0), (0, 5)):
        value, gradient = loss_and_gradient("zlpr_loss", np.zeros(shape, "f"), np.zeros(shape, bool))
        assert value.shape == shape[:1]
        assert gradient.shape == shape
        assert (value == 0).all()


def test_wrong_uses_are_named():
    logits, labels = jnp.zeros((2, 3)), jnp.zeros((2, 3), int)
    with pytest.raises(TypeError, match="are the arguments swapped"):
        ours.zlpr_loss(labels, logits)
    with pytest.raises(ValueError, match=r"shape of `logits`, \[2, 3\]; got \[6\]"):
        ours.zlpr_loss(logits, labels.ravel())
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]; got -100. Exclude unknown labels with `where`"):
        ours.zlpr_loss(logits, jnp.array([[1, 0, -100], [0, 0, 1]]))
    with pytest.raises(ValueError, match="got 7"):
        jax.jit(lambda x: ours.bce_loss(x, np.full((2, 3), 7)))(logits)
    with pytest.raises(TypeError, match="`where` must be bool"):
        ours.zlpr_loss(logits, labels, where=labels)
    with pytest.raises(ValueError, match="have the rows of `logits`"):
        ours.zlpr_loss(logits, ours.PaddedLabels(jnp.zeros((3, 1), int)))
    with pytest.raises(TypeError, match="must hold integers"):
        ours.zlpr_loss(logits, ours.PaddedLabels(jnp.zeros((2, 1))))
    with pytest.raises(TypeError, match="smooting"):
        ours.zlpr_loss(logits, labels, smooting=0.1)
    with pytest.raises(ValueError, match=r"`smoothing` must be a number in \[0, 1\]"):
        ours.bce_loss(logits, labels, smoothing=2.0)
