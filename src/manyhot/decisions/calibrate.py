"""Calibration: the map from scores to probabilities, fitted on held-out data."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_choice, check_logits
from manyhot._files import write_whole
from manyhot.decisions.calibration.affine import fit_affine
from manyhot.decisions.calibration.data import CalibrationData
from manyhot.decisions.calibration.isotonic import fit_isotonic
from manyhot.engines.terms import accumulation_dtype
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.logsumexp import Scores

KINDS = ("temperature", "platt", "per-label", "isotonic")
FORMAT = "manyhot-calibration-1"


def _nothing() -> Tensor:
    return torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Calibration:
    """A fitted link: ``sigma(slope s + intercept)``, or an increasing map through knots. Made by ``fit_calibration``.

    Args:
        kind: ``"temperature"``, ``"platt"``, ``"per-label"`` or ``"isotonic"``.
        slope: float64 ``[1]``, or ``[L]`` for ``"per-label"``; empty for ``"isotonic"``.
        intercept: the same shape.
        knots: float64 ``[K]``, increasing scores, for ``"isotonic"``; linear between them, constant outside.
        levels: float64 ``[K]``, the probabilities at the knots.

    Example:
        >>> calibration = Calibration("platt", torch.tensor([2.0]).double(), torch.tensor([-1.0]).double())
        >>> calibration(torch.tensor([[0.5, 0.0]]))
        tensor([[0.5000, 0.2689]])
    """

    kind: str
    slope: Tensor = field(default_factory=_nothing)
    intercept: Tensor = field(default_factory=_nothing)
    knots: Tensor = field(default_factory=_nothing)
    levels: Tensor = field(default_factory=_nothing)

    def __post_init__(self) -> None:
        check_choice("Calibration", "kind", self.kind, KINDS)
        wanted, other = _part_names(self.kind), _part_names("platt" if self.kind == "isotonic" else "isotonic")
        sizes = {len(getattr(self, name)) for name in wanted}
        size = sizes.pop()
        if sizes or size == 0 or any(len(getattr(self, name)) for name in other):
            raise ValueError(f"Calibration: kind {self.kind!r} must have {' and '.join(wanted)} of one size, and nothing else.")
        if self.kind in ("temperature", "platt") and size != 1:
            raise ValueError(f"Calibration: kind {self.kind!r} must have one slope and intercept; got {size}.")
        for name in wanted:
            part = getattr(self, name)
            if part.dtype != torch.float64 or part.ndim != 1 or not bool(part.isfinite().all()):
                raise ValueError(f"Calibration: `{name}` must be finite float64 with one axis; got {part.dtype}.")
        if bool((self.knots.diff() <= 0).any()) or bool((self.levels.diff() < 0).any()):
            raise ValueError("Calibration: `knots` must increase and `levels` must not decrease.")

    def __call__(self, logits: Tensor) -> Tensor:
        """Probabilities ``[..., L]`` of scores on any device; float32, or float64 for float64 logits."""
        check_logits("Calibration", logits)
        scores = logits.to(accumulation_dtype(logits.dtype))
        if self.kind == "isotonic":
            return _interpolate(scores, self.knots.to(scores), self.levels.to(scores))
        if self.kind == "per-label" and len(self.slope) != logits.shape[-1]:
            raise ValueError(
                f"Calibration: `logits` must have the {len(self.slope)} labels it was fitted on; got {logits.shape[-1]}."
                " Use the calibration that was saved with this model."
            )
        return torch.sigmoid(self.slope.to(scores) * scores + self.intercept.to(scores))

    def to_json(self) -> dict[str, Any]:
        """A dict for ``json.dumps`` that ``from_json`` reads back exactly."""
        parts = {name: getattr(self, name).tolist() for name in _part_names(self.kind)}
        return {"format": FORMAT, "kind": self.kind, **parts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """From the dict of ``to_json``."""
        parts = {
            name: torch.tensor(value, dtype=torch.float64) for name, value in data.items() if name not in ("format", "kind")
        }
        return _from_parts("Calibration.from_json", data.get("format"), data.get("kind"), parts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``*.json`` or ``*.safetensors`` atomically."""
        if _suffix("Calibration.save", path) == ".json":
            content = (json.dumps(self.to_json(), indent=1) + "\n").encode()
        else:
            from safetensors.torch import save

            parts = {name: getattr(self, name).cpu().contiguous() for name in _part_names(self.kind)}
            content = save(parts, metadata={"format": FORMAT, "kind": self.kind})
        write_whole(Path(path), content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Load a file that ``save`` wrote; names, types and sizes are checked, nothing is unpickled."""
        if _suffix("Calibration.load", path) == ".json":
            return cls.from_json(json.loads(Path(path).read_text()))
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            parts = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        return _from_parts("Calibration.load", about.get("format"), about.get("kind"), parts)


def fit_calibration(
    logits: Scores,
    labels: Tensor | SparseLabels,
    *,
    kind: str = "platt",
    where: Tensor | None = None,
    shrink: float = 5.0,
) -> Calibration:
    """Fit the map from scores to probabilities on data the model was not trained on.

    The affine kinds minimise the log-loss of ``sigma(a s + b)`` by Newton's method in float64; the problem is convex, so the
    result is the optimum for scores of any size. ``"temperature"`` has only ``a``, ``"platt"`` has ``a`` and ``b``, both shared
    by all labels, with Platt's targets ``(P + 1) / (P + 2)`` and ``1 / (N + 2)`` in place of 1 and 0, which keep the result
    finite for separable data. ``"per-label"`` has ``a`` and ``b`` for each label, shrunk towards the pooled ones with the
    weight of ``shrink`` positives of an average label: a label without positives gets the pooled slope and a low intercept.
    ``"isotonic"`` is the best increasing map of all scores (pool adjacent violators); it needs hard labels and can return
    exactly 0 and 1.

    Args:
        logits: ``[..., L]``, finite in all entries that count; lazy scores are made dense.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        kind: ``"temperature"``, ``"platt"``, ``"per-label"`` or ``"isotonic"``.
        where: bool, broadcastable to ``logits``; False excludes an entry.
        shrink: strength of the shrinkage of ``"per-label"``, > 0.

    Returns:
        A ``Calibration``, to be passed to ``probabilities`` as link.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> truth = torch.rand(5000, 4, generator=generator)
        >>> labels = torch.rand(5000, 4, generator=generator) < truth
        >>> fitted = fit_calibration(truth.logit() / 2 + 1, labels, kind="platt")
        >>> [round(x, 1) for x in (fitted.slope.item(), fitted.intercept.item())]
        [2.0, -2.0]
    """
    who = "fit_calibration"
    check_choice(who, "kind", kind, KINDS)
    check_at_least(who, "shrink", shrink, 0, strict=True)
    data = CalibrationData(who, logits, labels, where)
    if kind == "isotonic":
        knots, levels = fit_isotonic(who, data)
        return Calibration(kind, knots=knots, levels=levels)
    slope, intercept = fit_affine(data, with_intercept=kind != "temperature", shrink=shrink if kind == "per-label" else None)
    return Calibration(kind, slope=slope.cpu(), intercept=intercept.cpu())


def _interpolate(scores: Tensor, knots: Tensor, levels: Tensor) -> Tensor:
    if len(knots) == 1:
        return torch.where(scores.isnan(), scores, levels)
    right = torch.searchsorted(knots, scores.contiguous()).clamp(1, len(knots) - 1)
    start, stop = knots[right - 1], knots[right]
    # Distinct float64 knots may be equal in float32.
    share = torch.where(stop > start, (scores - start) / (stop - start), 0.5).clamp(0, 1)
    return levels[right - 1] + share * (levels[right] - levels[right - 1])


def _part_names(kind: str) -> tuple[str, str]:
    return ("knots", "levels") if kind == "isotonic" else ("slope", "intercept")


def _from_parts(who: str, form: Any, kind: Any, parts: dict[str, Tensor]) -> Calibration:
    if form != FORMAT:
        raise ValueError(f"{who}: the file must have the format {FORMAT!r}; got {form!r}. Save it with Calibration.save.")
    check_choice(who, "kind", kind, KINDS)
    if set(parts) != set(_part_names(kind)):
        raise ValueError(f"{who}: kind {kind!r} must have {' and '.join(_part_names(kind))}; got {', '.join(sorted(parts))}.")
    return Calibration(kind, **parts)


def _suffix(who: str, path: str | os.PathLike[str]) -> str:
    suffix = Path(path).suffix
    if suffix not in (".json", ".safetensors"):
        raise ValueError(f"{who}: `path` must end in .json or .safetensors; got {str(path)!r}.")
    return suffix
