"""A body for very many labels: learned word vectors and a linear head, both updated inside backward; scores are lazy.

Neither the scores ``[B, L]`` nor a gradient as large as the weights is ever in memory, and no step waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from manyhot.explain.contributions import LinearFactors
from manyhot.heads.linear import LinearHead
from manyhot.heads.mesh import local
from manyhot.scores.linear import LinearScores
from manyhot.training.rows.bodies.word_table import WordTable
from manyhot.training.rows.inputs.row_batches import SparseRows
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.device import choose_device, uses_bfloat16
from manyhot.training.run.processes import Processes, ProcessesError, process_mesh

# Learning rate of the word vectors relative to that of the head (AdaGrad).
TABLE_RATE = 3.3
# Up to this many numbers, a finished model holds its head in float32, for the same scores on every device.
LARGEST_FLOAT32 = 1 << 28
# Up to this many numbers, a finished model holds its word vectors in float32. Larger tables are rounded to int8 with a scale
# for each row, which takes a quarter of the time to save and load them. Earlier models have float16.
LARGEST_FLOAT32_TABLE = 1 << 26
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "int8": torch.int8}


class WideBody(nn.Module):
    """Sparse rows to lazy scores ``[B, L]``.

    Args:
        width: F, features.
        num_labels: L.
        hidden: H.
        head: the dtype of the head's weights, ``float32`` or ``bfloat16``.
        dropout: dropout probability of the hidden units.
        moves: whether it is trained.
        table: the dtype of the word vectors: ``float32`` or, if they are not trained, ``float16`` or ``int8``.
        device: where the word vectors are drawn. The head is drawn on the CPU, as a sharded one is.
        mesh: the processes that the labels of the head are sharded over; each has all word vectors. The initial weights are
            bit by bit those of a body without a mesh.
        zeros: the features whose vectors start at 0; see ``WordTable``.
    """

    def __init__(
        self,
        width: int,
        num_labels: int,
        *,
        hidden: int,
        head: str,
        dropout: float,
        moves: bool,
        table: str = "float32",
        device: torch.device | str | None = None,
        mesh: Any = None,
        zeros: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__()
        self.first = WordTable(width, hidden, moves=moves, dtype=TYPES[table], device=device, zeros=zeros)
        self.dropout = nn.Dropout(dropout)
        self.register_load_state_dict_post_hook(_with_rates)  # type: ignore[no-untyped-call]
        update = "adagrad" if moves else None
        if mesh is None:
            self.head = LinearHead(hidden, num_labels, dtype=TYPES[head], update=update)
            return
        with torch.random.fork_rng(devices=[]):
            self.head = LinearHead(hidden, num_labels, dtype=TYPES[head], update=update, mesh=mesh)
        assert self.head.mesh is not None
        drawn = self.head.mesh.draw_in_order(hidden, TYPES[head], std=hidden**-0.5)
        with torch.no_grad():
            local(self.head.weight).copy_(drawn)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next backward."""
        self.head.lr = rate
        self.first.rate.fill_(TABLE_RATE * rate)

    def forward(self, batch: SparseRows) -> LinearScores:
        """Lazy scores ``[B, L]``."""
        scores: LinearScores = self.head(self.dropout(self.first(batch)))
        return scores

    def factors(self) -> LinearFactors:
        """The two tables whose product is the score."""
        bias = self.head.bias
        assert bias is not None
        return LinearFactors(self.first.weight.detach(), self.head.weight.detach().float(), bias.detach(), self.first.scales)


def _with_rates(body: nn.Module, keys: Any) -> None:
    """Create the learning rates of a body that was made on the meta device; they are not part of its state."""
    del keys
    assert isinstance(body, WideBody)
    for part in (body.first, body.head):
        if part.rate.is_meta:
            part.rate = torch.zeros_like(part.rate, device=body.first.weight.device)


@torch.no_grad()
def finished(bodies: Sequence[WideBody]) -> WideBody:
    """One body to predict with, whose scores are the mean of those of ``bodies``: their hidden layers side by side.

    Its labels are sharded as theirs are; see ``assembled``.
    """
    width, num_labels = bodies[0].first.weight.shape[0], bodies[0].head.num_labels
    hidden = sum(each.head.hidden_size for each in bodies)
    small = num_labels * hidden <= LARGEST_FLOAT32
    kind = "float32" if small or bodies[0].head.weight.dtype == torch.float32 else "bfloat16"
    table = "float32" if width * hidden <= LARGEST_FLOAT32_TABLE else "int8"
    with torch.device("meta"):
        joined = WideBody(width, num_labels, hidden=hidden, head=kind, dropout=0.0, moves=False, table=table)
    weights = torch.cat([local(each.head.weight).to(TYPES[kind]) for each in bodies], dim=1).div_(len(bodies))
    bias = torch.stack([local(each.head.bias) for each in bodies]).mean(dim=0)
    joined.first.hold([each.first.weight for each in bodies])
    mesh = joined.head.mesh = bodies[0].head.mesh
    joined.head.weight = nn.Parameter(weights if mesh is None else mesh.distribute(weights))
    joined.head.bias = nn.Parameter(bias if mesh is None else mesh.distribute(bias))
    for name in ("seed", "step", "rate"):
        setattr(joined.head, name, getattr(bodies[0].head, name).clone())
    joined.first.rate = torch.zeros_like(bodies[0].first.rate)
    return joined.eval()


class BodyElsewhere(nn.Module):
    """A placeholder for a body that another process holds; using it raises an error that says so."""

    def __init__(self) -> None:
        super().__init__()
        # ``TrainedModel.device`` is that of the first parameter.
        self.empty = nn.Parameter(torch.empty(0))

    def forward(self, *_: Any) -> Tensor:
        """Raises an error."""
        raise self._error()

    def state_dict(self, *_: Any, **__: Any) -> Any:
        """Raises an error."""
        raise self._error()

    def _error(self) -> ProcessesError:
        return ProcessesError(
            "train: a model with sharded labels must be used in the first process, which holds all of it; this is another"
            " process. Load the model from the run folder."
        )


@torch.no_grad()
def assembled(body: WideBody) -> nn.Module:
    """Gather a body with sharded labels on the CPU of the first process; the others get ``BodyElsewhere``.

    A body without shards is returned as it is.
    """
    mesh = body.head.mesh
    if mesh is None:
        return body
    weight, bias = (mesh.collect(local(part)) for part in (body.head.weight, body.head.bias))
    if weight is None or bias is None:
        return BodyElsewhere().eval()
    body.head.mesh = None
    body.head.weight, body.head.bias = nn.Parameter(weight), nn.Parameter(bias)
    return body.cpu().eval()


def wide_shape(settings: TrainSettings, inputs: Any) -> dict[str, Any]:
    """The entries that training adds to the description of a wide body: the head's dtype, that it is trained, where, and which
    features of ``inputs`` start at 0: n-grams of several words."""
    device = Processes.current().device(choose_device(settings.device))
    bfloat16 = uses_bfloat16(device, settings.precision)
    shards = {"shards_on": device.type} if settings.label_shards else {}
    lengths = [len(keys) for keys in inputs.words.keys] if inputs is not None else [0]
    zeros = (lengths[0], sum(lengths))
    return {"head": "bfloat16" if bfloat16 else "float32", "moves": True, "made_on": str(device), "zeros": zeros, **shards}


def make_wide(shape: dict[str, Any]) -> WideBody:
    """A wide body from its description."""
    sizes = {"hidden": int(shape["hidden"]), "head": shape["head"], "dropout": float(shape["dropout"])}
    mesh = process_mesh(shape["shards_on"]) if "shards_on" in shape else None
    about = {"moves": bool(shape.get("moves", False)), "table": shape.get("table", "float32"), "device": shape.get("made_on")}
    about["zeros"] = shape.get("zeros", (0, 0))
    return WideBody(int(shape["width"]), int(shape["num_labels"]), **sizes, **about, mesh=mesh)
