"""Soft labels: smoothing, flipping, mixing, and distillation."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_choice, check_logits, check_unit, shape_text


def smooth_labels(labels: Tensor, epsilon: float, *, kind: str = "uniform") -> Tensor:
    """Label smoothing.

    - ``"uniform"``: ``t (1 - e) + e / 2``, every label moves towards one half;
    - ``"mass"``: ``t (1 - e) + e sum(t) / L``, the sum of the row does not change;
    - ``"positives"``: ``t (1 - e)``, negatives stay 0: for very many labels, because each smoothed negative would raise the
      minimum of soft ZLPR, ``2 log(1 + sum sqrt(t (1 - t)))``;
    - ``"single"``: one label per row, ``1 - e`` for it and ``e / (K - 1)`` for each of the others.

    Args:
        labels: ``[..., L]`` in [0, 1], of any number type.
        epsilon: e in [0, 1].
        kind: one of the four.

    Returns:
        Soft labels ``[..., L]``, float32 unless ``labels`` is floating-point.

    Example:
        >>> smooth_labels(torch.tensor([[1, 0, 0, 0]]), 0.2)
        tensor([[0.9000, 0.1000, 0.1000, 0.1000]])
        >>> smooth_labels(torch.tensor([[1, 0, 0, 0]]), 0.2, kind="mass")
        tensor([[0.8500, 0.0500, 0.0500, 0.0500]])
    """
    check_unit("smooth_labels", "epsilon", epsilon)
    check_choice("smooth_labels", "kind", kind, ("uniform", "mass", "positives", "single"))
    soft = _floating("smooth_labels", labels)
    num_labels = soft.shape[-1]
    if kind == "uniform":
        return soft * (1 - epsilon) + epsilon / 2
    if kind == "mass":
        return soft * (1 - epsilon) + epsilon * soft.sum(dim=-1, keepdim=True) / max(num_labels, 1)
    if kind == "positives":
        return soft * (1 - epsilon)
    return soft * (1 - epsilon) + (1 - soft) * epsilon / max(num_labels - 1, 1)


def flip_labels(labels: Tensor, epsilon: float, *, kind: str = "uniform", generator: torch.Generator | None = None) -> Tensor:
    """Label flipping: random hard labels whose expectation is the label of ``smooth_labels``.

    For a loss that is linear in the labels (softmax and cross-entropy, BCE, focal, squared hinge) the expected loss of flipped
    labels is the loss of smoothed ones. ZLPR and its relatives take the logarithm of a sum over labels, which is concave: their
    expected loss is lower with flipping than with smoothing, and the labels stay hard.

    - ``"uniform"``: each label flips with probability e / 2;
    - ``"single"``: with probability e the class of a row is replaced, by each other class with probability e / (K - 1).

    Args:
        labels: ``[..., L]`` in [0, 1], of any number type; a soft t flips to 1 - t.
        epsilon: e in [0, 1].
        kind: one of the two.
        generator: the random generator, on the device of ``labels``; None is torch's default.

    Returns:
        Labels of the same type and shape.

    Example:
        >>> flip_labels(torch.tensor([[1, 0, 0, 1]]), 1.0, generator=torch.Generator().manual_seed(0)).shape
        torch.Size([1, 4])
    """
    check_unit("flip_labels", "epsilon", epsilon)
    check_choice("flip_labels", "kind", kind, ("uniform", "single"))
    if kind == "uniform":
        flips = torch.rand(labels.shape, generator=generator, device=labels.device) < epsilon / 2
        return torch.where(flips, ~labels if labels.dtype == torch.bool else 1 - labels, labels)
    rows, num_labels = labels.shape[:-1], labels.shape[-1]
    if num_labels < 2:
        return labels.clone()
    moves = torch.rand((*rows, 1), generator=generator, device=labels.device) < epsilon
    steps = torch.randint(1, num_labels, (*rows, 1), generator=generator, device=labels.device)
    source = (torch.arange(num_labels, device=labels.device) - torch.where(moves, steps, 0)) % num_labels
    return labels.gather(-1, source)


def mix_labels(labels_a: Tensor, labels_b: Tensor, share: float | Tensor) -> Tensor:
    """``share t_a + (1 - share) t_b``: soft labels for mixed inputs.

    Args:
        labels_a: ``[..., L]``.
        labels_b: the same shape.
        share: a number in [0, 1], or a tensor broadcastable to the labels.

    Returns:
        Soft labels ``[..., L]``.

    Example:
        >>> mix_labels(torch.tensor([1, 0]), torch.tensor([0, 0]), 0.75)
        tensor([0.7500, 0.0000])
    """
    if labels_a.shape != labels_b.shape:
        raise ValueError(
            f"mix_labels: `labels_b` must have the shape of `labels_a`, {shape_text(labels_a.shape)};"
            f" got {shape_text(labels_b.shape)}."
        )
    return share * _floating("mix_labels", labels_a) + (1 - share) * _floating("mix_labels", labels_b)


def draw_mix(num_rows: int, *, alpha: float, generator: torch.Generator | None = None) -> tuple[float, Tensor]:
    """Sample a share from Beta(alpha, alpha), and a partner for each row: another row, if there is more than one.

    Args:
        num_rows: B.
        alpha: > 0; the smaller, the closer the share is to 0 or 1.
        generator: the random generator, on the CPU; None is torch's default.

    Returns:
        The share in [0, 1], and row numbers, int64 ``[B]`` on the CPU; every row is the partner of one other.

    Example:
        >>> share, partner = draw_mix(3, alpha=0.4, generator=torch.Generator().manual_seed(0))
        >>> sorted(partner.tolist()), bool((partner == torch.arange(3)).any())
        ([0, 1, 2], False)
    """
    from scipy.special import betaincinv

    check_at_least("draw_mix", "alpha", alpha, 0, strict=True)
    quantile = torch.rand((), generator=generator, dtype=torch.float64)
    share = float(betaincinv(alpha, alpha, float(quantile)))
    # Partners are neighbours in a random cycle, so that no row is its own partner.
    circle = torch.randperm(num_rows, generator=generator)
    return share, torch.empty_like(circle).scatter_(0, circle, circle.roll(-1))


def mixup(
    inputs: Tensor, labels: Tensor, *, alpha: float = 0.2, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor, float]:
    """Mix each row with another row of the batch. One share, sampled from Beta(alpha, alpha), mixes inputs and labels.

    Args:
        inputs: ``[B, ...]``, floating-point.
        labels: ``[B, L]``.
        alpha: > 0; the smaller, the closer the share is to 0 or 1.
        generator: the random generator, on the CPU; None is torch's default.

    Returns:
        Mixed inputs ``[B, ...]``, soft labels ``[B, L]``, and the share of each row's own part.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> inputs, labels, share = mixup(torch.eye(2), torch.tensor([[1, 0], [0, 1]]), generator=generator)
        >>> bool((labels.sum(-1) == 1).all()) and 0 <= share <= 1
        True
    """
    _check_rows("mixup", inputs, labels)
    share, partner = draw_mix(len(inputs), alpha=alpha, generator=generator)
    partner = partner.to(inputs.device)
    mixed = share * inputs + (1 - share) * inputs[partner]
    return mixed, mix_labels(labels, labels[partner], share), share


def cutmix(
    images: Tensor, labels: Tensor, *, alpha: float = 1.0, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor, float]:
    """Paste a box of another image of the batch into each image; labels are mixed by area.

    Args:
        images: ``[B, C, H, W]``.
        labels: ``[B, L]``.
        alpha: the share of the area that is kept is sampled from Beta(alpha, alpha), then rounded to pixels.
        generator: the random generator, on the CPU; None is torch's default.

    Returns:
        Images of the same shape, soft labels ``[B, L]``, and the share of each image's own pixels.

    Example:
        >>> images, labels = torch.rand(4, 1, 8, 8), torch.eye(4)
        >>> images, labels, share = cutmix(images, labels, generator=torch.Generator().manual_seed(0))
        >>> images.shape, labels.shape
        (torch.Size([4, 1, 8, 8]), torch.Size([4, 4]))
    """
    if images.ndim != 4:
        raise ValueError(f"cutmix: `images` must be [B, C, H, W]; got {shape_text(images.shape)}.")
    _check_rows("cutmix", images, labels)
    share, partner = draw_mix(len(images), alpha=alpha, generator=generator)
    partner = partner.to(images.device)
    height, width = images.shape[-2:]
    box_height, box_width = (round(size * math.sqrt(1 - share)) for size in (height, width))
    top = int(torch.randint(0, height - box_height + 1, (), generator=generator))
    left = int(torch.randint(0, width - box_width + 1, (), generator=generator))
    box = (..., slice(top, top + box_height), slice(left, left + box_width))
    mixed = images.clone()
    mixed[box] = images[partner][box]
    share = 1 - box_height * box_width / (height * width) if height * width else 1.0
    return mixed, mix_labels(labels, labels[partner], share), share


def soft_labels_from(logits: Tensor, *, link: str = "soft", temperature: float = 1.0) -> Tensor:
    """A teacher's predictions as soft labels for a student: ``sigma(2 s / T)``, or ``sigma(s / T)`` with ``link="hard"``.

    Soft ZLPR on these labels has its minimum exactly at the teacher's scores (``link="soft"``).
    Use the link of the teacher: ``"hard"`` if it was trained on hard labels.

    Args:
        logits: the teacher's ``[..., L]``.
        link: ``"soft"`` or ``"hard"``.
        temperature: T > 0; higher is softer.

    Returns:
        Soft labels ``[..., L]`` without gradient.

    Example:
        >>> soft_labels_from(torch.tensor([0.0, 1.0]))
        tensor([0.5000, 0.8808])
    """
    check_logits("soft_labels_from", logits)
    check_choice("soft_labels_from", "link", link, ("soft", "hard"))
    check_at_least("soft_labels_from", "temperature", temperature, 0, strict=True)
    return torch.sigmoid(logits.detach() * ((2.0 if link == "soft" else 1.0) / temperature))


def _floating(who: str, labels: Any) -> Tensor:
    if not isinstance(labels, Tensor):
        raise TypeError(
            f"{who}: `labels` must be a dense tensor; got {type(labels).__name__}."
            " Call .dense(), or use the loss's own `smoothing`, which needs no dense labels."
        )
    return labels if labels.is_floating_point() else labels.to(torch.float32)


def _check_rows(who: str, inputs: Tensor, labels: Tensor) -> None:
    if inputs.shape[:1] != labels.shape[:1]:
        raise ValueError(
            f"{who}: `inputs` and `labels` must have the same number of rows; got {shape_text(inputs.shape)}"
            f" and {shape_text(labels.shape)}."
        )
