"""Scores of a span head, one for every type and pair of tokens, that are never stored whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_choice, check_engine, check_unit, check_where, shape_text
from manyhot.engines.plain_spans import tiles as span_tiles
from manyhot.engines.plain_spans.terms import SpanParts, SpanTerms
from manyhot.engines.span_registry import SPAN_NAMES, TILES, choose_spans
from manyhot.engines.terms import INF, Weight
from manyhot.labels.spans import SpanLabels
from manyhot.losses.core.logsumexp import Dim, LazyScores, two_sided_logsumexp
from manyhot.scores.span_arguments import add_log_weight, as_lengths, check_parts, label_axes, weight_on_axes, weight_per_type
from manyhot.scores.span_repeats import kind_of_call, note_served, served_before
from manyhot.scores.span_sides import SpanSides, run_span_loss

METHODS = ("auto", "tiles", "factorised", "dense")


class SpanScores(LazyScores):
    """The scores ``[B, H, T, T]`` of every span: type a from token i to token j, described by their factors.

    ``s_a(i, j) = scale q_a(i) . k_a(j)`` if each type has its own ``q, k``, or ``scale q(i) . k(j) + u_a(i) + v_a(j)`` if the
    types share them. A cell counts if ``lengths`` says that both tokens are real and, with ``triangle``, i <= j. All other
    cells are left out of every sum and get gradient 0, whatever their values. Losses of the family compute the scores tile by
    tile, or by matrix products in the shared form; no ``[B, H, T, T]`` tensor is built, and backward recomputes the scores.

    The grid of positions is one label axis: losses give one value for each row and type, ``[B, H]``, by default
    (``dim=-1`` or ``(-2, -1)``); ``dim=(-3, -2, -1)`` joins the types, ``[B]``; ``dim=-3`` is one problem per cell over the
    types, ``[B, T, T]``, which builds the dense tensor, as do dense labels and a ``where`` argument.

    Args:
        q: ``[B, H, T, d]``, or ``[B, T, d]`` shared by the types.
        k: like ``q``.
        u: ``[B, H, T]`` in the shared form, else None.
        v: like ``u``.
        lengths: how many tokens are real, integers ``[B]``; None for all.
        triangle: a span ends at or after its first token. False for links between any two tokens.
        scale: a factor on the products.
        method: how losses compute the scores: ``"tiles"``, ``"factorised"`` (shared form), or ``"dense"``, which builds the
            tensor; ``"auto"`` is ``"factorised"`` for the shared form and ``"tiles"`` for the other.

    Example:
        >>> from manyhot import zlpr_loss
        >>> from manyhot.labels.spans import SpanLabels
        >>> q, k = torch.randn(2, 2, 3, 5, 8, generator=torch.Generator().manual_seed(0)).unbind()
        >>> scores = SpanScores(q, k, lengths=torch.tensor([5, 2]))
        >>> scores.shape
        torch.Size([2, 3, 5, 5])
        >>> labels = SpanLabels.from_lists([[(0, 1, 3)], [(2, 0, 0), (2, 0, 1)]], num_types=3, num_tokens=5)
        >>> zlpr_loss(scores, labels, reduction="none").shape
        torch.Size([2, 3])
    """

    __slots__ = ("k", "lengths", "method", "q", "scale", "triangle", "u", "v")

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        u: Tensor | None = None,
        v: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        triangle: bool = True,
        scale: float = 1.0,
        method: str = "auto",
    ) -> None:
        check_parts(q, k, u, v)
        check_choice("SpanScores", "method", method, METHODS if q.ndim == 3 else ("auto", "tiles", "dense"))
        self.q, self.k, self.u, self.v = q, k, u, v
        self.lengths = as_lengths(lengths, q)
        self.triangle, self.scale, self.method = bool(triangle), float(scale), method

    @property
    def shape(self) -> torch.Size:
        """``[B, H, T, T]``."""
        tokens = self.q.shape[-2]
        return torch.Size((self.q.shape[0], self._parts().num_types, tokens, tokens))

    @property
    def device(self) -> torch.device:
        """Where the scores would be."""
        return self.q.device

    def where(self) -> Tensor:
        """Bool ``[B, 1, T, T]``: True where a cell counts."""
        tokens = torch.arange(self.shape[-1], device=self.device)
        real = tokens < self.lengths.unsqueeze(1)
        counts = real[:, None, :, None] & real[:, None, None, :]
        return counts & (tokens.unsqueeze(1) <= tokens) if self.triangle else counts

    def dense(self) -> Tensor:
        """The whole tensor ``[B, H, T, T]``; cells that do not count (``~where()``) are ``-inf``, below every threshold."""
        products = self.q @ self.k.mT * self.scale
        if self.u is not None and self.v is not None:
            products = products.unsqueeze(1) + self.u.unsqueeze(3) + self.v.unsqueeze(2)
        return products.masked_fill(~self.where(), -INF)

    def tiles(self) -> Iterator[span_tiles.Tile]:
        """Iterate over the grid block by block, without gradients; cells that do not count are ``-inf``."""
        with torch.no_grad():
            yield from span_tiles.score_tiles(self._parts(), self._terms(None, 0.0))

    def above(self, threshold: Tensor, where: Tensor | None = None) -> Tensor:
        """Bool ``[B, H, T, T]``: the cells that count and score above ``threshold``, broadcastable to ``[B, H]``."""
        limits = threshold.to(self.device).expand(self.shape[:2])
        chosen = torch.zeros(self.shape, dtype=torch.bool, device=self.device)
        for tile in self.tiles():
            # Cells that do not count are -inf, which is above no threshold.
            chosen[tile.batch, tile.types, tile.rows, tile.columns] = tile.scores > limits[tile.batch, tile.types, None, None]
        return chosen if where is None else chosen & where

    def __mul__(self, factor: float) -> SpanScores:
        """The scores times a number."""
        u, v = (None if part is None else part * factor for part in (self.u, self.v))
        scale = self.scale * factor
        return SpanScores(self.q, self.k, u, v, lengths=self.lengths, triangle=self.triangle, scale=scale, method=self.method)

    def __repr__(self) -> str:
        form = "typed" if self.u is None else "shared"
        return f"SpanScores({shape_text(self.shape)}, {form}, head size {self.q.shape[-1]}, triangle={self.triangle})"

    def two_sided_logsumexp(
        self,
        labels: SpanLabels | Tensor,
        *,
        where: Tensor | None = None,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        smoothing: float = 0.0,
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
        who: str = "two_sided_logsumexp",
    ) -> tuple[Tensor, Tensor]:
        """``(pos, neg)`` with gradients to ``q``, ``k``, ``u`` and ``v``; see the function of the same name.

        Args:
            labels: ``SpanLabels``, or dense ``[B, H, T, T]`` (which builds the dense scores too).
            where: bool, broadcastable to ``[B, H, T, T]``, on top of the cells that count (builds the dense scores).
            pos_weight: a number, or one for each type ``[H]``.
            neg_weight: the same for the negative sum.
            smoothing: uniform, ``t (1 - e) + e / 2``, over the cells that count.
            dim: see the class.
            engine: ``"auto"``, ``"torch"`` or ``"triton"`` (CUDA; not for float64).
            validate: look at the values too: every labelled cell must count.
            who: the name that error messages start with.

        Returns:
            Two tensors: ``[B, H]``, or what ``dim`` leaves.
        """
        check_unit(who, "smoothing", smoothing)
        check_engine(who, engine, SPAN_NAMES)
        axes = label_axes(who, dim)
        weights = (
            weight_per_type(who, "pos_weight", pos_weight, self._parts(), validate=validate),
            weight_per_type(who, "neg_weight", neg_weight, self._parts(), validate=validate),
        )
        if isinstance(labels, SpanLabels):
            labels = self._fitted(who, labels, validate=validate)
        if where is not None or self.method == "dense" or axes == {1} or not isinstance(labels, SpanLabels):
            return self._dense_sides(who, labels, where, weights, smoothing, axes, engine, validate)
        parts = self._parts()
        chosen = choose_spans(who, engine, self.method, parts, labels.cells.indices)
        terms = chosen.make_terms(self.lengths, self.triangle, labels, smoothing)
        others = tuple(sorted(axes - {2, 3}))
        settings = (chosen.running(), type(terms), others, parts.scale)
        sides = SpanSides.apply(*settings, *parts[:4], *weights, *terms)  # type: ignore[no-untyped-call]
        return sides[0], sides[1]

    def side_loss(
        self,
        who: str,
        form: str,
        labels: Any,
        offset: Tensor | float,
        *,
        where: Tensor | None = None,
        pos_weight: Weight = None,
        neg_weight: Weight = None,
        sample_weight: Tensor | None = None,
        smoothing: float = 0.0,
        reduction: str = "mean",
        dim: Dim = -1,
        engine: str = "auto",
        validate: bool = False,
    ) -> Tensor | None:
        """The reduced loss ``log(1 + e^{pos + s0}) + log(1 + e^{neg - s0})`` in one pass, if the engine computes whole losses.

        For all but the largest grids the host is the bottleneck, and this saves the operations between sides and loss.
        Arguments are those of ``manyhot.losses.core.dispatch.side_loss``.

        Returns:
            A scalar; None if the caller has to use ``two_sided_logsumexp``.
        """
        usual = where is None and pos_weight is None and neg_weight is None and sample_weight is None and not validate
        if not usual or form != "split" or isinstance(offset, Tensor) or reduction == "none" or self.method == "dense":
            return None
        if not isinstance(labels, SpanLabels) or torch.compiler.is_compiling():
            return None
        parts = self._parts()
        kind = kind_of_call(parts, self.lengths, labels, (smoothing, dim, engine, self.method))
        chosen = None if kind is None else served_before(kind, parts, self.lengths, labels)
        if chosen is None:
            check_engine(who, engine, SPAN_NAMES)
            chosen = choose_spans(who, engine, self.method, parts, labels.cells.indices)
            if not chosen.has_loss or label_axes(who, dim) != {2, 3}:
                return None
            check_unit(who, "smoothing", smoothing)
            fitted = self._fitted(who, labels, validate=False)
            if kind is not None and fitted is labels:
                note_served(kind, chosen)
            labels = fitted
        cells = chosen.make_terms(self.lengths, self.triangle, labels, smoothing)
        value: Tensor = run_span_loss(*parts[:4], (chosen.engine, parts.scale, cells, float(offset), reduction))
        return value

    def _parts(self) -> SpanParts:
        return SpanParts(self.q, self.k, self.u, self.v, self.scale)

    def _terms(self, labels: SpanLabels | None, smoothing: float) -> SpanTerms:
        if labels is None:
            none = self.lengths.new_zeros(0)
            return SpanTerms(self.lengths, self.triangle, none, none, none, none)
        found: SpanTerms = TILES.make_terms(self.lengths, self.triangle, labels, smoothing)
        return found

    def _fitted(self, who: str, labels: SpanLabels, *, validate: bool) -> SpanLabels:
        """The labels on the grid of the scores, checked."""
        num_rows, num_types, num_tokens, _ = self.shape
        if len(labels) != num_rows or labels.num_types != num_types or labels.num_tokens > num_tokens:
            raise ValueError(
                f"{who}: `labels` must fit `logits`, {num_rows} rows, {num_types} types, {num_tokens} tokens; got"
                f" {len(labels)} rows, {labels.num_types} types, {labels.num_tokens} tokens."
                " Number tokens and types as in the scores."
            )
        labels = labels.widened(num_tokens)
        if validate:
            outside = ~self._terms(labels, 0.0).counted()
            if bool(outside.any()):
                place = int(outside.nonzero()[0])
                cell = (int(labels.types[place]), int(labels.first[place]), int(labels.last[place]))
                raise ValueError(
                    f"{who}: `labels` must lie on cells that count; got {cell} in row {int(labels.rows[place])}, which is"
                    " beyond the row's length or below the diagonal. Both tokens are inclusive and start at 0."
                )
        return labels

    def _dense_sides(
        self,
        who: str,
        labels: SpanLabels | Tensor,
        where: Tensor | None,
        weights: tuple[Tensor | None, Tensor | None],
        smoothing: float,
        axes: set[int],
        engine: str,
        validate: bool,
    ) -> tuple[Tensor, Tensor]:
        """The sides of the dense tensor. A type's weight multiplies a whole problem unless types are summed over."""
        counts = self.where()
        if where is not None:
            check_where(who, where, self.shape)
            counts = counts & where
        dense = labels.dense() if isinstance(labels, SpanLabels) else labels
        sides = two_sided_logsumexp(
            self.dense(),
            dense,
            where=counts,
            pos_weight=weight_on_axes(weights[0], axes),
            neg_weight=weight_on_axes(weights[1], axes),
            smoothing=smoothing,
            dim=sorted(axes),
            engine=engine,
            validate=validate,
            who=who,
        )
        if 1 in axes:
            return sides
        pos, neg = (add_log_weight(side, weight) for side, weight in zip(sides, weights, strict=True))
        return pos, neg
