"""A linear head for very many labels: lazy scores, and an update of the weights inside backward."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from manyhot._checks import check_at_least, check_choice, check_logits, shape_text
from manyhot.engines.linear.updates import UPDATES, FusedUpdate
from manyhot.heads.mesh import LabelMesh, local
from manyhot.scores.linear import LinearScores
from manyhot.scores.top import TopScores

TYPES = (torch.float32, torch.bfloat16)


class LinearHead(nn.Module):
    """``hidden @ weight.T + bias`` for very many labels, as lazy scores that losses of the family process in chunks.

    Without ``update`` the weights get gradients like any others. With ``update`` backward itself updates them, chunk by chunk,
    so that their gradient never exists as a whole: the extra memory is one chunk of it, and for ``"adagrad"`` one number per
    label. Such a head takes one step in every backward. It needs no optimizer, and supports no gradient clipping or
    accumulation.

    The update rounds weights in bfloat16 stochastically, so that small steps are right on average. The noise depends on the
    seed and the number of the step, which are saved with the weights: a loaded head continues bitwise identically.

    On a ``mesh`` the labels are divided among the processes along one axis, and the others are data parallel. Parameters and
    buffers with a value per label are DTensors then, which ``torch.distributed.checkpoint`` saves and loads for any number of
    processes. Keep the head out of DDP and FSDP: it averages the gradient of its weights over the data axes itself. All
    processes along the label axis must pass the same rows; ``gather_rows`` brings together those that each has encoded.

    Args:
        hidden_size: D.
        num_labels: L, over all processes.
        dtype: of the weights, float32 or bfloat16. The bias is float32.
        bias: False leaves it out.
        label_counts: how many of ``num_examples`` rows carry each label, ``[L]``; the bias starts at the log odds. Without them
            it starts at -log L, so that the negatives of a row start with a sum near 1.
        num_examples: number of rows that were counted.
        update: ``"sgd"`` or ``"adagrad"`` (row-wise), or None to leave the update to an optimizer.
        lr: learning rate of the update; assign to ``head.lr`` to change it.
        weight_decay: each step subtracts ``lr * weight_decay`` times the weights; the bias does not decay.
        epsilon: of AdaGrad.
        seed: of the rounding noise.
        chunk_size: see ``LinearScores``.
        memory_budget: see ``LinearScores``.
        mesh: a ``torch.distributed.DeviceMesh``; its axis called ``labels``, otherwise the last one, divides the labels. The
            initial weights do not depend on the mesh. With ``update`` there can be no data axis of more than one process,
            because every process updates its labels alone.

    Example:
        >>> from manyhot import SparseLabels, zlpr_loss
        >>> _ = torch.manual_seed(0)
        >>> head = LinearHead(8, 1000, update="sgd", lr=0.1)
        >>> hidden = torch.randn(2, 8)
        >>> labels = SparseLabels.from_lists([[3, 700], [5]], num_labels=1000)
        >>> for _ in range(200):
        ...     zlpr_loss(head(hidden), labels).backward()
        >>> head.top_k(hidden, 2).indices.tolist()[0]
        [3, 700]
        >>> head.weight.grad is None
        True
    """

    rate: Tensor
    seed: Tensor
    step: Tensor
    squares: Tensor | None
    bias_squares: Tensor | None

    def __init__(
        self,
        hidden_size: int,
        num_labels: int,
        *,
        dtype: torch.dtype = torch.float32,
        bias: bool = True,
        label_counts: Tensor | None = None,
        num_examples: int | None = None,
        update: str | None = None,
        lr: float = 0.1,
        weight_decay: float = 0.0,
        epsilon: float = 1e-8,
        seed: int = 0,
        chunk_size: int | None = None,
        memory_budget: int | None = None,
        mesh: Any = None,
    ) -> None:
        super().__init__()
        check_at_least("LinearHead", "hidden_size", hidden_size, 1)
        check_at_least("LinearHead", "num_labels", num_labels, 1)
        check_choice("LinearHead", "dtype", dtype, TYPES)
        check_choice("LinearHead", "update", update, (None, *UPDATES))
        check_at_least("LinearHead", "weight_decay", weight_decay, 0)
        self.hidden_size, self.num_labels, self.update = hidden_size, num_labels, update
        self.weight_decay, self.epsilon = weight_decay, epsilon
        self.chunk_size, self.memory_budget = chunk_size, memory_budget
        self.mesh = None if mesh is None else LabelMesh(mesh, num_labels)
        if self.mesh is not None and update is not None and self.mesh.replicas > 1:
            raise ValueError(
                "LinearHead: `update` must be None on a mesh with a data axis: a process updates its labels with its own rows,"
                f" and {self.mesh.replicas} processes have the same labels. Divide the labels among all, and use gather_rows."
            )
        self.weight = nn.Parameter(self._first_weight(dtype))
        start = _first_bias(num_labels, label_counts, num_examples)
        self.bias = nn.Parameter(self._own(start)) if bias else None
        adaptive = update == "adagrad"
        self.register_buffer("squares", self._own(torch.zeros(num_labels)) if adaptive else None)
        self.register_buffer("bias_squares", self._own(torch.zeros(num_labels)) if adaptive and bias else None)
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        self.register_buffer("step", torch.tensor(0, dtype=torch.int64))
        self.register_buffer("rate", torch.tensor(0.0), persistent=False)
        self.lr = lr

    def _first_weight(self, dtype: torch.dtype) -> Tensor:
        if self.mesh is None:
            weight = torch.empty(self.num_labels, self.hidden_size, dtype=dtype)
            # On the meta device there is nothing to draw, and torch would import its compiler for it.
            return weight if weight.is_meta else weight.normal_(std=self.hidden_size**-0.5)
        return self.mesh.distribute(self.mesh.draw(self.hidden_size, dtype) * self.hidden_size**-0.5)

    def _own(self, values: Tensor) -> Tensor:
        """A value per label, for the labels of this process."""
        return values if self.mesh is None else self.mesh.distribute(self.mesh.own(values).clone())

    @torch.no_grad()
    def set_bias(self, values: Tensor) -> None:
        """Set the biases of all labels to ``values [L]``."""
        assert self.bias is not None
        local(self.bias).copy_(values if self.mesh is None else self.mesh.own(values))

    @property
    def lr(self) -> float:
        """The learning rate of the update."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        check_at_least("LinearHead", "lr", value, 0)
        self._lr = float(value)
        self.rate.fill_(self._lr)

    def forward(self, hidden: Tensor) -> LinearScores:
        """Lazy scores ``[..., L]`` of ``hidden [..., D]``, in training and evaluation alike; see ``top_k`` for prediction."""
        check_logits("LinearHead", hidden, "hidden")
        if hidden.shape[-1] != self.hidden_size:
            raise ValueError(
                f"LinearHead: `hidden` must be [..., {self.hidden_size}], as the head was made; got {shape_text(hidden.shape)}."
            )
        if not torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(self.weight.dtype)
        update = self._fused() if self.update is not None and torch.is_grad_enabled() else None
        return LinearScores(
            hidden, self.weight, self.bias, chunk_size=self.chunk_size, memory_budget=self.memory_budget, update=update
        )

    def top_k(self, hidden: Tensor, k: int, *, where: Tensor | None = None) -> TopScores:
        """The ``k`` best labels of each row of ``hidden [..., D]``, best first; with at most one chunk of scores in memory."""
        top: TopScores = self(hidden).top(k, where=where)
        return top

    def _fused(self) -> FusedUpdate:
        assert self.update is not None
        return FusedUpdate(
            self.update,
            local(self.weight.detach()),
            None if self.bias is None else local(self.bias.detach()),
            lr=self._lr,
            rate=self.rate,
            weight_decay=self.weight_decay,
            epsilon=self.epsilon,
            squares=local(self.squares),
            bias_squares=local(self.bias_squares),
            seed=self.seed,
            step=self.step,
            offset=0 if self.mesh is None else self.mesh.start,
        )

    def extra_repr(self) -> str:
        """Sizes, type and update."""
        about = f"{self.hidden_size}, {self.num_labels}, dtype={self.weight.dtype}, bias={self.bias is not None}"
        return about if self.update is None else f"{about}, update={self.update!r}, lr={self._lr:g}"


def _first_bias(num_labels: int, counts: Tensor | None, num_examples: int | None) -> Tensor:
    """Log odds of the labels, half a row added to either side; -log L without counts."""
    if counts is None:
        return torch.full((num_labels,), -math.log(num_labels))
    if num_examples is None or counts.shape != (num_labels,):
        raise ValueError(
            f"LinearHead: `label_counts` must be one count per label, [{num_labels}], with `num_examples`, the rows that were"
            f" counted; got {shape_text(counts.shape)} and {num_examples}."
        )
    counts = counts.detach().to("cpu", torch.float64)
    return torch.log((counts + 0.5) / (num_examples - counts + 0.5)).float()
