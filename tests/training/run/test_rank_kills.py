"""Runs of several processes of which one is killed at a random moment, again and again: they are resumed to the same end."""

import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch

from kill_counts import in_parts
from manyhot import SpanSettings, evaluate, load_model, load_span_model
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.spans.scoring import score_spans
from training.problems import feature_examples, title_examples
from training.run.process_runs import in_processes, killed_in_processes, train_spans_to_end, train_until_epoch
from training.spans.problems import people

METRICS = ("micro-F1", "macro-F1", "AvgPrec", "RankLoss")
# On the CPU: a machine may have fewer GPUs than a test has processes.
COMMON = {"threads": 1, "checkpoint_seconds": 0.0, "device": "cpu"}


class Kind(NamedTuple):
    """What is trained, and how its runs are compared."""

    make: Callable[[], Any]
    settings: Any
    work: Callable[..., None]
    load: Callable[..., Any]
    # The weights, and what decides besides them.
    state: Callable[[Any], tuple[dict[str, torch.Tensor], Any]]
    metrics: Callable[[Any, Any], dict[str, float]]


def row_kind(make, settings):
    """A kind with one label set a row."""
    return Kind(make, settings, work=train_until_epoch, load=load_model,
                state=lambda model: (model.body.state_dict(), model.rule),
                metrics=lambda model, examples: evaluate(model, examples, METRICS))  # fmt: skip


# Batches that one, two and three processes can divide.
ROWS = TrainSettings(epochs=12, members=2, batch_size=12, hidden=16, patience=0, learning_rate=0.01, **COMMON)
LABELS = TrainSettings(
    model="wide", epochs=2, batch_size=32, hidden=16, learning_rate=0.1, label_shards=2, dropout=0.1, **COMMON
)
SPANS = SpanSettings(hidden=8, head_size=8, epochs=5, batch_size=6, learning_rate=0.01, **COMMON)
KINDS = {
    "rows divided": row_kind(lambda: feature_examples(120), ROWS),
    "labels divided": row_kind(lambda: title_examples(120, num_labels=21), LABELS),
    "texts divided": Kind(
        lambda: people(60), SPANS, work=train_spans_to_end, load=load_span_model,
        state=lambda model: (model.network.state_dict(), model.settings.threshold),
        metrics=lambda model, examples: {"span-F1": score_spans(model, examples).f1()},
    ),
}  # fmt: skip
# Draws of dropout differ between numbers of processes where the rows of a batch are divided among them.
WITH_DROPOUT = {"rows divided": {"dropout": 0.3}, "labels divided": {"dropout": 0.3}, "texts divided": {}}
# With parts of words one of 2,176 weights differed by 1.7e-4: where a gradient is almost 0, Adam can step by its rounding.
COMPARABLE = {
    "rows divided": {"dropout": 0.0},
    "labels divided": {},
    "texts divided": {"dropout": 0.0, "word_dropout": 0.0, "affixes": 0, "skip": False},
}

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="signals"), pytest.mark.slow]


def with_count(settings, count):
    """The settings of a run that ``count`` processes go on with."""
    return replace(settings, label_shards=count) if getattr(settings, "label_shards", 0) else settings


def finish(kind, run, examples, settings, count=2):
    """Train to the end; the model."""
    own = with_count(settings, count)
    assert in_processes(kind.work, run, examples, own, -1, count=count) == [0] * count
    return kind.load(run)


def join(rank):
    """The first processes wait for imports, which later ones have from their parent."""
    # A process that leaves at once could take the store away from one that is still joining.
    torch.distributed.barrier()


def unbroken(kind, run, examples, settings):
    """The model of a run that is not killed, and its seconds: later kills come within them."""
    assert in_processes(join) == [0, 0]
    began = time.monotonic()
    return finish(kind, run, examples, settings), time.monotonic() - began


def killed(kind, run, examples, settings, seconds, draw, count=2):
    """Start some processes and kill one of them; whether it was. A run that was finished before is started anew."""
    after, victim = seconds * draw.random(), draw.randrange(count)
    own = with_count(settings, count)
    codes = killed_in_processes(kind.work, run, examples, own, -1, count=count, victim=victim, after=after)
    assert codes[victim] in (0, -9)
    if codes == [0] * count:
        shutil.rmtree(run)
    return codes[victim] == -9


@in_parts(2)
@pytest.mark.parametrize("name", list(KINDS))
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(name, part, kills, tmp_path):
    kind = KINDS[name]
    examples, settings = kind.make(), replace(kind.settings, **WITH_DROPOUT[name])
    whole, seconds = unbroken(kind, tmp_path / "whole", examples, settings)
    draw = random.Random(f"bits {part}")
    done = 0
    while done < kills:
        done += killed(kind, tmp_path / "broken", examples, settings, seconds, draw)
    model = finish(kind, tmp_path / "broken", examples, settings)
    (weights, rule), (wanted, wanted_rule) = kind.state(model), kind.state(whole)
    assert rule == wanted_rule
    assert weights.keys() == wanted.keys()
    assert all(torch.equal(weights[key], wanted[key]) for key in wanted)


@in_parts(2)
@pytest.mark.parametrize("name", list(KINDS))
def test_a_run_that_is_killed_again_and_again_is_resumed_by_other_numbers_of_processes_to_the_same_metrics(
    name, part, kills, tmp_path
):
    """Before each kill the run goes on with one, two or three processes."""
    kind = KINDS[name]
    examples, settings = kind.make(), replace(kind.settings, **COMPARABLE[name])
    whole, seconds = unbroken(kind, tmp_path / "whole", examples, settings)
    draw = random.Random(f"metrics {part}")
    done = 0
    while done < kills:
        done += killed(kind, tmp_path / "broken", examples, settings, seconds, draw, count=draw.choice((1, 2, 3)))
    for count in (1, 3):
        run = tmp_path / f"by{count}"
        if (tmp_path / "broken").exists():
            shutil.copytree(tmp_path / "broken", run)
        model = finish(kind, run, examples, settings, count)
        assert kind.metrics(model, examples) == pytest.approx(kind.metrics(whole, examples), abs=1e-6)
        weights, wanted = kind.state(model)[0], kind.state(whole)[0]
        for key, each in wanted.items():
            torch.testing.assert_close(weights[key], each, rtol=1e-3, atol=1e-4)
