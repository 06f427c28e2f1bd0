"""What must hold of the Keras classes on the backend that ``KERAS_BACKEND`` names; run by ``test_keras`` once a backend."""

import os
import re
import sys

import keras
import numpy as np
import pytest
import torch

import manyhot
from integrations import hostile
from manyhot.integrations import keras as ours

BACKEND = keras.backend.backend()
LOSSES = {
    "zlpr_loss": (ours.ZLPRLoss, {}),
    "pairwise_loss": (ours.PairwiseLoss, {"scale": 2.0, "margin": 0.25}),
    "asymmetric_loss": (ours.AsymmetricLoss, {"gamma_pos": 1.0, "gamma_neg": 4.0, "margin": 0.05}),
}


def loss_and_gradient(loss):
    """A function of labels and logits, compiled where the backend compiles; one function serves all rows of a shape."""
    if BACKEND == "torch":

        def by_torch(labels, logits):
            x = torch.tensor(logits, requires_grad=True)
            values = loss.call(torch.tensor(labels), x)
            values.sum().backward()
            return values.detach().numpy(), x.grad.numpy()

        return by_torch
    if BACKEND == "tensorflow":
        import tensorflow as tf

        @tf.function(jit_compile=True)
        def step(labels, logits):
            with tf.GradientTape() as tape:
                tape.watch(logits)
                values = loss.call(labels, logits)
            return values, tape.gradient(values, logits)

        return lambda labels, logits: tuple(part.numpy() for part in step(tf.constant(labels), tf.constant(logits)))
    import jax

    def total(logits, labels):
        values = loss.call(labels, logits)
        return values.sum(), values

    step = jax.jit(jax.grad(total, has_aux=True))
    return lambda labels, logits: tuple(np.asarray(part) for part in reversed(step(logits, labels)))


def check_hostile_rows():
    for function, (kind, settings) in LOSSES.items():
        both = loss_and_gradient(kind(**settings))
        for name, case in hostile.CASES.items():
            values, gradient = hostile.reference(name, function, **settings)
            for unknown in (-1.0, -100.0, np.nan) if case.where is not None else (None,):
                labels = case.labels if unknown is None else np.where(case.where, case.labels, unknown).astype("f")
                found, got = both(labels, case.logits)
                np.testing.assert_allclose(found, values, rtol=2e-6, atol=1e-6, err_msg=f"{function}, {name}")
                np.testing.assert_allclose(got, gradient, rtol=1e-4, atol=1e-6, err_msg=f"{function}, {name}")


def check_other_backends():
    """What a backend without functions of its own computes by, on this one; infinitely wrong scores have no gradient there."""
    if BACKEND != "tensorflow":
        return
    from manyhot.integrations.keras import rows

    for function, (kind, settings) in LOSSES.items():
        for name, case in hostile.CASES.items():
            values, _ = hostile.reference(name, function, **settings)
            arguments = {"smoothing": 0.0, **({"threshold": 0.0} if kind is ours.ZLPRLoss else {}), **settings}
            own = rows.KerasRows(*(keras.ops.convert_to_tensor(each) for each in (case.logits, case.labels)), case.where)
            found = getattr(rows.OpsRows, function.removesuffix("_loss").replace("tlpr", "zlpr"))(own, **arguments)
            np.testing.assert_allclose(found, values, rtol=2e-6, atol=1e-6, err_msg=f"{function}, {name}")


def check_labels_above_one():
    """An error where values can be seen, a loss that is NaN in a compiled step."""
    labels, logits = np.array([[0, 2, 1]], "f"), np.zeros((1, 3), "f")
    for kind, _ in LOSSES.values():
        with pytest.raises(ValueError, match=re.escape("must lie in [0, 1], or be negative or NaN where it is unknown; got 2")):
            kind()(labels, logits)
        if BACKEND != "torch":
            assert np.isnan(loss_and_gradient(kind())(labels, logits)[0]).all()


def check_infinitely_wrong():
    """An infinite loss with a finite gradient."""
    values, gradient = loss_and_gradient(ours.ZLPRLoss())(np.array([[0, 1, 0]], "f"), np.array([[np.inf, 1, -2]], "f"))
    assert values[0] == np.inf
    assert np.isfinite(gradient).all()


def check_metrics():
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=(50, 4)).astype("f"), (random.random((50, 4)) < 0.4).astype("f")
    labels[:, 3] = 0
    unknown = random.random((50, 4)) < 0.2
    for average in ("micro", "macro"):
        metric = ours.F1Score(4, average=average, threshold=[0.1, -0.2, 0.0, 0.3])
        for rows in (slice(0, 20), slice(20, 50)):
            metric.update_state(np.where(unknown, -1, labels)[rows], logits[rows])
        wanted = manyhot.Metrics([f"{average}-F1"], num_labels=4, rule=manyhot.DecisionRule(threshold=(0.1, -0.2, 0.0, 0.3)))
        wanted.update(torch.tensor(logits), torch.tensor(labels), torch.tensor(~unknown))
        np.testing.assert_allclose(float(metric.result()), float(wanted.compute()[f"{average}-F1"]), rtol=1e-6)
        again = ours.F1Score.from_config(metric.get_config())
        assert again.threshold == metric.threshold


def check_saving(folder):
    scenes = manyhot.digit_scenes(300, seed=0)
    images, labels = scenes.images.numpy().reshape(300, -1), scenes.labels.numpy().astype("f")
    labels[::7, 3] = -1
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
    loss = ours.ZLPRLoss(threshold=0.25, smoothing=0.01)
    model.compile(
        keras.optimizers.Adam(3e-3), loss=loss, metrics=[ours.F1Score(10), ours.F1Score(10, average="macro")],
        jit_compile=BACKEND != "torch",
    )  # fmt: skip
    history = model.fit(images, labels, batch_size=50, epochs=8, verbose=0).history
    assert history["loss"][-1] < 0.8 * history["loss"][0], history["loss"]
    before = model.evaluate(images, labels, verbose=0, return_dict=True)
    path = os.path.join(folder, f"{BACKEND}.keras")
    model.save(path)
    again = keras.models.load_model(path)
    assert isinstance(again.loss, ours.ZLPRLoss)
    assert (again.loss.threshold, again.loss.smoothing) == (0.25, 0.01)
    after = again.evaluate(images, labels, verbose=0, return_dict=True)
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-5)


def check_wrong_uses():
    wrong = [
        (lambda: ours.ZLPRLoss()(np.zeros((2, 1)), np.zeros((2, 3), "f")), "not label numbers"),
        (lambda: ours.ZLPRLoss()(np.zeros(6), np.zeros((2, 3), "f")), "must have the shape of `y_pred`, [2, 3]"),
        (lambda: ours.ZLPRLoss(smoothing=2), "`smoothing`"),
        (lambda: ours.PairwiseLoss(scale=0), "`scale`"),
        (lambda: ours.F1Score(3, average="weighted"), "`average` must be one of"),
        (lambda: ours.F1Score(3).update_state(np.zeros((2, 4)), np.zeros((2, 4))), "num_labels = 3 columns"),
    ]
    for call, message in wrong:
        with pytest.raises(ValueError, match=re.escape(message)):
            call()


if __name__ == "__main__":
    check_hostile_rows()
    check_other_backends()
    check_labels_above_one()
    check_infinitely_wrong()
    check_metrics()
    check_saving(sys.argv[1])
    check_wrong_uses()
    print(f"Keras {keras.__version__} on {BACKEND}: all checks hold")
