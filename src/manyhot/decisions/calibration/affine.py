"""The affine fits: slope and intercept of a logistic model of one number, by Newton's method in float64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from manyhot.decisions.calibration.data import CalibrationData

# Entries that are computed together on a CPU: their intermediate values stay in its cache.
PIECE = 1 << 15
# With more entries than this, the pooled fit starts from that of a sample of rows, a SAMPLE-th of them.
MANY_ENTRIES, SAMPLE, LEAST_POSITIVES = 1 << 20, 16, 100


def fit_affine(
    data: CalibrationData, *, with_intercept: bool, shrink: float | None, start: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """``(slope, intercept)``: float64 ``[1]`` each, or ``[L]`` with ``shrink``, the strength of the shrinkage to the pooled
    fit. ``start``: slopes and intercepts ``[L]`` near the result, which make the fit faster."""
    theta, hessian = _fit_pooled(data, with_intercept=with_intercept)
    if shrink is not None:
        begin = theta.expand(2, data.scores.shape[1]) if start is None else torch.stack([start[0] * data.scale, start[1]])
        theta = _fit_each(data, theta, hessian * (shrink / max(data.positives, 1.0)), begin)
    return theta[0] / data.scale, theta[1]


def _logistic(scores: Tensor, targets: Tensor, counts: Tensor, theta: Tensor) -> Tensor:
    """``[6, L]``: log-loss of ``sigma(a s + b)`` summed over rows, its gradient, and ``aa``, ``ab``, ``bb`` of its Hessian."""
    rows = max(1, PIECE // max(scores.shape[1], 1)) if scores.is_cpu else max(len(scores), 1)
    total = theta.new_zeros((6, scores.shape[1]))
    for begin in range(0, len(scores), rows):
        part = slice(begin, begin + rows)
        total += _logistic_of_piece(scores[part], targets[part], counts[part], theta)
    return total


def _logistic_of_piece(scores: Tensor, targets: Tensor, counts: Tensor, theta: Tensor) -> Tensor:
    z = theta[0] * scores + theta[1]
    probs = z.sigmoid()
    loss = (torch.nn.functional.softplus(z) - targets * z) * counts
    grad = (probs - targets) * counts
    curve = probs * (1 - probs) * counts
    bent = curve * scores
    parts = (loss, grad * scores, grad, bent * scores, bent, curve)
    return torch.stack([part.sum(dim=0) for part in parts])


def _newton(evaluate: Callable[[Tensor], Tensor], start: Tensor, *, with_intercept: bool) -> Tensor:
    """``[2, C]``: the minima of C convex problems in slope and intercept; ``evaluate`` returns ``[6, C]`` like ``_logistic``.

    Backtracking line search: a step is halved until the loss falls by a fixed share of the decrease that the gradient predicts,
    and is rejected if it never does. So the loss never rises, even if it is flat at the start.
    """
    theta, state = start, evaluate(start)
    for _ in range(100):
        step, falls = _newton_step(state, with_intercept=with_intercept)
        if not bool(step.any()):
            break
        loss, length = state[0], torch.ones_like(state[0])
        for _ in range(60):
            trial = evaluate(theta - length * step)
            short = ~(trial[0] <= loss - 1e-4 * length * falls + 1e-12 * loss.abs())
            if not bool(short.any()):
                break
            length = torch.where(short, length / 2, length)
        length = torch.where(short, 0.0, length)
        if not bool(length.any()):
            break
        theta = theta - length * step
        state = evaluate(theta) if bool(short.any()) else trial
    return theta


def _newton_step(state: Tensor, *, with_intercept: bool) -> tuple[Tensor, Tensor]:
    """``(step [2, C], decrease of the loss along it [C])``; 0 at the minimum."""
    loss, grad_a, grad_b, aa, ab, bb = state
    tiny = 1e-12 * (aa + bb) + 1e-300
    if with_intercept:
        det = (aa + tiny) * (bb + tiny) - ab * ab
        step = torch.stack([(bb + tiny) * grad_a - ab * grad_b, (aa + tiny) * grad_b - ab * grad_a]) / det
    else:
        step = torch.stack([grad_a / (aa + tiny), torch.zeros_like(grad_b)])
    falls = grad_a * step[0] + grad_b * step[1]
    pays = falls > 1e-13 * loss.abs().clamp(min=1)
    return torch.where(pays, step, 0.0), torch.where(pays, falls, 0.0)


def _fit_pooled(data: CalibrationData, *, with_intercept: bool) -> tuple[Tensor, Tensor]:
    """``(theta [2, 1], Hessian [3, 1])`` of one slope and intercept for all labels, with Platt's targets.

    The slope is that of scores divided by ``data.scale``. It starts at 0, where every entry contributes to the Hessian. At a
    slope where all probabilities are nearly 0 or 1 the Hessian vanishes and a Newton step is unbounded.
    """
    high = (data.positives + 1) / (data.positives + 2)
    low = 1 / (data.entries - data.positives + 2)

    def evaluate(theta: Tensor, every: int = 1) -> Tensor:
        total = theta.new_zeros((6, 1))
        for scores, targets, counts in data.row_blocks(every=every):
            moved = torch.where(targets == 1, high, torch.where(targets == 0, low, targets))
            total += _logistic(scores / data.scale, moved, counts, theta).sum(dim=1, keepdim=True)
        return total

    theta = torch.zeros(2, 1, dtype=torch.float64, device=data.scores.device)
    if data.entries > MANY_ENTRIES and data.positives > LEAST_POSITIVES * SAMPLE:
        sampled = _newton(lambda theta: evaluate(theta, SAMPLE), theta, with_intercept=with_intercept)
        theta = sampled if bool(evaluate(sampled)[0] < evaluate(theta)[0]) else theta
    theta = _newton(evaluate, theta, with_intercept=with_intercept)
    return theta, evaluate(theta)[3:]


def _fit_each(data: CalibrationData, pooled: Tensor, prior: Tensor, start: Tensor) -> Tensor:
    """``[2, L]``: a fit for each label, with a quadratic ``prior [3, 1]`` around the pooled fit."""
    fits = []
    for columns, (scores, targets, counts) in data.label_blocks():
        block = (scores / data.scale, targets, counts)

        def evaluate(theta: Tensor, block: tuple[Tensor, Tensor, Tensor] = block) -> Tensor:
            off_a, off_b = theta - pooled
            pull_a, pull_b = prior[0] * off_a + prior[1] * off_b, prior[1] * off_a + prior[2] * off_b
            loss = (off_a * pull_a + off_b * pull_b) / 2
            return _logistic(*block, theta) + torch.stack([loss, pull_a, pull_b, *prior.expand(3, theta.shape[1])])

        fits.append(_newton(evaluate, start[:, columns].clone(), with_intercept=True))
    return torch.cat(fits, dim=1)
