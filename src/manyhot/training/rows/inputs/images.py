"""Images, scaled channel by channel."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from manyhot.data.examples import Examples
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.schema import TEXT, Schema


class ImageInputs:
    """Images ``[N, C, H, W]``, scaled to mean 0 and standard deviation 1 per channel."""

    kind = "images"
    gives_sparse = False
    schema: ClassVar[Schema] = {"kind": TEXT}

    def __init__(self, means: Tensor, scale: Tensor) -> None:
        self.means, self.scale = means, scale

    @classmethod
    def fit(cls, examples: Examples, settings: TrainSettings) -> tuple[ImageInputs, Any]:
        """Means and scales of the training images, and these images prepared."""
        del settings
        images = _checked_images(examples.images)
        means, scale = images.mean(dim=(0, 2, 3)), images.std(dim=(0, 2, 3), correction=0)
        fitted = cls(means, torch.where(scale > 0, scale, 1.0))
        return fitted, fitted.rows(images)

    @property
    def width(self) -> int:
        """How many channels."""
        return len(self.means)

    def rows(self, inputs: Any) -> Tensor:
        """Prepared images of ``Examples``, or a tensor or array ``[N, C, H, W]``: whole numbers from 0 to 255, or floats."""
        images = _checked_images(inputs.images if isinstance(inputs, Examples) else inputs)
        if images.shape[1] != self.width:
            raise ValueError(f"TrainedModel: the model reads images with {self.width} channels; got {images.shape[1]}.")
        return (images - self.means[:, None, None]) / self.scale[:, None, None]

    def to_json(self) -> dict[str, Any]:
        """The description as JSON, without the tensors."""
        return {"kind": self.kind}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the description."""
        return {"means": self.means, "scale": self.scale}

    @classmethod
    def from_parts(cls, data: dict[str, Any], tensors: dict[str, Tensor]) -> ImageInputs:
        """From the results of ``to_json`` and ``tensors``."""
        del data
        means, scale = tensors["means"], tensors["scale"]
        if means.ndim != 1 or means.shape != scale.shape or not bool((scale > 0).all()):
            raise ValueError("ImageInputs: there must be one mean and one scale > 0 for each channel.")
        return cls(means, scale)


def _checked_images(images: Any) -> Tensor:
    if isinstance(images, np.ndarray) and images.dtype.kind in "fiub":
        images = torch.from_numpy(np.ascontiguousarray(images))
    if not isinstance(images, Tensor) or images.ndim != 4:
        got = f"{images.dtype} {list(images.shape)}" if hasattr(images, "shape") else type(images).__name__
        raise TypeError(
            f"TrainedModel: the model reads images; give Examples with images, or a tensor or array [N, C, H, W]; got {got}."
        )
    return images.float() if images.is_floating_point() else images.float() / 255
