import numpy as np
import pytest
import torch

pytest.importorskip("fastai")
import fastai.callback.progress  # noqa: F401 - gives learners no_bar
from fastai.data.core import DataLoaders
from fastai.learner import Learner

from manyhot import DecisionRule, decide, digit_scenes
from manyhot.integrations.fastai import MultiLabelLoss


def test_a_learner_trains_and_decodes_by_the_rule():
    torch.manual_seed(0)
    images, labels = digit_scenes(200)
    rows = [(image.flatten(), own.float()) for image, own in zip(images, labels, strict=True)]
    loaders = DataLoaders.from_dsets(rows, rows, bs=50, device="cpu")
    rule = DecisionRule(threshold=tuple(np.linspace(-0.5, 0.5, 10).tolist()))
    learner = Learner(loaders, torch.nn.Linear(600, 10), loss_func=MultiLabelLoss("zlpr", rule=rule), lr=1e-2)
    before = learner.loss_func(learner.model(images.flatten(1)), labels.float()).item()
    with learner.no_bar(), learner.no_logging():
        learner.fit(5)
        probabilities, _, decoded = learner.get_preds(dl=loaders.valid, with_decoded=True)
    with torch.no_grad():
        logits = learner.model(images.flatten(1))
    torch.testing.assert_close(probabilities, logits.sigmoid())
    assert torch.equal(decoded, decide(logits, rule))
    assert learner.loss_func(logits, labels.float()).item() < 0.8 * before


def test_wrong_uses_are_named():
    with pytest.raises(ValueError, match="do not flatten"):
        MultiLabelLoss()(torch.zeros(2, 3), torch.zeros(6))
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        MultiLabelLoss()(torch.zeros(2, 3), torch.tensor([[1, 0, -100], [0, 0, 1]]))
    with pytest.raises(ValueError, match="must give each label a probability; pairwise does not"):
        MultiLabelLoss("pairwise")
