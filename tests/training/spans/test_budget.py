"""The budget of a run on spans, where scores start, and when training may stop."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyhot.losses.zlpr import zlpr_loss
from manyhot.training.run.early_stopping import EarlyStopping
from manyhot.training.spans.budget import STEPS, budgeted, starting_scores
from manyhot.training.spans.inputs import Encoded
from manyhot.training.spans.session import SpanSession
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans
from training.spans.problems import SMALL, joined, people


def window(size, spans=()):
    cells = np.array(sorted(spans), dtype=np.int64).reshape(-1, 3)
    return Encoded(np.zeros((size, 1), dtype=np.int32), np.zeros((size, 0), dtype=np.int32), cells)


def test_few_long_texts_get_as_many_steps_as_many_short_ones():
    long, short = (budgeted(SpanSettings(), [window(size)] * count) for size, count in ((256, 40), (20, 4000)))
    assert (short.batch_size, short.epochs, short.patience) == (32, 20, 10)
    assert (long.batch_size, long.epochs) == (8, 200)
    assert long.patience == 100
    assert long.epochs * 40 / long.batch_size >= STEPS


def test_what_is_said_is_kept():
    chosen = budgeted(SpanSettings(epochs=3, batch_size=5, patience=2), [window(256)] * 10)
    assert (chosen.epochs, chosen.batch_size, chosen.patience) == (3, 5, 2)


@pytest.mark.parametrize("seed", range(5))
def test_scores_start_where_a_constant_score_costs_least(seed):
    draw = np.random.default_rng(seed)
    rows = []
    for size in draw.integers(2, 9, size=6).tolist():
        cells = [(kind, i, j) for kind in range(2) for i in range(size) for j in range(i, size) if draw.random() < 0.1]
        rows.append(window(size, cells))
    found = starting_scores(rows, 2, "zlpr")

    def cost(kind, score):
        total = 0.0
        for row in rows:
            cells = len(row) * (len(row) + 1) // 2
            labels = torch.zeros(1, cells)
            labels[0, : int((row.spans[:, 0] == kind).sum())] = 1
            total += zlpr_loss(torch.full((1, cells), float(score), dtype=torch.float64), labels).item()
        return total

    for kind in range(2):
        if not any((row.spans[:, 0] == kind).any() for row in rows):
            continue
        assert cost(kind, found[kind]) <= min(cost(kind, found[kind] + step) for step in (-0.05, 0.05)) + 1e-9


def test_a_fresh_network_starts_at_these_scores_and_finds_nothing():
    session = SpanSession(people(40), SpanSettings(**SMALL), None)
    start = starting_scores(session.windows.rows, 3, "zlpr")
    bias = session.network().head.type_ends.bias
    torch.testing.assert_close(bias[:3] + bias[3:], torch.from_numpy(start).float())
    assert (start < 0).all()


def test_training_cannot_stop_before_anything_is_found():
    stopping = EarlyStopping(patience=2, nothing=0.0)
    assert all(stopping.note(0.0, epoch, dict) for epoch in range(1, 30))
    assert [stopping.note(value, 30 + place, dict) for place, value in enumerate([0.2, 0.1, 0.1])] == [True, True, False]


def test_joined_texts_lose_no_type_that_their_sentences_have():
    held = joined(people(40, seed=2), 40)
    settings = replace(SpanSettings(**{**SMALL, "batch_size": 0}), max_tokens=64, overlap=16)
    model = train_spans(joined(people(200), 50), settings)
    assert {span.type for row in model.predict(held) for span in row} == {"LOC", "ORG", "PER"}
