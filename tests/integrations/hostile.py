"""The hostile rows of the exactness rules as NumPy arrays, and what the torch reference says about them."""

from typing import NamedTuple

import numpy as np
import torch

import manyhot

INF, NAN = np.inf, np.nan


class Case(NamedTuple):
    logits: np.ndarray
    labels: np.ndarray
    where: np.ndarray | None = None


def _rows(*rows):
    return np.array(rows, dtype=np.float32)


_random = np.random.default_rng(0)
_crowd = np.full((1, 101), -8, dtype=np.float32)
_crowd[0, 0] = 30

CASES = {
    "ordinary": Case(_random.normal(size=(6, 9)).astype("f"), (_random.random((6, 9)) < 0.3).astype("f")),
    "soft": Case(_random.normal(size=(6, 9)).astype("f"), _random.random((6, 9)).astype("f")),
    "no positives": Case(_rows([3, -1, 0.5]), _rows([0, 0, 0])),
    "no negatives": Case(_rows([3, -1, 0.5]), _rows([1, 1, 1])),
    "confident positive": Case(_crowd, (_crowd > 0).astype("f")),
    "exactly 0 and 1 among soft labels": Case(_rows([1e7, -1e7, 0.25, -1.5]), _rows([1, 0, 0.3, 0.75])),
    "infinitely right": Case(_rows([INF, -INF, 0.25, -1.5]), _rows([1, 0, 0.3, 0.75])),
    "huge and wrong": Case(_rows([1e7, -1e7, 1]), _rows([0, 1, 0.5])),
    "excluded infinities": Case(
        _rows([1, INF, -2, -INF, NAN], [INF, NAN, -INF, 0, 1]),
        _rows([1, 0, 0, 1, 1], [0, 1, 1, 1, 0]),
        np.array([[True, False, True, False, False], [False, False, False, True, True]]),
    ),
    "all excluded": Case(_rows([INF, NAN, -INF], [1, 2, 3]), _rows([1, 0, 1], [1, 0, 0]), np.array([[False] * 3, [True] * 3])),
}


def reference(name, loss, **settings):
    """Row values and gradient of the sum, by the plain torch form, as NumPy."""
    case = CASES[name]
    logits = torch.tensor(case.logits, requires_grad=True)
    where = None if case.where is None else torch.tensor(case.where)
    function = getattr(manyhot, loss)
    if "engine" in function.__kwdefaults__:
        settings["engine"] = "torch"
    values = function(logits, torch.tensor(case.labels), where=where, reduction="none", **settings)
    values.sum().backward()
    return values.detach().numpy(), logits.grad.numpy()
