"""Heads that score every span: GlobalPointer, and its efficient form, in which types share the products."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from manyhot._checks import check_at_least, check_choice, check_logits, shape_text
from manyhot.heads.rotary_positions import rotary
from manyhot.scores.spans import SpanScores

TYPE_INPUTS = ("hidden", "projected")


class GlobalPointer(nn.Module):
    """A score for every type and every pair of tokens: ``s_a(i, j) = (R_i q_a(i)) . (R_j k_a(j)) / sqrt(d)``.

    Each type has its own projections ``q_a = W_qa h + b`` and ``k_a = W_ka h + b``, 2 D d weights a type; R are rotary
    positions. Every cell with s > 0 is a span, so nested spans need no extra work. Unlike ``EfficientGlobalPointer`` a type
    shares nothing with the others.

    Args:
        hidden_size: D, the width of the encoder's output.
        num_types: H.
        head_size: d, even with rotary positions.
        rotary: use rotary positions. Without them a head cannot see the length of a span, and fails on real text.
        triangle: spans run forwards, i <= j. False scores links between any two tokens.
        scaled: divide the products by sqrt(d).
        bias: give the projections biases.

    Example:
        >>> import torch
        >>> from manyhot import zlpr_loss
        >>> from manyhot.labels.spans import SpanLabels
        >>> _ = torch.manual_seed(0)
        >>> head = GlobalPointer(16, num_types=3)
        >>> scores = head(torch.randn(2, 6, 16), torch.tensor([6, 4]))
        >>> scores.shape
        torch.Size([2, 3, 6, 6])
        >>> labels = SpanLabels.from_lists([[(0, 1, 2)], []], num_types=3, lengths=[6, 4])
        >>> zlpr_loss(scores, labels).backward()
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        num_types: int,
        head_size: int = 64,
        rotary: bool = True,
        triangle: bool = True,
        scaled: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        _check_sizes("GlobalPointer", hidden_size, num_types, head_size, rotary)
        self.hidden_size, self.num_types, self.head_size = hidden_size, num_types, head_size
        self.rotary, self.triangle, self.scaled = rotary, triangle, scaled
        self.project = nn.Linear(hidden_size, 2 * num_types * head_size, bias=bias)

    def forward(self, hidden: Tensor, lengths: Tensor | Sequence[int] | None = None) -> SpanScores:
        """Lazy scores ``[B, H, T, T]`` of ``hidden [B, T, D]``; ``lengths [B]`` says how many tokens are real, None all."""
        _check_hidden("GlobalPointer", hidden, self.hidden_size)
        projected = self.project(hidden).unflatten(-1, (2, self.num_types, self.head_size))
        both = projected.permute(2, 0, 3, 1, 4)
        q, k = (rotary(both) if self.rotary else both).unbind()
        return SpanScores(q, k, lengths=lengths, triangle=self.triangle, scale=_scale(self))

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return _settings(self)


class EfficientGlobalPointer(nn.Module):
    """Span scores shared by all types, plus a bias per type and end: ``s_a(i, j) = q(i) . k(j) / sqrt(d) + u_a(i) + v_a(j)``.

    ``q`` and ``k`` are shared, with rotary positions; a type adds only ``u_a`` and ``v_a``, linear in the hidden state
    (``form="hidden"``, 2 D weights a type) or in the unrotated ``[q; k]`` (``form="projected"``, 4 d weights a type). With
    many types it has far fewer weights than ``GlobalPointer``, and its loss takes two skinny matrix products.

    The source (kexue.fm, archive 8877) has the form ``"hidden"``, ``q(i) . k(j) + w_a . [h_i; h_j]``, with neither 1/sqrt(d)
    nor biases: that is ``form="hidden", scaled=False, bias=False``. Public implementations compute ``"projected"`` with both,
    as the default here, and halve ``u_a + v_a``, which only changes the initial size of a type's weights.

    Args:
        hidden_size: D, the width of the encoder's output.
        num_types: H.
        head_size: d, even with rotary positions.
        rotary: use rotary positions.
        triangle: spans run forwards, i <= j. False scores links between any two tokens.
        form: the input of ``u_a`` and ``v_a``, ``"hidden"`` or ``"projected"``.
        scaled: divide ``q(i) . k(j)`` by sqrt(d).
        bias: give both linear layers biases.

    Example:
        >>> import torch
        >>> head = EfficientGlobalPointer(16, num_types=3, form="projected")
        >>> head(torch.randn(2, 6, 16), [6, 4])
        SpanScores([2, 3, 6, 6], shared, head size 64, triangle=True)
    """

    def __init__(
        self,
        hidden_size: int,
        *,
        num_types: int,
        head_size: int = 64,
        rotary: bool = True,
        triangle: bool = True,
        form: str = "projected",
        scaled: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        _check_sizes("EfficientGlobalPointer", hidden_size, num_types, head_size, rotary)
        check_choice("EfficientGlobalPointer", "form", form, TYPE_INPUTS)
        self.hidden_size, self.num_types, self.head_size = hidden_size, num_types, head_size
        self.rotary, self.triangle, self.form, self.scaled = rotary, triangle, form, scaled
        self.project = nn.Linear(hidden_size, 2 * head_size, bias=bias)
        self.type_ends = nn.Linear(hidden_size if form == "hidden" else 2 * head_size, 2 * num_types, bias=bias)

    def forward(self, hidden: Tensor, lengths: Tensor | Sequence[int] | None = None) -> SpanScores:
        """Lazy scores ``[B, H, T, T]`` of ``hidden [B, T, D]``; ``lengths [B]`` says how many tokens are real, None all."""
        _check_hidden("EfficientGlobalPointer", hidden, self.hidden_size)
        projected = self.project(hidden)
        ends = self.type_ends(hidden if self.form == "hidden" else projected)
        u, v = ends.unflatten(-1, (2, self.num_types)).permute(2, 0, 3, 1).unbind()
        both = projected.unflatten(-1, (2, self.head_size)).movedim(2, 0)
        q, k = (rotary(both) if self.rotary else both).unbind()
        return SpanScores(q, k, u, v, lengths=lengths, triangle=self.triangle, scale=_scale(self))

    @torch.no_grad()
    def start_at(self, scores: Tensor) -> None:
        """Set the biases so that the scores of each type start around ``scores [H]``, half of it at each end.

        A grid has thousands of cells and few spans: if scores start around 0, the first epochs only lower them.
        """
        if self.type_ends.bias is None:
            raise ValueError("EfficientGlobalPointer.start_at: the head must have biases; got bias=False.")
        self.type_ends.bias.copy_((scores / 2).repeat(2))

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return f"{_settings(self)}, form={self.form!r}"


def _scale(head: GlobalPointer | EfficientGlobalPointer) -> float:
    """The factor of the products."""
    return head.head_size**-0.5 if head.scaled else 1.0


def _settings(head: GlobalPointer | EfficientGlobalPointer) -> str:
    return (
        f"hidden_size={head.hidden_size}, num_types={head.num_types}, head_size={head.head_size},"
        f" rotary={head.rotary}, triangle={head.triangle}, scaled={head.scaled}, bias={head.project.bias is not None}"
    )


def _check_sizes(who: str, hidden_size: int, num_types: int, head_size: int, rotary: bool) -> None:
    for name, value in (("hidden_size", hidden_size), ("num_types", num_types), ("head_size", head_size)):
        check_at_least(who, name, value, 1)
    if rotary and head_size % 2:
        raise ValueError(
            f"{who}: `head_size` must be even, because rotary positions rotate pairs of features; got {head_size}."
        )


def _check_hidden(who: str, hidden: Tensor, hidden_size: int) -> None:
    check_logits(who, hidden, "hidden")
    if hidden.ndim != 3 or hidden.shape[-1] != hidden_size:
        raise ValueError(
            f"{who}: `hidden` must be [B, T, {hidden_size}], the last states of an encoder; got {shape_text(hidden.shape)}."
        )
