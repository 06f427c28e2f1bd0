"""The bodies by name. An entry (``BodyInfo``) says everything that the rest of the library asks about a body.

To add a body, write a module with a ``head`` that maps a batch to logits ``[B, L]`` in a file of this folder, and an entry
below. Settings, command line, training, saving and loading ask the entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manyhot._checks import check_choice
from manyhot.training.rows.bodies.info import CROSSED, MEMBERS, SOLVED, WIDE, BodyInfo, Members, Shape, Visits

if TYPE_CHECKING:
    from torch import nn

# Above this many weights (features times labels), a linear body is larger and slower to fit than a hidden layer.
LARGEST_LINEAR = 50_000_000
# From this many labels on a head with lazy scores pays off.
LEAST_WIDE = 5_000
# From this many labels on label trees are better and faster than a bag: by F1 and P@k on the development rows of eurlex57k and
# on titles of yso_titles with 3,000 labels.
LEAST_TREE = 2_000
# Rare labels need many epochs, but short texts with many labels then overfit. Chosen from 5, 10 and 15 epochs on one split of
# the training rows of reuters21578 and of cooking_stackexchange, without a finer search.
LINEAR_VISITS = Visits(75_000, 3, 10)
# 8 epochs over eurlex57k were tried.
BAG_VISITS = Visits(350_000, 5, 20)
# 6 epochs over yso_titles; with 10 the body overfits (20,000 of the training rows held out).
WIDE_VISITS = Visits(3_800_000, 5, 20)
# With few rows, few are held out, so that early stopping and the tuned rule are noisy; the mean of several fits is less noisy.
FEW_ROWS = Members(5, 20_000)


def _networks() -> Any:
    from manyhot.training.rows.bodies import networks

    return networks


def _tree() -> Any:
    from manyhot.training.rows.bodies import tree

    return tree


def _wide() -> Any:
    from manyhot.training.rows.bodies import wide

    return wide


def _encoder() -> Any:
    from manyhot.training.rows.bodies import encoder

    return encoder


def _classifier() -> Any:
    from manyhot.training.rows.bodies import classifier

    return classifier


_ENTRIES = (
    BodyInfo(
        name="linear",
        summary="one linear layer",
        reads=("texts", "features"),
        build=lambda shape: _networks().make_linear(shape),
        automatic=True,
        largest_sparse=LARGEST_LINEAR,
        sparse_fitting=CROSSED,
        sparse_visits=LINEAR_VISITS,
        join=lambda bodies: _networks().mean_linear(bodies),
        beside=lambda bodies: _networks().linear_beside(bodies),
        members=FEW_ROWS,
        dropout=None,
        hidden=False,
    ),
    BodyInfo(
        name="mlp",
        summary="one hidden layer",
        reads=("features",),
        build=lambda shape: _networks().make_hidden(shape),
        automatic=True,
        join=lambda bodies: _networks().mean_hidden(bodies),
        beside=lambda bodies: _networks().hidden_beside(bodies),
        members=FEW_ROWS,
    ),
    BodyInfo(
        name="wide",
        summary="the mean of three bodies, each learned word vectors and a head for very many labels, with lazy scores",
        reads=("texts",),
        build=lambda shape: _wide().make_wide(shape),
        automatic=True,
        fewest_labels=LEAST_WIDE,
        devices=("cuda",),
        fitting=WIDE,
        members=Members(3),
        visits=WIDE_VISITS,
        automatic_labels=LEAST_WIDE,
        usual_loss="decoupled",
        hidden_size=1024,
        # The heads of three members of 1024 with 500,000 labels take 3 GB.
        narrow=(500_000, 512),
        dropout=0.7,
        batch_size=4096,
        ngrams=(2, 1),
        mixes=False,
        describe=lambda settings, inputs: _wide().wide_shape(settings, inputs),
        lazy=True,
    ),
    BodyInfo(
        name="bag",
        summary="the mean of two bodies, each a weighted sum of learned word vectors and a head",
        reads=("texts",),
        build=lambda shape: _networks().make_hidden(shape),
        automatic=True,
        fitting=MEMBERS,
        visits=BAG_VISITS,
        join=lambda bodies: _networks().mean_hidden(bodies),
        members=Members(2),
        # Without an activation the few epochs regularise enough.
        dropout=0.0,
        shape={"activation": "none"},
    ),
    BodyInfo(
        name="tree",
        summary="label trees: a linear score for each child of a node, the best labels by beam search (CPU)",
        reads=("texts", "features"),
        build=lambda shape: _tree().make_tree(shape),
        fitting=SOLVED,
        epochs=6,
        dropout=None,
        hidden=False,
        mixes=False,
        losses=("squared_hinge", "zlpr"),
        least_labels=16,
        automatic_labels=LEAST_TREE,
        ngrams=(2, 2),
        devices=("cpu",),
        ready=lambda: bool(_tree().native.available()[0]),
        weighs_positives=False,
        explains=False,
        no_export="each row takes its own path through label trees, and an export runs the same operations for all rows",
    ),
    BodyInfo(
        name="conv",
        summary="three convolutions and the maximum over the image",
        reads=("images",),
        build=lambda shape: _networks().make_conv(shape),
        automatic=True,
    ),
    BodyInfo(
        name="encoder",
        summary="a Hugging Face encoder that is fine-tuned",
        reads=("texts",),
        build=lambda shape: _encoder().make_encoder(shape),
        inputs="tokens",
        epochs=5,
        # At the learning rates of a body with random weights, a fine-tuned encoder forgets its pretraining.
        learning_rate=5e-5,
        hidden=False,
        mixes=False,
        weighs_positives=False,
        describe=lambda settings, inputs: _encoder().encoder_shape(settings.encoder, inputs.padding),
        fingerprint=lambda settings: _encoder().encoder_fingerprint(settings.encoder),
        unsaved_buffers=True,
    ),
    BodyInfo(
        name="classifier",
        summary="a Hugging Face sequence classifier trained elsewhere",
        reads=("texts",),
        build=lambda shape: _classifier().make_classifier(shape),
        inputs="tokens",
        trains=False,
        unsaved_buffers=True,
    ),
)
BODIES: dict[str, BodyInfo] = {entry.name: entry for entry in _ENTRIES}


def get_body(name: str) -> BodyInfo:
    """The entry of a body.

    Example:
        >>> get_body("bag").reads
        ('texts',)
    """
    check_choice("train", "model", name, tuple(BODIES))
    return BODIES[name]


def bodies_for(kind: str) -> list[BodyInfo]:
    """The bodies that are trained on a kind of examples."""
    return [entry for entry in BODIES.values() if entry.trains and kind in entry.reads]


def trained_bodies() -> tuple[str, ...]:
    """The names of the bodies that ``train`` fits."""
    return tuple(entry.name for entry in BODIES.values() if entry.trains)


def make_body(shape: Shape) -> nn.Module:
    """A body from its description; ``body`` is its name."""
    return get_body(shape["body"]).build(shape)
