"""The loss of an ensemble: a loss of the catalog, called once for all members with equal knobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from manyhot.comparison.methods import AUTO, LABELS, POWERSET, Method
from manyhot.losses.catalog import get_loss
from manyhot.losses.divergence import rdrop_loss
from manyhot.losses.two_way import two_way_loss
from manyhot.losses.zlpr import tlpr_loss
from manyhot.training.rows.choose import MOST_WEIGHT
from manyhot.training.rows.rules.tracking_threshold import TrackingThreshold, density_cut

Loss = Callable[..., Tensor]
MOST_PAIRS = 1000


class MemberLoss:
    """The loss of a batch: the sum over members of the mean over rows.

    Args:
        method: the loss and its options.
        trials: the settings of each trial; trials with equal knobs are adjacent.
        seeds: the number of seeds.
        num_labels: L.
        device: the device.
    """

    def __init__(
        self, method: Method, trials: Sequence[dict[str, float]], *, seeds: int, num_labels: int, device: torch.device
    ) -> None:
        self.method = method
        self.parts: list[tuple[slice, dict[str, float]]] = []
        start = 0
        for knobs, same in groupby(trials, key=lambda trial: {k: v for k, v in trial.items() if k != "learning_rate"}):
            stop = start + len(list(same))
            self.parts.append((slice(start, stop), {**knobs}))
            start = stop
        self.num_labels = num_labels
        learns = bool(method.options.get("threshold"))
        self.threshold = torch.zeros(seeds, len(trials), device=device, requires_grad=True) if learns else None
        self.cut = TrackingThreshold(seeds, len(trials)).to(device) if method.options.get("pos_weight") == AUTO else None
        self.most = torch.full((seeds, len(trials)), float("inf"), device=device)

    @property
    def learned(self) -> list[Tensor]:
        """Parameters besides the weights, ``[S, T]`` each."""
        return [] if self.threshold is None else [self.threshold]

    @property
    def boundary(self) -> Tensor | None:
        """``[S, T]``: the threshold above which a label is predicted; None if it is zero."""
        return self.threshold if self.cut is None else torch.minimum(self.cut.value, self.most)

    def bound(self, seed: int, held: Tensor, density: float) -> None:
        """Limit the tracked threshold by scores ``[T, N, L]`` of held-out rows."""
        if self.cut is not None:
            self.most[seed] = density_cut(held, density)

    def __call__(self, logits: Tensor, labels: Tensor, again: Tensor | None, draws: Sequence[torch.Generator]) -> Tensor:
        """The loss of ``logits [S, B, T, K]`` and ``labels [S, B, L]`` (class numbers ``[S, B]`` for label powerset); ``again``
        are the logits of R-Drop's second pass.
        """
        rows = logits.shape[1]
        if self.method.loss == POWERSET:
            # cross_entropy expects the classes on the second axis.
            target = labels.unsqueeze(2).expand(logits.shape[:3])
            return torch.nn.functional.cross_entropy(logits.flatten(0, 2), target.flatten(), reduction="sum") / rows
        if self.cut is not None:
            self.cut.update(logits.detach(), labels.unsqueeze(2))
        total = logits.new_zeros(())
        for place, knobs in self.parts:
            part = logits[:, :, place]
            wide = labels.unsqueeze(2).expand(part.shape)
            settings = {**{k: v for k, v in self.method.options.items() if k == "smoothing" and v is not None}, **knobs}
            alpha = settings.pop("rdrop", self.method.options.get("rdrop"))
            loss = self._loss(place, settings, draws)
            if again is None:
                total = total + loss(part, wide, reduction="sum")
            else:
                total = total + rdrop_loss(part, again[:, :, place], wide, alpha=float(alpha or 0), loss=loss, reduction="sum")
        return total / rows

    def _loss(self, place: slice, settings: dict[str, float], draws: Sequence[torch.Generator]) -> Loss:
        """``(logits [S, B, t, L], labels, reduction="sum") -> sum over rows and members``.

        It is a ``partial`` of the public function of the loss, because ``rdrop_loss`` fuses two passes only for functions that
        it knows.
        """
        name, weight = self.method.loss, self.method.options.get("pos_weight")
        given: dict[str, Any] = {**settings}
        if weight not in (None, AUTO):
            given["pos_weight"] = float(min(self.num_labels, MOST_WEIGHT)) if weight == LABELS else weight
        if self.threshold is not None:
            return partial(_with_threshold, threshold=self.threshold[:, place], **given)
        if name == "two_way":
            return partial(_two_way, **given)
        if name == "lsep":
            # With few labels no row has more pairs than the limit, so all pairs are used without sampling.
            all_pairs = self.num_labels**2 // 4 <= MOST_PAIRS
            return partial(_lsep, draws=None if all_pairs else draws, **given)
        if get_loss(name).takes("label_reduction"):
            given["label_reduction"] = "sum"
        info = get_loss(name)
        return partial(info.function, **{**info.settings, **given})


def _with_threshold(logits: Tensor, labels: Tensor, *, threshold: Tensor, **settings: Any) -> Tensor:
    rows = threshold.unsqueeze(1).expand(logits.shape[:3])
    return tlpr_loss(logits, labels, rows, **settings)


def _two_way(logits: Tensor, labels: Tensor, *, reduction: str, **settings: Any) -> Tensor:
    """The two-way loss of each member: its mean over rows plus its mean over labels, both over those with a positive, times the
    number of rows.
    """
    assert reduction == "sum"
    total = logits.new_zeros(())
    for x, t in ((logits.transpose(1, 2), labels.transpose(1, 2)), (logits.permute(0, 2, 3, 1), labels.permute(0, 2, 3, 1))):
        values = two_way_loss(x, t, batch_weight=0, reduction="none", **settings)
        counts = (t > 0).any(dim=-1).sum(dim=-1).clamp(min=1)
        total = total + (values.sum(dim=-1) / counts).sum()
    return total * logits.shape[1]


def _lsep(
    logits: Tensor, labels: Tensor, *, draws: Sequence[torch.Generator] | None, reduction: str, **settings: Any
) -> Tensor:
    lsep = get_loss("lsep")
    if draws is None:
        return lsep(logits, labels, max_pairs=None, reduction=reduction, **settings)
    parts = zip(logits, labels, draws, strict=True)
    return torch.stack([lsep(x, t, generator=draw, reduction=reduction, **settings) for x, t, draw in parts]).sum()
