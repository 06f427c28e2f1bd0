"""Models to serve and servers that serve them; all of it needs the extra ``serve``."""

import copy
from dataclasses import replace

import pytest

from manyhot.data.spans.examples import SpanExamples, TextSpan
from manyhot.decisions.rule import DecisionRule
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans
from serve.servers import Server
from training.problems import feature_examples, image_examples, text_examples

QUICK = {"epochs": 3, "threads": 1}
# A text with two names.
BOTH = "Ada met Tom there"


@pytest.fixture(scope="session")
def models():
    """One model of each kind, trained."""
    names = ["Ada", "Bob", "Eve", "Tom"]
    texts = [f"{one} met {two} there" for one in names for two in names] * 3
    spans = [[TextSpan("PER", 0, 3), TextSpan("PER", 8, 11)] for _ in texts]
    people = train_spans(SpanExamples(texts, spans), SpanSettings(hidden=32, epochs=40, batch_size=8, validation=0.0))
    # Between the scores of the two names of a text, so that one of them is predicted.
    between = sum(each.score for each in people.predict([BOTH])[0]) / 2
    posts = train(text_examples(), TrainSettings(model="linear", **QUICK))
    one = copy.copy(posts)
    one.rule = DecisionRule(threshold=-1.0)
    return {
        "texts": posts,
        "one threshold": one,
        "features": train(feature_examples(), TrainSettings(model="mlp", hidden=16, **QUICK)),
        "images": train(image_examples(), TrainSettings(model="conv", hidden=16, **QUICK)),
        "spans": people,
        "strict spans": people.with_settings(replace(people.settings, threshold=between)),
    }


@pytest.fixture(scope="session")
def folders(models, tmp_path_factory):
    """The folder of each model."""
    folder = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        model.save(folder / name)
    return {name: folder / name for name in models}


@pytest.fixture(scope="session")
def texts_server(folders):
    """A server for a model of texts that tests share; limits are small, so that they can be met."""
    server = Server(folders["texts"], "--max-body", 20_000, "--max-characters", 2000, "--max-rows", 16, "--receive-timeout", 3)
    yield server
    code, said = server.stop()
    assert code == 0, said
    assert "Traceback" not in said
