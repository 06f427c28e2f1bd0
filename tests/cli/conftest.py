"""Small files, a trained run, and the command called in this process."""

import json
import random

import pytest

from cli.processes import Done
from data.sets.test_openml import server as openml_server  # noqa: F401 - a fixture
from manyhot.cli.main import main

WORDS = {"eggs": ("egg", "yolk", "boil"), "pans": ("pan", "iron", "steel"), "bread": ("dough", "flour", "yeast")}


def write_posts(path, rows, seed):
    """Texts in which each label shows by its words, so that a model learns them in no time."""
    draw = random.Random(seed)
    lines = []
    for row in range(rows):
        labels = [label for label in WORDS if draw.random() < 0.4]
        words = [draw.choice(WORDS[label]) for label in labels for _ in range(2)]
        words += [draw.choice(("how", "to", "the", "best")) for _ in range(3)]
        draw.shuffle(words)
        lines.append(json.dumps({"id": f"post{row}", "text": " ".join(words), "labels": labels}))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def run(capfd):
    """The command in this process: arguments in, exit code and output back."""

    def call(*arguments):
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Done(code, out, err)

    return call


@pytest.fixture(scope="session")
def posts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("posts")
    write_posts(folder / "train.jsonl", 240, 0)
    write_posts(folder / "test.jsonl", 80, 1)
    return folder


@pytest.fixture(scope="session")
def trained(posts):
    """A finished run; tests that change it work on a copy."""
    folder = posts / "runs" / "posts"
    assert main(["train", str(posts / "train.jsonl"), "--run", str(folder), "--quiet"]) == 0
    return folder
