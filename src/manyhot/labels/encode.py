"""Label names to label numbers, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from manyhot._checks import shape_text
from manyhot._suggest import nearest
from manyhot.labels.sparse import SparseLabels


def label_names(label_sets: Iterable[Iterable[str]]) -> list[str]:
    """All names that occur, sorted.

    Example:
        >>> label_names([["b", "a"], ["c"], []])
        ['a', 'b', 'c']
    """
    return sorted({name for row in label_sets for name in row})


def encode_label_sets(label_sets: Iterable[Iterable[str]], *, names: Sequence[str]) -> SparseLabels:
    """Sets of label names to ``SparseLabels`` with one row per set; label i is ``names[i]``.

    Args:
        label_sets: one collection of names per row; duplicate names count once.
        names: all names, in the order of the label axis.

    Returns:
        Hard labels; ``.dense()`` is the bool tensor ``[R, L]``.

    Example:
        >>> labels = encode_label_sets([["b", "a"], []], names=["a", "b", "c"])
        >>> labels.dense().int().tolist()
        [[1, 1, 0], [0, 0, 0]]
    """
    number = {name: place for place, name in enumerate(names)}
    if len(number) != len(names):
        raise ValueError("encode_label_sets: `names` must list each name once. Make them with manyhot.label_names.")
    lists = []
    for row, label_set in enumerate(label_sets):
        if isinstance(label_set, str):
            raise TypeError(
                f"encode_label_sets: row {row} must be a collection of names; got the string {label_set!r}. Split it first."
            )
        try:
            lists.append(sorted({number[name] for name in label_set}))
        except KeyError as error:
            name = error.args[0]
            raise ValueError(
                f"encode_label_sets: row {row} has the label {name!r}, which is not in `names`.{nearest(str(name), names)}"
            ) from None
    return SparseLabels.from_lists(lists, num_labels=len(names))


def decode_label_sets(labels: Tensor | SparseLabels, *, names: Sequence[str]) -> list[list[str]]:
    """Hard labels or predictions ``[R, L]`` to one list of names per row.

    Example:
        >>> import torch
        >>> decode_label_sets(torch.tensor([[True, False], [False, False]]), names=["a", "b"])
        [['a'], []]
    """
    if labels.shape[-1] != len(names):
        raise ValueError(f"decode_label_sets: `names` must have one name per label, {labels.shape[-1]}; got {len(names)}.")
    if isinstance(labels, Tensor):
        if labels.is_floating_point() or labels.ndim != 2:
            raise TypeError(
                "decode_label_sets: `labels` must be labels or predictions, bool or integer [R, L];"
                f" got {labels.dtype} {shape_text(labels.shape)}. Turn scores into predictions with decide."
            )
        labels = SparseLabels.from_dense(labels)
    return [[names[place] for place in row] for row in labels.lists()]
