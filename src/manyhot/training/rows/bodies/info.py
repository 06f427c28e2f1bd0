"""The registry entry of a body (``BodyInfo``): everything that the rest of the library needs to know about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import nn

    from manyhot.training.rows.settings import TrainSettings

Shape = dict[str, Any]
AUTO_BODY = "auto"
# How a body is fitted; ``phases`` has a function for each.
# HELD_OUT: early stopping on held-out rows. MEMBERS: the mean of several bodies, each with a different part of the rows held
# out. CROSSED: plain gradient steps on all rows; the rule is tuned on cross-validation scores. SOLVED: no gradient steps.
# WIDE: members with lazy scores; the rule is tuned on their top lists.
HELD_OUT, MEMBERS, CROSSED, SOLVED, WIDE = "held out", "members", "crossed", "solved", "wide"
USUAL_BATCH = 128


class Visits(NamedTuple):
    """The total number of row visits, and the fewest and most epochs."""

    rows: int
    least: int
    most: int

    def epochs(self, num_rows: int) -> int:
        """The number of epochs over ``num_rows`` rows."""
        return min(max(round(self.rows / max(num_rows, 1)), self.least), self.most)


class Members(NamedTuple):
    """The number of ensemble members: ``fits`` on at most ``most_rows`` rows, otherwise one."""

    fits: int
    most_rows: float = float("inf")

    def on(self, num_rows: int, *, held_out: float) -> int:
        """The number of members for ``num_rows`` rows; each holds out a different share ``held_out`` of the rows."""
        most = int(1 / held_out + 1e-9) if held_out else self.fits
        return min(self.fits, most) if num_rows <= self.most_rows else 1


ONE_FIT = Members(1)
# For bodies with hidden layers, which stop early. Chosen for training time; the effect on quality was not measured.
HIDDEN_VISITS = Visits(500_000, 10, 40)


@dataclass(frozen=True)
class BodyInfo:
    """One body.

    Args:
        name: as settings and saved models call it.
        summary: one line.
        reads: kinds of examples: ``texts``, ``features``, ``images``.
        build: makes the module from its description (``body``, ``width``, ``num_labels``, ``hidden``, ``dropout``, ``sparse``
            and ``shape``). It maps a batch to logits ``[B, L]`` and has a linear ``head``, whose bias is set to the labels'
            log odds.
        inputs: how its inputs are prepared, a key of ``INPUTS``; empty: by the kind of the examples.
        automatic: whether ``auto`` may choose this body; it chooses the first entry that fits the examples.
        largest_sparse: ``auto`` chooses it only for sparse inputs with at most this many features times labels.
        fitting: how it is fitted: ``HELD_OUT``, ``MEMBERS``, ``CROSSED`` or ``SOLVED``.
        sparse_fitting: the same on sparse inputs.
        visits: the default number of epochs, as row visits.
        sparse_visits: the same on sparse inputs.
        epochs: a fixed default number of epochs instead of ``visits``.
        batch_size: the default batch size.
        learning_rate: the default learning rate; None: by a range test, or for plain steps by the lengths of the rows.
        join: merges several bodies into one whose logits are their mean; None: bodies cannot be averaged.
        beside: merges several bodies into one that has the logits of all, concatenated; None: this is not possible.
        members: the default number of ensemble members.
        dropout: the default dropout probability; None: the body has no dropout, so that R-Drop has nothing to compare.
        hidden: whether it has a hidden layer whose width is the setting ``hidden``.
        hidden_size: the default width of that layer.
        narrow: ``(labels, width)``: from this many labels on, that layer has this width by default, to save memory.
        usual_loss: the default loss if no setting needs a threshold; empty: the first of ``losses``, or zlpr.
        mixes: whether mixup can mix its inputs.
        losses: the losses it can be fitted with, the default first; empty: all.
        least_labels: fewer labels than this are an error.
        automatic_labels: on its ``devices``, ``auto`` chooses it from this many labels on; 0: the number does not matter.
        ready: returns whether it can be fitted on this machine; ``auto`` asks.
        weighs_positives: whether positives get a larger weight by default for texts.
        shape: further entries of its description.
        describe: returns entries of its description that depend on settings and prepared inputs.
        fingerprint: returns a digest of what it reads besides the examples; None: it reads nothing else.
        trains: whether ``train`` fits it; otherwise it was trained elsewhere and is only saved and loaded.
        fewest_labels: ``auto`` chooses it only with at least this many labels.
        devices: the device types on which ``auto`` chooses it; empty: all.
        lazy: whether its scores are lazy. It then needs a loss that supports them, and hard labels that are all known.
        explains: whether its scores can be split among the inputs of a row, by weights or by gradients.
        no_export: why it cannot be exported; empty: it can.
        ngrams: the longest word n-gram by default, on many short texts and on long ones; it is 1 on few short texts.
        unsaved_buffers: whether its constructor computes buffers that are not in its state; loading then builds the body
            again to compute them.
    """

    name: str
    summary: str
    reads: tuple[str, ...]
    build: Callable[[Shape], nn.Module]
    inputs: str = ""
    automatic: bool = False
    largest_sparse: int | None = None
    fitting: str = HELD_OUT
    sparse_fitting: str = ""
    visits: Visits = HIDDEN_VISITS
    sparse_visits: Visits | None = None
    epochs: int | None = None
    batch_size: int = USUAL_BATCH
    learning_rate: float | None = None
    join: Callable[[Sequence[Any]], nn.Module] | None = None
    beside: Callable[[Sequence[Any]], nn.Module] | None = None
    members: Members = ONE_FIT
    dropout: float | None = 0.3
    hidden: bool = True
    hidden_size: int = 256
    narrow: tuple[int, int] | None = None
    usual_loss: str = ""
    mixes: bool = True
    losses: tuple[str, ...] = ()
    least_labels: int = 1
    automatic_labels: int = 0
    ready: Callable[[], bool] = lambda: True
    weighs_positives: bool = True
    shape: Mapping[str, Any] = field(default_factory=dict)
    describe: Callable[[TrainSettings, Any], Shape] | None = None
    fingerprint: Callable[[TrainSettings], str] | None = None
    trains: bool = True
    fewest_labels: int = 0
    devices: tuple[str, ...] = ()
    lazy: bool = False
    explains: bool = True
    no_export: str = ""
    ngrams: tuple[int, int] = (1, 1)
    unsaved_buffers: bool = False

    def fits(self, *, sparse: bool, width: int, num_labels: int, device: str) -> bool:
        """Whether ``auto`` may choose it for inputs of ``width`` features on this device type."""
        if self.devices and device not in self.devices:
            return False
        small = self.largest_sparse is None or (sparse and width * num_labels <= self.largest_sparse)
        return self.automatic and small and num_labels >= self.fewest_labels

    @property
    def averages(self) -> bool:
        """Whether a model can be the mean of several of these bodies."""
        return self.join is not None or self.fitting == WIDE

    def fitting_on(self, *, sparse: bool) -> str:
        """How it is fitted to sparse or dense inputs."""
        return self.sparse_fitting or self.fitting if sparse else self.fitting

    def hidden_for(self, num_labels: int) -> int:
        """The default width of the hidden layer."""
        return self.narrow[1] if self.narrow is not None and num_labels >= self.narrow[0] else self.hidden_size

    def num_epochs(self, num_rows: int, *, sparse: bool) -> int:
        """The default number of epochs: fewer for many rows."""
        visits = self.sparse_visits if sparse and self.sparse_visits is not None else self.visits
        return self.epochs or visits.epochs(num_rows)
