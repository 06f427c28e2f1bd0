import pytest
import torch

from manyhot import digit_scenes
from manyhot.data.sets.digit_scenes import IMBALANCED


def test_the_same_arguments_give_the_same_scenes():
    one, two, other = digit_scenes(50, seed=3), digit_scenes(50, seed=3), digit_scenes(50, seed=4)
    assert torch.equal(one.images, two.images)
    assert torch.equal(one.labels, two.labels)
    assert not torch.equal(one.images, other.images)


def test_sizes_follow_the_grid_and_some_scenes_are_empty():
    images, labels = digit_scenes(400, grid=(1, 2), fill=0.5)
    assert images.shape == (400, 1, 10, 20)
    assert images.dtype == torch.float32
    assert labels.sum(-1).max() <= 2
    assert 0.15 < (labels.sum(-1) == 0).float().mean() < 0.35


def test_the_ink_is_where_the_labels_say():
    images, labels = digit_scenes(300, grid=(1, 1), fill=0.5, noise=0.0)
    ink = images.flatten(1).sum(-1)
    assert torch.equal(ink > 0, labels.any(-1))


def test_frequencies_are_adjustable_to_a_strong_imbalance():
    labels = digit_scenes(4000, frequencies=IMBALANCED).labels.float().mean(0)
    assert labels[0] > 20 * labels[7] > 0
    only_fives = digit_scenes(50, fill=1.0, frequencies=[0, 0, 0, 0, 0, 1, 0, 0, 0, 0]).labels
    assert only_fives.sum(0).tolist() == [0, 0, 0, 0, 0, 50, 0, 0, 0, 0]


def test_train_and_test_use_different_handwriting():
    glyphs = [digit_scenes(2000, part=part, grid=(1, 1), fill=1.0, noise=0.0).images for part in ("train", "test")]
    seen = {tuple(row.tolist()) for row in (glyphs[0].flatten(1) * 16).int()}
    assert not any(tuple(row.tolist()) in seen for row in (glyphs[1].flatten(1) * 16).int())


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="`part` must be 'train' or 'test'; got 'dev'"):
        digit_scenes(1, part="dev")
    with pytest.raises(ValueError, match="ten numbers >= 0"):
        digit_scenes(1, frequencies=[1.0])
    with pytest.raises(ValueError, match=r"`fill` must be a number in \[0, 1\]; got 2"):
        digit_scenes(1, fill=2)
    assert digit_scenes(0).images.shape[0] == 0
