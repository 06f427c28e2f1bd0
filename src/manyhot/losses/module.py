"""The base of every loss's ``nn.Module``: it holds settings and makes one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from manyhot.losses.core.layout import Labels
from manyhot.losses.core.logsumexp import Scores


class LossModule(nn.Module):
    """Settings of one loss function; tensors among them are buffers, so that ``.to(device)`` moves them."""

    def __init__(self, function: Callable[..., Tensor], **settings: Any) -> None:
        super().__init__()
        self.function = function
        self.settings = {name: value for name, value in settings.items() if not isinstance(value, Tensor)}
        for name, value in settings.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)

    def current_settings(self) -> dict[str, Any]:
        """All settings, buffers included."""
        # Most losses have no buffers; collecting them would take as long as a small loss.
        return self.settings | dict(self.named_buffers(recurse=False)) if self._buffers else dict(self.settings)

    def forward(
        self, logits: Scores, labels: Labels, *, where: Tensor | None = None, sample_weight: Tensor | None = None
    ) -> Tensor:
        """The loss; ``logits [..., L]``, ``labels`` likewise or ``SparseLabels``."""
        return self.function(logits, labels, where=where, sample_weight=sample_weight, **self.current_settings())

    def extra_repr(self) -> str:
        """The settings that are not None."""
        given = {name: value for name, value in self.current_settings().items() if value is not None}
        return ", ".join(
            f"{name}={list(value.shape) if isinstance(value, Tensor) else repr(value)}" for name, value in given.items()
        )
