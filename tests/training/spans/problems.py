"""Small texts whose spans any body can learn to find, and the same model twice."""

import numpy as np
import torch

from manyhot.data.spans.examples import SpanExamples, TextSpan
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans

NAMES, CITIES, VERBS = ("Ada", "Bob", "Eve", "Kim", "Lou"), ("Rom", "Oslo", "Bonn", "Kiew"), ("sah", "traf", "rief")
CHINESE = {"PER": ("王明", "李小红", "张伟"), "LOC": ("北京", "上海市", "台湾")}


def people(rows=80, *, seed=0):
    """Persons, cities and, around a city, universities: spans inside spans."""
    draw = np.random.default_rng(seed)
    texts, spans = [], []
    for _ in range(rows):
        name, verb, city = (str(draw.choice(words)) for words in (NAMES, VERBS, CITIES))
        text = f"{name} {verb} die Uni {city}."
        start = text.index("Uni")
        spans.append([TextSpan("PER", 0, len(name)), TextSpan("ORG", start, len(text) - 1)])
        spans[-1].append(TextSpan("LOC", start + 4, len(text) - 1))
        texts.append(text)
    return SpanExamples(texts, spans)


def joined(examples, count):
    """Every ``count`` texts as one."""
    texts, spans = [], []
    for row in range(0, len(examples), count):
        shift, own = 0, []
        for text, marked in zip(examples.texts[row : row + count], examples.spans[row : row + count], strict=True):
            own += [TextSpan(span.type, span.start + shift, span.end + shift) for span in marked]
            shift += len(text) + 1
        texts.append(" ".join(examples.texts[row : row + count]))
        spans.append(own)
    return SpanExamples(texts, spans)


def chinese(rows=80, *, seed=0):
    """Persons and places in writing without blanks."""
    draw = np.random.default_rng(seed)
    texts, spans = [], []
    for _ in range(rows):
        name, place = (str(draw.choice(CHINESE[kind])) for kind in ("PER", "LOC"))
        texts.append(f"{name}昨天去了{place}。")
        spans.append([TextSpan("PER", 0, len(name)), TextSpan("LOC", len(name) + 4, len(name) + 4 + len(place))])
    return SpanExamples(texts, spans)


SMALL = {
    "hidden": 12,
    "layers": 1,
    "head_size": 8,
    "batch_size": 8,
    "dropout": 0.1,
    "average": 0.9,
    "threads": 1,
    "learning_rate": 6e-3,
}
# A size that the native engine takes.
STEPWISE = SpanSettings(**{**SMALL, "hidden": 16, "layers": 2}, epochs=8, patience=0, checkpoint_seconds=0.1)


def same_network(one, two):
    """Whether two models have bit by bit the same weights and settings."""
    mine, other = one.network.state_dict(), two.network.state_dict()
    return one.settings == two.settings and mine.keys() == other.keys() and all(torch.equal(mine[k], other[k]) for k in mine)


def train_in_folder(run):
    """The run, from where it was left; in a process of its own, to be killed."""
    torch.set_num_threads(1)
    train_spans(people(60), STEPWISE, run=run, resume=True)
