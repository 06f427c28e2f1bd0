"""Whether ``--smoothing`` is safe on every body: ``python -m benchmarks.smoothing``.

    python -m benchmarks.smoothing --data FOLDER --out FILE           # runs the cells that FILE does not have yet
    python -m benchmarks.smoothing --out FILE --table                 # the tables from FILE alone

``manyhot train`` with its defaults, without and with smoothing. The sets in ``CHOOSE`` are measured on a third of their
training rows: how smoothing is trained was chosen on them. The sets in ``JUDGE`` are measured on their test rows and chose
nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.text_sets import SETS
from manyhot.comparison.table import markdown_table
from manyhot.data.examples import Examples
from manyhot.data.read import read_examples
from manyhot.data.sets.digit_scenes import BALANCED, IMBALANCED, digit_scenes
from manyhot.evaluation import evaluate
from manyhot.labels.sparse import SparseLabels
from manyhot.labels.split import stratified_split
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train

METRICS = ("micro-F1", "macro-F1", "AvgPrec")
AMOUNTS = (0.0, 0.1)
# Bodies with the sets that chose and the sets that judge; rows at most.
CHOOSE = {
    "linear, texts": ["goemotions:3000", "cooking_stackexchange:3000"],
    "linear, sparse features": ["medical"],
    "linear, dense features": ["emotions", "yeast"],
    "mlp, dense features": ["emotions", "yeast"],
    "mlp, sparse features": ["medical"],
    "bag, texts": ["goemotions:2000"],
    "conv, images": ["digit scenes:600"],
    "encoder, texts": ["goemotions:1000"],
}
JUDGE = {
    "linear, texts": ["reuters21578:3000"],
    "linear, sparse features": ["enron"],
    "linear, dense features": ["scene", "birds", "flags"],
    "mlp, dense features": ["scene", "birds", "flags"],
    "mlp, sparse features": ["enron"],
    "bag, texts": ["reuters21578:2000"],
    "conv, images": ["imbalanced digit scenes:600"],
    "encoder, texts": ["reuters21578:1000"],
}
ROLES = {"choose": CHOOSE, "judge": JUDGE}
MOST_TEST_ROWS = 1000


class Cell(NamedTuple):
    """One training."""

    role: str
    body: str
    data: str
    amount: float
    seed: int

    @property
    def key(self) -> str:
        return json.dumps(self)


def cells(seeds: int) -> Iterator[Cell]:
    """All of them, seed by seed."""
    for seed in range(seeds):
        for role, bodies in ROLES.items():
            for body, names in bodies.items():
                yield from (Cell(role, body, name, amount, seed) for name in names for amount in AMOUNTS)


def rows_of(name: str, folder: Path, seed: int) -> tuple[Examples, Examples]:
    """Training and test rows of a set, as many as its name says after the colon."""
    name, _, most = name.partition(":")
    if "scenes" in name:
        shares = IMBALANCED if name.startswith("imbalanced") else BALANCED
        parts = (("train", int(most)), ("test", 600))
        first, second = (_pictures(digit_scenes(size, part=part, frequencies=shares, seed=seed)) for part, size in parts)
    elif name in SETS:
        first, second = SETS[name](folder)
    else:
        paths = [next((folder / name).glob(f"{name}-{part}.arff.gz")) for part in ("train", "test")]
        first = read_examples(paths[0], label_file=folder / name / f"{name}.xml")
        second = read_examples(paths[1], label_file=folder / name / f"{name}.xml").with_labels(first.label_names)
        if first.feature_names is not None and not isinstance(first.features, np.ndarray):
            second = second.with_features(first.feature_names)
    draw = np.random.default_rng(seed)
    picked = np.sort(draw.permutation(len(first))[: int(most)]) if most else np.arange(len(first))
    return first[picked], second[np.sort(draw.permutation(len(second))[:MOST_TEST_ROWS])]


def _pictures(scenes: Any) -> Examples:
    return Examples(SparseLabels.from_dense(scenes.labels > 0), tuple("0123456789"), images=scenes.images)


def run(cell: Cell, folder: Path) -> dict[str, Any]:
    """Train and measure one cell."""
    first, second = rows_of(cell.data, folder, cell.seed)
    if cell.role == "choose":
        kept, held = stratified_split(first.labels, test_size=1 / 3, seed=cell.seed)
        first, second = first[kept.numpy()], first[held.numpy()]
    body = cell.body.partition(",")[0]
    given: dict[str, Any] = {"model": body, "smoothing": cell.amount, "seed": cell.seed, "threads": 1, "device": "cpu"}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        if body == "encoder":
            save_encoder(Path(place), first.texts or [])
            given |= {"encoder": place, "epochs": 15, "learning_rate": 2e-3, "max_tokens": 64}
        model = train(first, TrainSettings(**given))
    scores = evaluate(model, second, METRICS)
    return {**cell._asdict(), **{name: scores[name] for name in METRICS}, "seconds": round(time.perf_counter() - began, 1)}


def save_encoder(folder: Path, texts: list[str]) -> None:
    """A small BERT with random weights over the words of these texts: no weights are downloaded."""
    import collections

    import tokenizers
    import transformers

    counts = collections.Counter(word for text in texts for word in text.lower().split())
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: place for place, word in enumerate([*special, *(word for word, _ in counts.most_common(4000))])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **sizes)
        transformers.BertModel(config).save_pretrained(folder)


def tables(records: list[dict[str, Any]]) -> str:
    """For each role a table: mean over seeds without and with smoothing, and the differences."""
    parts = []
    for role, bodies in ROLES.items():
        rows = []
        for body, names in bodies.items():
            for name in names:
                own = [each for each in records if (each["role"], each["body"], each["data"]) == (role, body, name)]
                groups = [[each for each in own if each["amount"] == amount] for amount in AMOUNTS]
                if not all(groups):
                    continue
                cut = [body, name, str(min(map(len, groups)))]
                for metric in METRICS:
                    without, smoothed = (float(np.mean([each[metric] for each in group])) for group in groups)
                    cut.append(f"{without:.3f} → {smoothed:.3f} ({100 * (smoothed - without):+.1f})")
                rows.append(cut)
        parts.append(f"**{role}**\n\n{markdown_table(['body', 'set', 'seeds', *METRICS], rows)}")
    return "\n\n".join(parts)


def main() -> None:
    """Run or print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="a part of the cells' names")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no cell after so many")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    records = [json.loads(line) for line in lines]
    if given.table:
        print(tables(records))
        return
    done = {Cell(*(each[name] for name in Cell._fields)).key for each in records}
    began = time.perf_counter()
    for cell in cells(given.seeds):
        if cell.key in done or given.only not in cell.key or time.perf_counter() - began > given.seconds:
            continue
        record = run(cell, given.data)
        with given.out.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)


if __name__ == "__main__":
    main()
