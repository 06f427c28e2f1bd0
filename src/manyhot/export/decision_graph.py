"""Link and decision rule as traceable modules, from operations that ONNX supports."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from manyhot.decisions.best_labels import top_mask
from manyhot.decisions.calibrate import Calibration
from manyhot.decisions.rule import DecisionRule
from manyhot.decisions.set_values import LARGEST, SetValues

INF = float("inf")
# Largest number of entries in the table of label sets of a graph: 200 MB.
LARGEST_SETS = 50_000_000


class LinkGraph(nn.Module):
    """Probabilities ``[B, L]`` of logits by a link or a calibration."""

    def __init__(self, link: str | Calibration | None) -> None:
        super().__init__()
        self.kind = link.kind if isinstance(link, Calibration) else str(link)
        if isinstance(link, Calibration):
            for name in ("slope", "intercept", "knots", "levels"):
                self.register_buffer(name, getattr(link, name).float())

    def forward(self, logits: Tensor) -> Tensor:
        """Probabilities."""
        if self.kind == "softmax":
            return torch.softmax(logits, dim=-1)
        if self.kind in ("hard", "soft"):
            return torch.sigmoid(2 * logits if self.kind == "soft" else logits)
        if self.kind == "isotonic":
            return self._interpolated(logits)
        return torch.sigmoid(self.slope * logits + self.intercept)  # type: ignore[operator]

    def _interpolated(self, scores: Tensor) -> Tensor:
        knots: Any = self.knots
        levels: Any = self.levels
        if len(knots) == 1:
            return torch.where(scores.isnan(), scores, levels)
        right = (knots < scores.unsqueeze(-1)).sum(dim=-1).clamp(1, len(knots) - 1)
        start, stop = knots[right - 1], knots[right]
        apart = torch.where(stop > start, stop - start, 1.0)
        share = torch.where(stop > start, (scores - start) / apart, 0.5).clamp(0, 1)
        return levels[right - 1] + share * (levels[right] - levels[right - 1])  # type: ignore[no-any-return]


class _Sets(nn.Module):
    """``SetValues.chosen``, with a dense table of the sets' labels."""

    members: Tensor
    worth: Tensor

    def __init__(self, sets: SetValues, num_labels: int, lower: int, upper: int | None) -> None:
        super().__init__()
        if len(sets.sets) * num_labels > LARGEST_SETS:
            raise ValueError(
                f"export: a table of {len(sets.sets):,} label sets and {num_labels:,} labels is too large for a graph."
                " Tune thresholds instead: manyhot tune --metric micro-F1"
            )
        table = torch.zeros(len(sets.sets), num_labels)
        for place, own in enumerate(sets.sets):
            table[place, list(own)] = 1.0
        most = num_labels if upper is None else upper
        barred = torch.tensor([not lower <= len(own) <= most for own in sets.sets])
        self.register_buffer("members", table)
        self.register_buffer("worth", torch.tensor(sets.values).masked_fill(barred, -INF))
        self.other = max(sets.other, -LARGEST * num_labels)

    def forward(self, margin: Tensor, free: Tensor) -> Tensor:
        barred = margin.isnan() | (margin == -INF)
        counted = torch.where(barred, 0.0, margin.clamp(-LARGEST, LARGEST))
        totals = counted @ self.members.T + self.worth
        totals = torch.where((barred.to(totals.dtype) @ self.members.T) > 0, -INF, totals)
        best, place = totals.max(dim=-1, keepdim=True)
        freely = torch.where(free, counted, 0.0).sum(dim=-1, keepdim=True) + self.other
        listed = self.members[place.squeeze(-1)] > 0
        # onnxruntime has no Where for bool.
        by_list = (best >= freely) & (best > -INF)
        return (by_list & listed) | (~by_list & free)


class RuleGraph(nn.Module):
    """Decisions ``[B, L]``, bool: ``manyhot.decide`` for one rule."""

    cut: Tensor

    def __init__(self, rule: DecisionRule, num_labels: int) -> None:
        super().__init__()
        self.per_label = isinstance(rule.threshold, tuple)
        listed = rule.threshold if isinstance(rule.threshold, tuple) else (rule.threshold,)
        # Rounded down to float32: a float32 score is above it exactly if it is above the threshold itself.
        near = [np.float32(value) for value in listed]
        down = [np.nextafter(n, np.float32(-INF)) if float(n) > value else n for n, value in zip(near, listed, strict=True)]
        self.register_buffer("cut", torch.tensor([float(value) for value in down]))
        top = rule.top_k
        self.lower = min(rule.min_labels if top is None else top, num_labels)
        upper = rule.max_labels if top is None else top
        self.upper = None if upper is None else min(upper, num_labels)
        self.sets = None if rule.sets is None else _Sets(rule.sets, num_labels, self.lower, self.upper)
        self.softmax, self.row_f1 = rule.softmax, rule.row_f1

    def forward(self, logits: Tensor) -> Tensor:
        """Decisions."""
        logits = logits - logits.logsumexp(dim=-1, keepdim=True) if self.softmax else logits
        logits = logits if self.row_f1 is None else self.row_f1.relative(logits)
        chosen = self._by_threshold(logits)
        return chosen if self.sets is None else self.sets(logits - self.cut, chosen)

    def _by_threshold(self, logits: Tensor) -> Tensor:
        chosen = logits > self.cut
        if self.upper is None and not self.lower:
            return chosen
        key = logits - self.cut if self.per_label else logits
        key = torch.where(key.isnan(), -INF, key)
        if self.upper == self.lower:
            return top_mask(key, self.lower)
        if self.upper is not None:
            chosen = chosen & top_mask(key, self.upper)
        return chosen | top_mask(key, self.lower) if self.lower else chosen
