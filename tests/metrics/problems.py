"""Hostile inputs that the tests of metrics share: ties, empty rows, full rows, absent labels, extreme scores."""

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

GRID = [-30.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 30.0]


@st.composite
def problems(draw, min_rows=1, min_labels=2, max_labels=7, elements=None):
    """``(scores, labels)``: few distinct scores, so that ties are the rule; labels from none to all."""
    shape = (draw(st.integers(min_rows, 6)), draw(st.integers(min_labels, max_labels)))
    scores = draw(npst.arrays(np.float32, shape, elements=st.sampled_from(GRID) if elements is None else elements))
    density = draw(st.sampled_from([0.0, 0.2, 0.5, 1.0]))
    flags = draw(npst.arrays(np.float64, shape, elements=st.floats(0, 1, exclude_max=True)))
    return torch.from_numpy(scores), torch.from_numpy((flags < density).astype(np.int64))


@st.composite
def masked_problems(draw, **settings):
    """The same with a ``where`` that leaves entries out at random."""
    scores, labels = draw(problems(**settings))
    where = draw(npst.arrays(np.bool_, tuple(scores.shape)))
    return scores, labels, torch.from_numpy(where)


def random_problem(rows, labels, positives=3, *, seed=0, dtype=torch.float32):
    """Scores without ties in which the positives stand a little higher."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, labels, generator=generator)
    truth = torch.zeros(rows, labels, dtype=torch.bool)
    chosen = torch.rand(rows, labels, generator=generator).topk(min(positives, labels), dim=1).indices
    truth.scatter_(1, chosen, True)
    truth[0] = False
    return (scores + truth).to(dtype), truth
