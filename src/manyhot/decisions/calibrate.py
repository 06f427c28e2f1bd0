"""Calibration: the map from scores to probabilities, fitted on held-out data."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_choice, check_dense_labels, check_label_values, check_logits, check_where
from manyhot._files import write_whole
from manyhot.engines.terms import accumulation_dtype
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.logsumexp import LazyScores, Scores

KINDS = ("temperature", "platt", "per-label", "isotonic")
FORMAT = "manyhot-calibration-1"
BLOCK_ELEMENTS = 1 << 21


def _nothing() -> Tensor:
    return torch.zeros(0, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Calibration:
    """A fitted link: ``sigma(slope s + intercept)``, or a rising map through knots. Made by ``fit_calibration``.

    Args:
        kind: ``"temperature"``, ``"platt"``, ``"per-label"`` or ``"isotonic"``.
        slope: float64 ``[1]``, or ``[L]`` for ``"per-label"``; empty for ``"isotonic"``.
        intercept: the same shape.
        knots: float64 ``[K]``, rising scores, for ``"isotonic"``; straight lines between them, level outside.
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
            raise ValueError("Calibration: `knots` must rise and `levels` must not fall.")

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
        """From what ``to_json`` gave."""
        parts = {
            name: torch.tensor(value, dtype=torch.float64) for name, value in data.items() if name not in ("format", "kind")
        }
        return _from_parts("Calibration.from_json", data.get("format"), data.get("kind"), parts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``*.json`` or ``*.safetensors``; the file is whole or not there."""
        if _suffix("Calibration.save", path) == ".json":
            content = (json.dumps(self.to_json(), indent=1) + "\n").encode()
        else:
            from safetensors.torch import save

            parts = {name: getattr(self, name).cpu().contiguous() for name in _part_names(self.kind)}
            content = save(parts, metadata={"format": FORMAT, "kind": self.kind})
        write_whole(Path(path), content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read what ``save`` wrote; names, types and sizes are checked, nothing is unpickled."""
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

    The affine kinds minimise the log-loss of ``sigma(a s + b)`` by Newton's method in float64; it is convex, so the answer
    is the optimum. ``"temperature"`` has ``a`` alone, ``"platt"`` has ``a`` and ``b``, both one for all labels, with
    Platt's targets ``(P + 1) / (P + 2)`` and ``1 / (N + 2)`` in the place of 1 and 0, which keep separable data finite.
    ``"per-label"`` has an ``a`` and ``b`` for each label, drawn to the pooled ones as strongly as ``shrink`` positives of
    average labels would: a label without positives gets the pooled slope and a low intercept. ``"isotonic"`` is the best
    rising map of all scores (pool adjacent violators); it needs hard labels and can say exactly 0 and 1.

    Args:
        logits: ``[..., L]``, finite where they count; lazy scores are made dense.
        labels: ``[..., L]`` in [0, 1], or ``SparseLabels``.
        kind: which map.
        where: bool, broadcastable to ``logits``; False leaves an entry out.
        shrink: for ``"per-label"``, > 0.

    Returns:
        A ``Calibration``, to be given to ``probabilities`` as link.

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
    data = _Data(who, logits, labels, where)
    if kind == "isotonic":
        return Calibration(kind, knots=(fit := _isotonic(who, data))[0], levels=fit[1])
    theta, hessian = _fit_pooled(data, with_intercept=kind != "temperature")
    if kind == "per-label":
        theta = _fit_each(data, theta, hessian * (shrink / max(data.positives, 1.0)))
    return Calibration(kind, slope=theta[0].cpu(), intercept=theta[1].cpu())


class _Data:
    """Scores, targets and what counts, handed out in float64 by blocks of rows or of labels."""

    def __init__(self, who: str, logits: Any, labels: Any, where: Tensor | None) -> None:
        if not isinstance(logits, Tensor) and isinstance(logits, LazyScores):
            logits = logits.dense()
        check_logits(who, logits)
        shape = logits.shape
        size = (shape[:-1].numel(), shape[-1])
        if where is not None:
            check_where(who, where, shape)
            where = where.expand(shape).reshape(size)
        if isinstance(labels, SparseLabels):
            if tuple(labels.shape) != size:
                raise ValueError(
                    f"{who}: `labels` must fit `logits`, {size[0]} rows of {size[1]} labels;"
                    f" got {len(labels)} rows of {labels.num_labels}. Encode with the same label names."
                )
        else:
            check_dense_labels(who, shape, labels)
            labels = labels.reshape(size)
            check_label_values(who, labels, where)
        self.scores, self.labels, self.where = logits.detach().reshape(size), labels, where
        self.positives = self.entries = 0.0
        for start, (scores, targets, counts) in self._row_blocks_at():
            bad = ~scores.isfinite() & (counts > 0)
            if bool(bad.any()):
                row, column = bad.nonzero()[0].tolist()
                raise ValueError(
                    f"{who}: `logits` must be finite where they count; got {scores[row, column].item()}"
                    f" in row {start + row}, label {column}. Leave it out with `where`."
                )
            self.positives += float((targets * counts).sum())
            self.entries += float(counts.sum())
        if self.entries == 0:
            raise ValueError(f"{who}: there is no entry to fit on; got logits of {size[0]} rows of {size[1]} labels.")

    def row_blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """``(scores, targets, counts)``, each ``[r, L]``."""
        return (block for _, block in self._row_blocks_at())

    def _row_blocks_at(self) -> Iterator[tuple[int, tuple[Tensor, Tensor, Tensor]]]:
        rows, labels = self.scores.shape
        size = max(1, BLOCK_ELEMENTS // max(labels, 1))
        for start in range(0, rows, size):
            yield start, self._block(slice(start, start + size), slice(None))

    def label_blocks(self) -> Iterator[tuple[slice, tuple[Tensor, Tensor, Tensor]]]:
        """``(which labels, (scores, targets, counts))``, each ``[R, l]``."""
        rows, labels = self.scores.shape
        size = max(1, BLOCK_ELEMENTS // max(rows, 1))
        for start in range(0, labels, size):
            columns = slice(start, min(start + size, labels))
            yield columns, self._block(slice(None), columns)

    def _block(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor, Tensor]:
        scores = self.scores[rows, columns].double()
        labels: Any = self.labels
        if isinstance(labels, SparseLabels):
            picked = labels[rows] if columns == slice(None) else labels.columns(columns.start, columns.stop)
            targets = picked.dense(torch.float64).to(scores.device)
        else:
            targets = labels[rows, columns].to(scores)
        counts = torch.ones_like(scores) if self.where is None else self.where[rows, columns].to(scores)
        # An entry that does not count may hold anything; its score must not reach a product with 0.
        return torch.where(counts > 0, scores, 0.0), torch.where(counts > 0, targets, 0.0), counts


def _logistic(scores: Tensor, targets: Tensor, counts: Tensor, theta: Tensor) -> Tensor:
    """``[6, L]``: log-loss of ``sigma(a s + b)`` summed over rows, its gradient, and ``aa``, ``ab``, ``bb`` of its Hessian."""
    z = theta[0] * scores + theta[1]
    probs = z.sigmoid()
    loss = (torch.nn.functional.softplus(z) - targets * z) * counts
    grad = (probs - targets) * counts
    curve = probs * (1 - probs) * counts
    bent = curve * scores
    parts = (loss, grad * scores, grad, bent * scores, bent, curve)
    return torch.stack([part.sum(dim=0) for part in parts])


def _newton(evaluate: Callable[[Tensor], Tensor], start: Tensor, *, with_intercept: bool) -> Tensor:
    """``[2, C]``: C convex problems in slope and intercept at once; ``evaluate`` gives ``[6, C]`` as ``_logistic``."""
    theta, state = start, evaluate(start)
    for _ in range(100):
        loss, grad_a, grad_b, aa, ab, bb = state
        tiny = 1e-12 * (aa + bb) + 1e-300
        if with_intercept:
            det = (aa + tiny) * (bb + tiny) - ab * ab
            step = torch.stack([(bb + tiny) * grad_a - ab * grad_b, (aa + tiny) * grad_b - ab * grad_a]) / det
        else:
            step = torch.stack([grad_a / (aa + tiny), torch.zeros_like(grad_b)])
        falls = grad_a * step[0] + grad_b * step[1]
        step = torch.where(falls > 1e-13 * loss.abs().clamp(min=1), step, 0.0)
        if not bool(step.any()):
            break
        length = torch.ones_like(loss)
        for _ in range(60):
            state = evaluate(theta - length * step)
            short = state[0] > loss - 1e-4 * length * falls + 1e-12 * loss.abs()
            if not bool(short.any()):
                break
            length = torch.where(short, length / 2, length)
        theta = theta - length * step
    return theta


def _fit_pooled(data: _Data, *, with_intercept: bool) -> tuple[Tensor, Tensor]:
    """``(theta [2, 1], Hessian [3, 1])`` of one slope and intercept for all, against Platt's targets."""
    high = (data.positives + 1) / (data.positives + 2)
    low = 1 / (data.entries - data.positives + 2)

    def evaluate(theta: Tensor) -> Tensor:
        total = theta.new_zeros((6, 1))
        for scores, targets, counts in data.row_blocks():
            moved = torch.where(targets == 1, high, torch.where(targets == 0, low, targets))
            total += _logistic(scores, moved, counts, theta).sum(dim=1, keepdim=True)
        return total

    start = torch.tensor([[1.0], [0.0]], dtype=torch.float64, device=data.scores.device)
    theta = _newton(evaluate, start, with_intercept=with_intercept)
    return theta, evaluate(theta)[3:]


def _fit_each(data: _Data, pooled: Tensor, prior: Tensor) -> Tensor:
    """``[2, L]``: a fit for each label with the quadratic ``prior [3, 1]`` around the pooled one."""
    fits = []
    for columns, block in data.label_blocks():

        def evaluate(theta: Tensor, block: tuple[Tensor, Tensor, Tensor] = block) -> Tensor:
            off_a, off_b = theta - pooled
            pull_a, pull_b = prior[0] * off_a + prior[1] * off_b, prior[1] * off_a + prior[2] * off_b
            loss = (off_a * pull_a + off_b * pull_b) / 2
            return _logistic(*block, theta) + torch.stack([loss, pull_a, pull_b, *prior.expand(3, theta.shape[1])])

        fits.append(_newton(evaluate, pooled.expand(2, columns.stop - columns.start).clone(), with_intercept=True))
    return torch.cat(fits, dim=1)


def _isotonic(who: str, data: _Data) -> tuple[Tensor, Tensor]:
    """``(knots, levels)`` of the best rising map.

    Between two positive scores all labels are 0, and a run of equal labels gets one level; so it is enough to know how
    many negatives lie at and between the distinct positive scores: a block for each, in order, not a sort of everything.
    """
    from sklearn.isotonic import isotonic_regression

    found = [s[(t > 0) & (c > 0)] for s, t, c in data.row_blocks()]
    steps, positives = torch.cat(found).unique(return_counts=True)  # type: ignore[no-untyped-call]
    size = 2 * len(steps) + 1
    weight = steps.new_zeros(size)
    least, most = steps.new_full((size,), torch.inf), steps.new_full((size,), -torch.inf)
    for scores, targets, counts in data.row_blocks():
        if bool(((targets > 0) & (targets < 1)).any()):
            raise ValueError(
                f"{who}: `labels` must be hard, 0 or 1, for kind 'isotonic'. Soft labels can be fitted by 'platt'."
            )
        values = scores[(targets == 0) & (counts > 0)]
        place = torch.searchsorted(steps, values)
        same = torch.cat([steps, steps.new_full((1,), torch.inf)])[place] == values
        block = 2 * place + same
        weight += torch.bincount(block, minlength=size)
        least.scatter_reduce_(0, block, values, "amin")
        most.scatter_reduce_(0, block, values, "amax")
    hits = torch.zeros_like(weight)
    hits[1::2] = positives.to(hits)
    weight[1::2] += hits[1::2]
    least[1::2] = most[1::2] = steps
    used = weight > 0
    least, most, rate = least[used], most[used], hits[used] / weight[used]
    fitted = isotonic_regression(rate.cpu().numpy(), sample_weight=weight[used].cpu().numpy(), y_min=0, y_max=1)
    levels, runs = torch.from_numpy(fitted).unique_consecutive(return_counts=True)  # type: ignore[no-untyped-call]
    last = runs.cumsum(0) - 1
    ends = torch.stack([least.cpu()[last - runs + 1], most.cpu()[last]], dim=1).flatten()
    knots, doubled = ends, levels.repeat_interleave(2)
    kept = torch.ones_like(knots, dtype=torch.bool)
    kept[1::2] = knots[1::2] > knots[::2]
    return knots[kept], doubled[kept]


def _interpolate(scores: Tensor, knots: Tensor, levels: Tensor) -> Tensor:
    if len(knots) == 1:
        return torch.where(scores.isnan(), scores, levels)
    right = torch.searchsorted(knots, scores.contiguous()).clamp(1, len(knots) - 1)
    start, stop = knots[right - 1], knots[right]
    # Knots that were apart in float64 may meet in float32.
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
