"""Every integration with a loss gives the values and gradients of the torch reference on the hostile rows.

The integrations are read off the registry: a new one needs an entry here, or the first test says that it has none.
"""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from integrations import hostile
from manyhot.integrations.registry import INTEGRATIONS


def by_torch(loss, case, labels):
    """Value of the mean and gradient of the sum of a torch loss ``loss(logits, labels)``."""
    logits = torch.tensor(case.logits, requires_grad=True)
    value = loss(logits, torch.tensor(labels))
    value.backward()
    return value.item(), logits.grad.numpy() * len(case.logits)


def with_unknown(case, mark):
    return case.labels if case.where is None else np.where(case.where, case.labels, mark).astype("f")


def huggingface(case):
    from manyhot.integrations.huggingface import TrainerLoss

    return by_torch(lambda x, t: TrainerLoss("zlpr")({"logits": x}, t), case, with_unknown(case, np.nan))


def sentence_transformers(case):
    from manyhot.integrations import sentence_transformers as ours

    def loss(x, t):
        model = torch.nn.Module()
        model.num_labels, model.device = max(x.shape[1], 2), "cpu"
        model.preprocess = lambda texts, **_: {"rows": torch.arange(len(texts))}
        model.forward = lambda features: {"scores": x[features["rows"]]}
        return ours.MultiLabelLoss(model)([["text"] * len(x)], t)

    return by_torch(loss, case, with_unknown(case, np.nan))


def fastai(case):
    pytest.importorskip("fastai")
    from manyhot.integrations.fastai import MultiLabelLoss

    if case.where is not None:
        pytest.skip("fastai's losses have no unknown labels")
    return by_torch(MultiLabelLoss("zlpr"), case, case.labels)


def jax(case):
    import jax
    import jax.numpy as jnp

    from manyhot.integrations.jax import zlpr_loss

    step = jax.value_and_grad(lambda x: zlpr_loss(x, case.labels, where=case.where).sum())
    total, gradient = step(jnp.asarray(case.logits))
    return float(total) / len(case.logits), np.asarray(gradient)


def keras(case):
    from manyhot.integrations.keras import ZLPRLoss

    return by_torch(lambda x, t: ZLPRLoss()(t, x), case, with_unknown(case, -1.0))


def spacy(case):
    from manyhot.integrations.spacy import zlpr_rows

    where = np.ones(case.logits.shape, bool) if case.where is None else case.where
    with np.errstate(all="ignore"):
        values, gradient = zlpr_rows(np, case.logits, case.labels, where)
    return float(values.mean()), gradient


LOSSES = {each.__name__: each for each in (huggingface, sentence_transformers, fastai, jax, keras, spacy)}
# Why the others have none.
WITHOUT = {
    "lightning": "training_step calls manyhot's own functions",
    "optuna": "it trains by manyhot.train",
    "mlflow": "it serves",
    "tracking": "it logs",
}


def test_every_integration_is_tried_or_has_no_loss():
    assert {*LOSSES, *WITHOUT} == set(INTEGRATIONS)
    for name in WITHOUT:
        module = importlib.import_module(f"manyhot.integrations.{name}")
        own = [each for each, kind in vars(module).items() if getattr(kind, "__module__", "") == module.__name__]
        assert not [each for each in own if each.lower().endswith("loss")], name


@pytest.mark.parametrize("case", hostile.CASES)
@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients_are_those_of_torch_on_hostile_rows(name, case):
    values, gradient = hostile.reference(case, "zlpr_loss")
    found, got = LOSSES[name](SimpleNamespace(**hostile.CASES[case]._asdict()))
    np.testing.assert_allclose(found, values.mean(), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(got, gradient, rtol=1e-4, atol=1e-6)
