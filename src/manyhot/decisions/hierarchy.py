"""Labels in a hierarchy: consistent predictions, and hierarchical metrics."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyhot._checks import check_choice
from manyhot._suggest import nearest
from manyhot.labels.sparse import SparseLabels

MODES = ("up", "down")


class Hierarchy:
    """A hierarchy of labels; a label may have several parents.

    Args:
        label_names: one name per label.
        parents: ``(label, parent)`` pairs of names. Labels without a pair have no parent.
        ignore_unknown: skip pairs with a name that is not a label, instead of an error. Known labels above and below a skipped
            name stay connected.

    Raises:
        ValueError: for a name that is not a label, or for a cycle, which the message prints.

    Example:
        >>> tree = Hierarchy(("animal", "dog", "poodle", "tool"), [("dog", "animal"), ("poodle", "dog")])
        >>> labels = SparseLabels.from_lists([[2], [1, 3], []], num_labels=4)
        >>> tree.close(labels, "up").lists()
        [[0, 1, 2], [0, 1, 3], []]
        >>> tree.close(labels, "down").lists()
        [[], [3], []]
    """

    def __init__(self, label_names: Sequence[str], parents: Iterable[tuple[str, str]], *, ignore_unknown: bool = False) -> None:
        self.label_names = tuple(label_names)
        number = {name: place for place, name in enumerate(self.label_names)}
        above: dict[str, set[str]] = {}
        for label, parent in parents:
            for name in (label, parent):
                if name not in number and not ignore_unknown:
                    raise ValueError(
                        f"Hierarchy: `parents` must name labels of the model; got {name!r}.{nearest(name, self.label_names)}"
                        " Leave such pairs out, or pass ignore_unknown=True (--hierarchy-ignore-unknown)."
                    )
            above.setdefault(label, set()).add(parent)
        order = _ordered(above)
        ancestors: dict[str, set[str]] = {}
        for name in order:
            own = above.get(name, set())
            ancestors[name] = own.union(*(ancestors.get(parent, set()) for parent in own))
        # The parents that are labels; a parent that is not a label is replaced by the nearest labels above it.
        nearest_known = _nearest_known(order, above, number)
        self.parents = [sorted(number[each] for each in nearest_known.get(name, ())) for name in self.label_names]
        self.ancestors = [
            sorted(number[each] for each in ancestors.get(name, ()) if each in number) for name in self.label_names
        ]
        depth = {name: place for place, name in enumerate(order)}
        # Parents before children.
        self.order = sorted(range(len(self.label_names)), key=lambda label: depth.get(self.label_names[label], -1))
        self._place = {label: place for place, label in enumerate(self.order)}

    @classmethod
    def read(cls, path: str | Path, label_names: Sequence[str], *, ignore_unknown: bool = False) -> Hierarchy:
        """From a file of lines ``label TAB parent``; empty lines and lines that begin with # are skipped.

        Raises:
            ValueError: for a line that is not a pair, with its number.
        """
        pairs = []
        with Path(path).open(encoding="utf-8", newline="") as file:
            for place, row in enumerate(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), start=1):
                if not row or not "".join(row).strip() or row[0].startswith("#"):
                    continue
                if len(row) != 2 or not all(part.strip() for part in row):
                    raise ValueError(f"{path}, line {place}: must be a label, a tab and its parent; got {len(row)} fields.")
                pairs.append((row[0].strip(), row[1].strip()))
        try:
            return cls(label_names, pairs, ignore_unknown=ignore_unknown)
        except ValueError as error:
            raise ValueError(f"{path}: {str(error).removeprefix('Hierarchy: ')}") from None

    def close(self, labels: SparseLabels, mode: str = "up") -> SparseLabels:
        """Make predictions consistent with the hierarchy: every predicted label that has parents has a predicted parent.

        ``"up"`` adds the ancestors of predicted labels. ``"down"`` removes labels, from the top down, unless one of their
        parents is kept.

        Args:
            labels: hard labels ``[R, L]``.
            mode: ``"up"`` or ``"down"``.
        """
        check_choice("Hierarchy.close", "mode", mode, MODES)
        self._check(labels)
        close = self._up if mode == "up" else self._down
        return SparseLabels.from_lists([close(set(row)) for row in labels.lists()], num_labels=labels.num_labels)

    def _up(self, row: set[int]) -> list[int]:
        return sorted(row.union(*(self.ancestors[label] for label in row)))

    def _down(self, row: set[int]) -> list[int]:
        kept: set[int] = set()
        for label in sorted(row, key=self._place.__getitem__):
            if not self.parents[label] or not kept.isdisjoint(self.parents[label]):
                kept.add(label)
        return sorted(kept)

    def close_scores(self, logits: Tensor) -> Tensor:
        """Scores ``[..., L]`` in which a label has at least the score of every label below it.

        With one threshold for all labels, predictions are then closed upwards.
        """
        closed = logits.clone()
        for label in reversed(self.order):
            for parent in self.parents[label]:
                closed[..., parent] = torch.maximum(closed[..., parent], closed[..., label])
        return closed

    def metrics(self, predictions: SparseLabels, labels: SparseLabels) -> dict[str, float]:
        """Hierarchical precision, recall and F1 (Kiritchenko et al., 2005), and how often predictions break the hierarchy.

        Predictions and labels are closed upwards; then hits, predicted and positive entries are summed over all rows, as for
        micro-F1.

        Args:
            predictions: hard labels ``[R, L]``.
            labels: the truth ``[R, L]``.

        Returns:
            ``h-precision``, ``h-recall``, ``h-F1``, and ``broken-rows``, the share of rows in which a label is predicted
            without any of its parents.

        Example:
            >>> tree = Hierarchy(("animal", "dog", "cat"), [("dog", "animal"), ("cat", "animal")])
            >>> truth = SparseLabels.from_lists([[1]], num_labels=3)
            >>> tree.metrics(SparseLabels.from_lists([[2]], num_labels=3), truth)
            {'h-precision': 0.5, 'h-recall': 0.5, 'h-F1': 0.5, 'broken-rows': 1.0}
        """
        self._check(predictions)
        self._check(labels)
        if len(predictions) != len(labels):
            raise ValueError(
                f"Hierarchy.metrics: `predictions` must have the rows of `labels`, {len(labels)}; got {len(predictions)}."
            )
        hits = predicted = positive = broken = 0
        for said, true in zip(predictions.lists(), labels.lists(), strict=True):
            own, wanted = set(self._up(set(said))), set(self._up(set(true)))
            hits, predicted, positive = hits + len(own & wanted), predicted + len(own), positive + len(wanted)
            broken += self._down(set(said)) != sorted(said)
        precision, recall = hits / max(predicted, 1), hits / max(positive, 1)
        f1 = 2 * hits / max(predicted + positive, 1)
        return {"h-precision": precision, "h-recall": recall, "h-F1": f1, "broken-rows": broken / max(len(labels), 1)}

    def _check(self, labels: Any) -> None:
        if labels.num_labels != len(self.label_names):
            raise ValueError(
                f"Hierarchy: labels must have {len(self.label_names)} columns, one per label name; got {labels.num_labels}."
            )


def _ordered(above: dict[str, set[str]]) -> list[str]:
    """All names, parents before children.

    Raises:
        ValueError: for a cycle, which the message prints.
    """
    order: list[str] = []
    state: dict[str, int] = {}
    for start in above:
        stack = [(start, iter(sorted(above.get(start, ()))))] if start not in state else []
        if stack:
            state[start] = 1
        while stack:
            name, rest = stack[-1]
            for parent in rest:
                if state.get(parent) == 1:
                    path = [each for each, _ in stack]
                    ring = [*path[path.index(parent) :], parent]
                    raise ValueError(f"Hierarchy: `parents` must have no cycle; got {' -> '.join(map(repr, ring))}.")
                if parent not in state:
                    state[parent] = 1
                    stack.append((parent, iter(sorted(above.get(parent, ())))))
                    break
            else:
                state[name] = 2
                order.append(name)
                stack.pop()
    return order


def _nearest_known(order: Sequence[str], above: dict[str, set[str]], number: dict[str, int]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name in order:
        own: set[str] = set()
        for parent in above.get(name, ()):
            own |= {parent} if parent in number else found.get(parent, set())
        found[name] = own
    return found
