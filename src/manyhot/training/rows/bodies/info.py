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
# How a body is fitted; ``phases`` has a function for each. Held out: some rows stop the training. Members: several bodies, each
# without some rows. Crossed: plain steps on all rows, with cross-fitted scores to tune on. Solved: no steps at all.
# Wide: members whose scores are lazy, with top lists to tune on.
HELD_OUT, MEMBERS, CROSSED, SOLVED, WIDE = "held out", "members", "crossed", "solved", "wide"
USUAL_BATCH = 128


class Visits(NamedTuple):
    """The total number of row visits, and the fewest and most epochs."""

    rows: int
    least: int
    most: int

    def epochs(self, num_rows: int) -> int:
        """Passes over ``num_rows`` rows."""
        return min(max(round(self.rows / max(num_rows, 1)), self.least), self.most)


class Members(NamedTuple):
    """How many fits a model is the mean of, on at most ``most_rows`` rows; one fit on more."""

    fits: int
    most_rows: float = float("inf")

    def on(self, num_rows: int, *, held_out: float) -> int:
        """Fits for ``num_rows`` rows, each without another ``held_out`` of them: as many as there are such parts at most."""
        most = int(1 / held_out + 1e-9) if held_out else self.fits
        return min(self.fits, most) if num_rows <= self.most_rows else 1


ONE_FIT = Members(1)
# For bodies with hidden layers, which use early stopping; chosen for time, its effect was not measured.
HIDDEN_VISITS = Visits(500_000, 10, 40)


@dataclass(frozen=True)
class BodyInfo:
    """One body.

    Args:
        name: as settings and saved models call it.
        summary: one line.
        reads: kinds of examples: ``texts``, ``features``, ``images``.
        build: from its description (``body``, ``width``, ``num_labels``, ``hidden``, ``dropout``, ``sparse`` and ``shape``)
            to a module from a batch to logits ``[B, L]``, with a linear ``head`` whose bias is set to the labels' log odds.
        inputs: the preparation of its inputs, a key of ``INPUTS``; empty: the one of the kind of examples.
        automatic: whether the model ``auto`` may be this body; the first entry that fits the examples is taken.
        largest_sparse: for ``auto``: it suits only sparse inputs with at most this many features times labels.
        fitting: how it is fitted: ``HELD_OUT``, ``MEMBERS``, ``CROSSED`` or ``SOLVED``.
        sparse_fitting: the same on sparse inputs.
        visits: how many epochs it gets where the settings do not say.
        sparse_visits: the same on sparse inputs.
        epochs: a fixed number of epochs instead.
        batch_size: rows of a step, where the settings do not say.
        learning_rate: where the settings do not say; None: by a range test, or by the rows' lengths for plain steps.
        join: from several bodies to one whose logits are their mean; None where there is none, and then one fit is the model.
        beside: from several bodies to one with the logits of all, one after the other; None where there is none.
        members: how many fits the model is the mean of, where the settings do not say.
        dropout: the usual share of hidden units dropped; None: the body has no dropout, so R-Drop has nothing to compare.
        hidden: whether it has a hidden layer whose width is the setting ``hidden``.
        hidden_size: its width, where the settings do not say.
        usual_loss: where the settings name none and no threshold is asked for; empty: the first of ``losses``, or zlpr.
        mixes: whether mixup can mix its inputs.
        losses: the losses it can be fitted with, the usual one first; empty: all.
        least_labels: fewer labels than this are refused.
        automatic_labels: the model ``auto`` is this body from this many labels on, on a CPU; 0: never for that reason.
        ready: whether it can be fitted on this machine, for ``auto``.
        weighs_positives: whether positives get a larger weight in texts where the settings do not say.
        shape: further entries of its description.
        describe: entries of its description that depend on settings and prepared inputs.
        fingerprint: a digest of what it reads besides the examples, None where it reads nothing.
        trains: whether ``train`` fits it; otherwise it comes from elsewhere and is only saved and loaded.
        fewest_labels: for ``auto``: it suits only sets with at least this many labels.
        devices: for ``auto``, the kinds of devices it is taken on; empty: all.
        lazy: whether its scores are lazy, so that it needs a loss that takes them, and hard labels that are all known.
        explains: whether its scores can be split among the inputs of a row, by weights or by gradients.
        no_export: why no other software can hold it; empty: it can be exported.
        unsaved_buffers: whether it computes values when it is made that are not in its state; loading builds the body to
            compute them again.
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
    unsaved_buffers: bool = False

    def fits(self, *, sparse: bool, width: int, num_labels: int, device: str) -> bool:
        """Whether ``auto`` may take it for inputs of ``width`` features on a kind of device."""
        if self.devices and device not in self.devices:
            return False
        small = self.largest_sparse is None or (sparse and width * num_labels <= self.largest_sparse)
        return self.automatic and small and num_labels >= self.fewest_labels

    def fitting_on(self, *, sparse: bool) -> str:
        """How it is fitted to sparse or dense inputs."""
        return self.sparse_fitting or self.fitting if sparse else self.fitting

    def num_epochs(self, num_rows: int, *, sparse: bool) -> int:
        """The default number of epochs: fewer for many rows."""
        visits = self.sparse_visits if sparse and self.sparse_visits is not None else self.visits
        return self.epochs or visits.epochs(num_rows)
