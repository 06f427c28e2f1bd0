"""Training on packed rows: the model of the files themselves, in bounded memory."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from manyhot.data.mapped import pack as packing
from manyhot.data.mapped.pack import pack
from manyhot.data.mapped.rows import MappedMatrix, MappedTexts
from manyhot.data.options import ReadOptions
from manyhot.data.read import read_examples
from manyhot.engines.native import tree as native
from manyhot.training.rows.inputs import texts
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from manyhot.training.rows.trees import fit as tree_fit
from manyhot.training.rows.trees import growing

pytestmark = pytest.mark.skipif(not native.available()[0], reason="the native engine is not there")
ROWS = 1500


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(packing, "ROWS", 300)
    monkeypatch.setattr(growing, "ENTRIES_AT_ONCE", 2000)
    for kind in (MappedTexts, MappedMatrix):
        monkeypatch.setattr(kind.blocks, "__defaults__", (400,))


def write_texts(path):
    draw = np.random.default_rng(0)
    words = [f"word{number}" for number in range(300)]
    with path.open("w") as file:
        for _ in range(ROWS):
            labels = sorted(set((draw.random(3) ** 2 * 60).astype(int).tolist()))
            drawn = [words[each] for label in labels for each in (label, label + 60, 120 + int(draw.integers(0, 180)))]
            file.write(json.dumps({"text": " ".join(drawn), "labels": [f"l{label}" for label in labels]}) + "\n")
    return path


def write_features(path):
    draw = np.random.default_rng(1)
    with path.open("w") as file:
        for _ in range(ROWS):
            labels = sorted(set((draw.random(3) ** 2 * 40).astype(int).tolist()))
            columns = sorted({*(1 + label for label in labels), *draw.integers(50, 400, 8).tolist()})
            row = " ".join(f"{column}:{draw.normal():.3f}" for column in columns)
            file.write(f"{','.join(map(str, labels))} {row}\n")
    return path


def both(folder, write, settings):
    file = write(folder / "rows")
    pack([file], folder / "packed", ReadOptions())
    return [train(read_examples(path), settings) for path in (file, folder / "packed")]


@pytest.mark.parametrize(
    ("model", "write"),
    [
        ("tree", write_texts),
        ("linear", write_texts),
        ("bag", write_texts),
        ("wide", write_texts),
        ("tree", write_features),
        ("linear", write_features),
        ("mlp", write_features),
    ],
)
def test_the_model_is_that_of_the_file_bit_by_bit(model, write, tmp_path):
    # Packed texts are read by single words; a wide body reads pairs of words too where it can.
    more = {"tree": {"trees": 2}, "wide": {"ngrams": 1}}.get(model, {})
    settings = TrainSettings(model=model, epochs=2, **more)
    direct, mapped = both(tmp_path, write, settings)
    wanted, found = direct.body.state_dict(), mapped.body.state_dict()
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    assert direct.rule == mapped.rule
    examples = read_examples(tmp_path / "packed")
    assert mapped.predict(examples).lists() == direct.predict(read_examples(tmp_path / "rows")).lists()


def test_a_tree_that_works_in_files_is_the_same(tmp_path, monkeypatch):
    settings = TrainSettings(model="tree", epochs=2, trees=1)
    file = write_texts(tmp_path / "rows")
    pack([file], tmp_path / "packed", ReadOptions())
    monkeypatch.setattr(tree_fit, "PART_ROWS", 500)
    direct = train(read_examples(file), settings)
    monkeypatch.setattr(tree_fit, "IN_MEMORY", 0)
    mapped = train(read_examples(tmp_path / "packed"), settings)
    wanted, found = direct.body.state_dict(), mapped.body.state_dict()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


def test_rows_are_written_once_and_used_again(tmp_path):
    pack([write_texts(tmp_path / "rows")], tmp_path / "packed", ReadOptions())
    examples = read_examples(tmp_path / "packed")
    for most in (500, 500, 50):
        train(examples, TrainSettings(model="linear", epochs=1, tune="none", max_features=most))
    made = sorted((tmp_path / "packed").glob("rows-*"))
    assert len(made) == 2


@pytest.mark.parametrize("many", [ROWS - 1, ROWS])
def test_training_says_where_the_original_files_would_be_read_with_pairs(many, tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "MANY_TEXTS", many)
    pack([write_texts(tmp_path / "rows")], tmp_path / "packed", ReadOptions())
    told = []
    settings = TrainSettings(model="wide", members=1, hidden=8, epochs=1)
    train(read_examples(tmp_path / "packed"), settings, progress=lambda event: told.append(event.line()))
    assert any("pairs of words" in line for line in told) == (many < ROWS)


def test_settings_that_packed_texts_do_not_have_are_refused(tmp_path):
    pack([write_texts(tmp_path / "rows")], tmp_path / "packed", ReadOptions())
    for name in ("ngrams", "char_ngrams"):
        with pytest.raises(ValueError, match=f"`{name}` must be . for packed texts"):
            train(read_examples(tmp_path / "packed"), TrainSettings(**{name: 3}))


BOUNDED = """
import resource, sys
from pathlib import Path
import scipy.sparse
from manyhot.training.rows.trees import choice, fit, growing, reached
from manyhot.data.mapped import rows as mapped
from manyhot.data.read import read_examples
from manyhot.training.rows.inputs import texts
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
for kind in (mapped.MappedTexts, mapped.MappedMatrix):
    kind.blocks.__defaults__ = (500,)
fit.IN_MEMORY, growing.ENTRIES_AT_ONCE, choice.MOST_ROWS, reached.PART_ROWS = 1 << 21, 1 << 16, 1000, 100
settings = TrainSettings(model="tree", trees=1, epochs=1, threads=1, tune="none")
train(read_examples(sys.argv[1]), settings)  # everything is imported and warm
held = next(int(line.split()[1]) << 10 for line in Path("/proc/self/status").open() if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (held + (int(sys.argv[3]) << 20),) * 2)
model = train(read_examples(sys.argv[2]), settings)
print(len(model.label_names))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_training_takes_less_memory_than_the_rows(tmp_path):
    """15,000 rows of 100 entries: 18 MB as a matrix in memory, of which reading and scaling hold several."""
    draw = np.random.default_rng(2)
    small = write_features(tmp_path / "small")
    lines = []
    for row in range(15_000):
        columns = np.unique(draw.integers(1, 2000, 100))
        lines.append(f"{row % 300} " + " ".join(f"{column}:1.5" for column in columns) + "\n")
    (tmp_path / "rows").write_text("".join(lines))
    pack([small], tmp_path / "small-packed", ReadOptions())
    pack([tmp_path / "rows"], tmp_path / "packed", ReadOptions())
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}

    def trained(*names):
        arguments = [sys.executable, "-c", BOUNDED, *(str(tmp_path / name) for name in names), "28"]
        return subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)

    bounded = trained("small-packed", "packed")
    assert bounded.returncode == 0, bounded.stderr
    assert bounded.stdout.split() == ["300"]
    direct = trained("small", "rows")
    assert direct.returncode != 0
    assert "memory" in direct.stderr.lower()
