"""Scores of a linear head, ``hidden @ weight.T + bias``, that are never stored whole."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_at_least, check_engine, check_unit, shape_text
from manyhot.engines.linear import plain
from manyhot.engines.linear.problem import Update
from manyhot.engines.linear.registry import choose_linear, computes_losses, failed
from manyhot.engines.registry import NAMES
from manyhot.engines.terms import Weight
from manyhot.labels.sparse import SparseLabels
from manyhot.losses.core.dispatch import fit_offset, row_scale
from manyhot.losses.core.layout import Labels, Rows, check_terms
from manyhot.losses.core.logsumexp import Dim, LazyScores
from manyhot.losses.core.reduction import reduce
from manyhot.scores.linear_checks import LinearCall, check_parts, chunk_and_kept, chunk_labels
from manyhot.scores.linear_decoupled import as_lists, decoupled_chunk, decoupled_rows
from manyhot.scores.linear_sides import LinearLoss, LinearSides
from manyhot.scores.linear_top import best_labels, chunk_for
from manyhot.scores.shards import DenseShards, Group, find_shard, local_parts, summed_over
from manyhot.scores.top import TopScores


class LinearScores(LazyScores):
    """The scores ``[..., L]`` of a linear head, described by their factors.

    Losses of the family process the labels in chunks: each chunk's scores are computed and summed into two floats per row;
    backward needs them again for the gradient. The result is exact: nothing is sampled or skipped. Scores that fit
    ``memory_budget`` are kept from forward to backward, and the loss takes three matrix products of the size of the head;
    otherwise they are recomputed, and it takes four.

    With ``group`` the labels are divided among processes: ``weight`` and ``bias`` have the rows of this process's labels,
    while ``hidden`` and the labels given to a loss or metric are the same on all of them. Values and gradients equal those of
    one process that has all labels; the gradient of ``hidden`` is already summed over the group. Every process of the group
    must make the same calls.

    Args:
        hidden: ``[..., D]``.
        weight: ``[L, D]``, of the type of ``hidden``, or of any type under autocast. A DTensor sharded by labels brings its own
            group and offset; if a mesh axis replicates it, its gradient is averaged over that axis.
        bias: ``[L]``, or None.
        chunk_size: labels per chunk (on CUDA rounded up to a multiple of 2048). None: a size that suits the device.
        memory_budget: bytes of scores that may be kept between forward and backward; 0 keeps none. None keeps all if they take
            at most a sixteenth of the GPU's memory, or 128 MiB on the CPU, and none otherwise.
        update: applies the gradient of ``weight`` and ``bias`` during backward instead of returning it; see
            ``LinearHead``.
        group: the processes that share the labels; None if this one has all labels.
        offset: the number of this process's first label; None if the shards follow each other in the order of the processes.
        num_labels: L, over all processes. If it or ``offset`` is None, the processes exchange their sizes, 16 bytes each.

    Example:
        >>> from manyhot import SparseLabels, zlpr_loss
        >>> _ = torch.manual_seed(0)
        >>> hidden, weight = torch.randn(2, 8), torch.randn(1000, 8, requires_grad=True)
        >>> scores = LinearScores(hidden, weight)
        >>> loss = zlpr_loss(scores, SparseLabels.from_lists([[3, 700], [5]], num_labels=1000))
        >>> loss.backward()
        >>> scores.shape, weight.grad.shape
        (torch.Size([2, 1000]), torch.Size([1000, 8]))
    """

    __slots__ = ("bias", "chunk_size", "hidden", "memory_budget", "shard", "update", "weight")

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        chunk_size: int | None = None,
        memory_budget: int | None = None,
        update: Update | None = None,
        group: Group = None,
        offset: int | None = None,
        num_labels: int | None = None,
    ) -> None:
        if type(weight) not in (Tensor, torch.nn.Parameter):
            weight, bias, group, offset, num_labels = local_parts(weight, bias, (group, offset, num_labels))
        check_parts(hidden, weight, bias)
        if chunk_size is not None:
            check_at_least("LinearScores", "chunk_size", chunk_size, 1)
        if memory_budget is not None:
            check_at_least("LinearScores", "memory_budget", memory_budget, 0)
        self.hidden, self.weight, self.bias = hidden, weight, bias
        self.chunk_size, self.memory_budget, self.update = chunk_size, memory_budget, update
        if group is None and (offset is not None or num_labels is not None):
            raise ValueError("LinearScores: `offset` and `num_labels` are for label shards; give `group` too.")
        self.shard = None if group is None else find_shard(group, weight.shape[0], offset, num_labels, hidden.device)

    @property
    def shape(self) -> torch.Size:
        """``[..., L]``, of all processes together."""
        num_labels = self.weight.shape[0] if self.shard is None else self.shard.num_labels
        return torch.Size((*self.hidden.shape[:-1], num_labels))

    @property
    def flat_shape(self) -> torch.Size:
        """``[R, L]``, with R rows over all axes before the labels."""
        return torch.Size((self.shape[:-1].numel(), self.shape[-1]))

    @property
    def first_label(self) -> int:
        """The number of the label that the first row of ``weight`` is for."""
        return 0 if self.shard is None else self.shard.start

    @property
    def device(self) -> torch.device:
        """Where the scores would be."""
        return self.hidden.device

    def dense(self) -> Tensor:
        """The whole tensor ``[..., L]``, on every process."""
        bias = None if self.bias is None else self.bias.to(self.weight.dtype)
        if self.shard is None:
            return torch.nn.functional.linear(self.hidden, self.weight, bias)
        hidden = summed_over(self.hidden.reshape(-1, self.hidden.shape[-1]), self.shard.group)
        own = torch.nn.functional.linear(hidden, self.weight, bias)
        out: Tensor = DenseShards.apply(own, self.shard)  # type: ignore[no-untyped-call]
        return out.reshape(self.shape)

    def with_hidden(self, hidden: Tensor) -> LinearScores:
        """The scores of other rows, without gradients or updates."""
        weight, bias = self.weight.detach(), None if self.bias is None else self.bias.detach()
        return LinearScores(hidden.detach(), weight, bias, **self._settings())

    def _settings(self) -> dict[str, Any]:
        shard: dict[str, Any] = {}
        if self.shard is not None:
            shard = {"group": self.shard.group, "offset": self.shard.start, "num_labels": self.shard.num_labels}
        return {"chunk_size": self.chunk_size, "memory_budget": self.memory_budget, **shard}

    @torch.no_grad()
    def top(self, k: int, *, where: Tensor | None = None, log_sums: bool = False) -> TopScores:
        """The ``k`` best labels of each row, or all if there are fewer; needs the memory of one chunk.

        Args:
            k: how many.
            where: bool ``[L]``; False leaves a label out.
            log_sums: also compute ``TopScores.log_sums``, which takes one more product.

        Returns:
            One row for each row of ``hidden``. If ``where`` leaves fewer than ``k`` labels, the last places have the index -1
            and the score -inf.
        """
        check_at_least("LinearScores.top", "k", k, 1)
        hidden, weight, bias = self._products()
        size = self.chunk_size or chunk_for(hidden, chunk_labels(plain, hidden, weight, None, kept=False))
        found = best_labels(hidden, weight, bias, k=min(k, self.shape[-1]), size=size, where=where, shard=self.shard)
        found.log_sums = self.log_sums(where).reshape(-1) if log_sums else None
        return found

    @torch.no_grad()
    def log_sums(self, where: Tensor | None = None) -> Tensor:
        """``[...]``: the logarithm of the sum of ``e^s`` over the labels of each row, chunk by chunk.

        Args:
            where: bool, broadcastable to ``[..., L]``; False leaves a label out.
        """
        return self.two_sided_logsumexp(SparseLabels.none(*self.flat_shape, device=self.device), where=where)[1]

    def __mul__(self, factor: float) -> LinearScores:
        """The scores times a number: ``hidden`` and ``bias`` are scaled, the weight is not."""
        if self.update is not None:
            raise ValueError("LinearScores: scores with a fused update cannot be scaled; scale `hidden` before the head.")
        bias = None if self.bias is None else self.bias * factor
        return LinearScores(self.hidden * factor, self.weight, bias, **self._settings())

    def __repr__(self) -> str:
        own = "" if self.shard is None else f", labels {self.shard.start} to {self.shard.stop} here"
        return f"LinearScores({shape_text(self.shape)}, hidden size {self.hidden.shape[-1]}{own})"

    def two_sided_logsumexp(
        self,
        labels: Labels,
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
        """``(pos, neg)``, each ``[...]``, with gradients to ``hidden``, ``weight`` and ``bias``; see the function."""
        about: dict[str, Any] = {"where": where, "pos_weight": pos_weight, "neg_weight": neg_weight, "smoothing": smoothing}
        call = self._call(who, labels, dim, engine, validate, **about)
        rest = (call.engine, call.chunk, call.kept, self.update, engine != "auto", type(call.terms), *call.terms)
        if self.shard is not None:
            from manyhot.scores.outside_graph import sharded_sides

            pos, neg = sharded_sides(*call.parts, self.shard.group, *rest)
        else:
            run: Any = LinearSides.apply
            if self.update is not None and torch.compiler.is_compiling():
                from manyhot.scores.outside_graph import sides_outside_graph

                run = sides_outside_graph
            pos, neg = run(*call.parts, *rest)
        return pos.reshape(self.shape[:-1]), neg.reshape(self.shape[:-1])

    def decoupled_loss(
        self, who: str, labels: Labels, *, where: Tensor | None = None, dim: Dim = -1, validate: bool = False
    ) -> Tensor:
        """Decoupled softmax of each row, ``[...]``; see ``manyhot.losses.decoupled``."""
        labels = as_lists(labels)
        about = {"pos_weight": None, "neg_weight": None, "smoothing": 0.0}
        call = self._call(who, labels, dim, "auto", validate, where=where, **about)
        chunk = call.chunk if self.chunk_size else decoupled_chunk(*call.parts[:2], call.chunk, call.kept)
        rest = (call.engine, chunk, call.kept, self.update, False, type(call.terms), *call.terms)
        values = decoupled_rows(*call.parts, None if self.shard is None else self.shard.group, *rest)
        return values.reshape(self.shape[:-1])

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
        """The loss of ``form`` by an engine that computes it directly from scores, which saves the operations in between.

        Arguments are those of ``manyhot.losses.core.dispatch.side_loss``.

        Returns:
            The reduced loss; None if the caller has to use ``two_sided_logsumexp``.
        """
        if self.shard is not None or torch.compiler.is_compiling() or not computes_losses(engine, self.hidden):
            return None
        about: dict[str, Any] = {"where": where, "pos_weight": pos_weight, "neg_weight": neg_weight, "smoothing": smoothing}
        call = self._call(who, labels, dim, engine, validate, **about)
        if not hasattr(call.engine, "losses"):
            return None
        rows = self.shape[:-1]
        if isinstance(offset, Tensor):
            offset = fit_offset(who, offset, rows, torch.float32, self.device).expand(rows).reshape(-1)
        whole = reduction != "none"
        scale = row_scale(who, Rows(call.parts[0], call.terms, rows), sample_weight, reduction, validate) if whole else 1.0
        strict = engine != "auto"
        rest = (call.engine, call.chunk, call.kept, self.update, form, scale, whole, strict, type(call.terms), *call.terms)
        try:
            value: Tensor = LinearLoss.apply(*call.parts, offset, *rest)  # type: ignore[no-untyped-call]
        except Exception as error:
            if strict:
                raise
            failed(call.engine, error)
            return None
        if whole:
            return value
        return reduce(who, value.reshape(rows), sample_weight=sample_weight, reduction=reduction, validate=validate)

    def _call(
        self, who: str, labels: Labels, dim: Dim, engine: str, validate: bool, *, where: Tensor | None, **about: Any
    ) -> LinearCall:
        """The checked problem, and its engine."""
        check_unit(who, "smoothing", about["smoothing"])
        check_engine(who, engine, NAMES)
        if dim not in (-1, len(self.shape) - 1, [-1], (-1,)):
            raise ValueError(f"{who}: LinearScores have their labels on the last axis; got dim {dim}. Call .dense().")
        rows = self.flat_shape
        if isinstance(labels, Tensor) and labels.shape == self.shape:
            labels = labels.reshape(rows)
        where = None if where is None else where.expand(self.shape).reshape(rows)
        terms = check_terms(who, rows, labels, where=where, dim=-1, validate=validate, device=self.device, **about)
        if self.shard is not None:
            from manyhot.scores.outside_graph import cut_terms

            terms = cut_terms(terms, self.shard.start, self.shard.stop)
        parts = self._products()
        chosen = choose_linear(who, engine, *parts, terms)
        return LinearCall(parts, terms, chosen, *chunk_and_kept(chosen, *parts[:2], self.chunk_size, self.memory_budget))

    def _products(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The parts, with ``hidden [R, D]`` in the type of the product (autocast)."""
        hidden = self.hidden.reshape(-1, self.hidden.shape[-1])
        device = hidden.device.type
        if torch.is_autocast_enabled(device) and torch.float64 not in (hidden.dtype, self.weight.dtype):
            hidden = hidden.to(torch.get_autocast_dtype(device))
        elif hidden.dtype != self.weight.dtype:
            raise TypeError(
                f"LinearScores: `hidden` and `weight` must have one type outside of autocast; got {hidden.dtype} and"
                f" {self.weight.dtype}. Convert one of them, or use torch.autocast."
            )
        return hidden, self.weight, self.bias
