"""Digit scenes: built-in multi-label images, which need no download.

A canvas of cells, each empty or holding a real handwritten digit (scikit-learn's bundled set, 8 x 8 pixels) with a small
shift and noise. The labels of a scene are the digits in it, possibly none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_unit

CELL = 10
BALANCED = (1.0,) * 10
IMBALANCED = (1.0, 0.5, 0.25, 0.125, 0.06, 0.03, 0.015, 0.008, 0.004, 0.002)


class DigitScenes(NamedTuple):
    """Images ``[N, 1, H, W]`` in float32, and labels bool ``[N, 10]``: which digits they show."""

    images: Tensor
    labels: Tensor


def digit_scenes(
    num_examples: int,
    *,
    part: str = "train",
    grid: tuple[int, int] = (2, 3),
    fill: float = 0.5,
    frequencies: Sequence[float] = BALANCED,
    noise: float = 0.1,
    seed: int = 0,
) -> DigitScenes:
    """Make scenes; the same arguments give the same scenes.

    Args:
        num_examples: N.
        part: ``"train"`` or ``"test"``; they use different handwritten digits.
        grid: rows and columns of cells; a cell is 10 x 10 pixels.
        fill: probability that a cell holds a digit.
        frequencies: the relative frequency of each of the ten digits. ``IMBALANCED`` makes the 9 five hundred times rarer than
            the 0.
        noise: standard deviation of the pixel noise; ink is 1.
        seed: the random seed.

    Returns:
        ``DigitScenes(images, labels)``.

    Example:
        >>> scenes = digit_scenes(100, seed=1)
        >>> scenes.images.shape, scenes.labels.shape, scenes.labels.dtype
        (torch.Size([100, 1, 20, 30]), torch.Size([100, 10]), torch.bool)
    """
    if part not in ("train", "test"):
        raise ValueError(f"digit_scenes: `part` must be 'train' or 'test'; got {part!r}.")
    check_at_least("digit_scenes", "num_examples", num_examples, 0)
    check_unit("digit_scenes", "fill", fill)
    check_at_least("digit_scenes", "noise", noise, 0)
    shares = np.asarray(frequencies, dtype=np.float64)
    if shares.shape != (10,) or not (shares >= 0).all() or shares.sum() == 0:
        raise ValueError(f"digit_scenes: `frequencies` must be ten numbers >= 0, not all 0; got {list(frequencies)}.")
    rows, columns = grid
    check_at_least("digit_scenes", "grid", min(rows, columns), 1)
    random = np.random.default_rng([seed, part == "test"])
    glyphs, digits = _handwriting(part)
    cells = rows * columns
    drawn = random.choice(10, size=(num_examples, cells), p=shares / shares.sum())
    filled = random.random((num_examples, cells)) < fill
    pixels = np.zeros((num_examples, cells, CELL, CELL), dtype=np.float32)
    shifts = random.integers(0, CELL - 8 + 1, size=(num_examples, cells, 2))
    pick = random.random((num_examples, cells))
    for digit in range(10):
        own = np.flatnonzero(digits == digit)
        which = filled & (drawn == digit)
        chosen = glyphs[own[(pick[which] * len(own)).astype(np.int64)]]
        _paste(pixels, np.nonzero(which), shifts[which], chosen)
    labels = np.zeros((num_examples, 10), dtype=bool)
    scene, cell = np.nonzero(filled)
    labels[scene, drawn[scene, cell]] = True
    canvas = pixels.reshape(num_examples, rows, columns, CELL, CELL).transpose(0, 1, 3, 2, 4)
    images = canvas.reshape(num_examples, 1, rows * CELL, columns * CELL)
    images = images + random.normal(0, noise, images.shape).astype(np.float32)
    return DigitScenes(torch.from_numpy(images.astype(np.float32)), torch.from_numpy(labels))


def _handwriting(part: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images ``[N, 8, 8]`` in [0, 1] and digits ``[N]``: four of five for training, the fifth for testing."""
    from sklearn.datasets import load_digits

    bundled = load_digits()
    kept = (np.arange(len(bundled.target)) % 5 == 4) == (part == "test")
    return (bundled.images[kept] / 16).astype(np.float32), bundled.target[kept]


def _paste(
    pixels: np.ndarray[Any, Any],
    places: tuple[np.ndarray[Any, Any], ...],
    shifts: np.ndarray[Any, Any],
    glyphs: np.ndarray[Any, Any],
) -> None:
    scene, cell = (place[:, None, None] for place in places)
    down = shifts[:, 0, None, None] + np.arange(8)[:, None]
    right = shifts[:, 1, None, None] + np.arange(8)[None, :]
    pixels[scene, cell, down, right] = glyphs
