"""Images: tensors and numpy arrays are the same to training, to a model and to the estimator."""

import numpy as np
import pytest
import torch

from manyhot import Examples, ManyhotClassifier, SparseLabels, TrainSettings, digit_scenes, train

SETTINGS = {"epochs": 2, "hidden": 8, "batch_size": 16, "learning_rate": 0.01, "threads": 1}


@pytest.fixture(scope="module")
def scenes():
    return digit_scenes(60)


@pytest.fixture(scope="module")
def model(scenes):
    labels = SparseLabels.from_dense(scenes.labels)
    return train(Examples(labels, tuple("0123456789"), images=scenes.images.numpy()), TrainSettings(**SETTINGS))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_arrays_are_predicted_as_tensors_are(model, scenes, kind):
    array = scenes.images.numpy().astype(kind)
    wanted = model.logits(scenes.images)
    assert torch.equal(model.logits(array), wanted)
    assert torch.equal(model.logits(array[::-1]), wanted.flip(0))
    assert model.predict(array).lists() == model.predict(scenes.images).lists()
    assert torch.equal(model.probabilities(array), model.probabilities(scenes.images))


def test_bytes_are_taken_as_parts_of_255(model, scenes):
    array = (scenes.images.numpy().clip(0, 1) * 255).astype(np.uint8)
    torch.testing.assert_close(model.logits(array), model.logits(torch.from_numpy(array).float() / 255))


def test_what_is_no_image_is_refused(model):
    with pytest.raises(TypeError, match=r"or array \[N, C, H, W\]; got torch.float64 \[2, 3\]"):
        model.logits(np.zeros((2, 3)))
    with pytest.raises(TypeError, match="got list"):
        model.logits([[1.0]])


def test_the_estimator_takes_images(model, scenes, tmp_path):
    images, labels = scenes.images.numpy(), scenes.labels.numpy().astype(int)
    fitted = ManyhotClassifier(**SETTINGS).fit(images, labels)
    assert np.array_equal(fitted.decision_function(images), model.logits(scenes.images).double().numpy())
    assert np.array_equal(fitted.predict(scenes.images), fitted.predict(images))
    fitted.save(tmp_path / "model")
    assert np.array_equal(ManyhotClassifier.load(tmp_path / "model").predict(images), fitted.predict(images))
    with pytest.raises(ValueError, match="X must be images, as the model was trained on; got texts"):
        fitted.predict(["some text"])
    with pytest.raises(ValueError, match="X must be images"):
        fitted.predict(np.zeros((2, 3)))
