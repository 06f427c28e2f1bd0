"""The public text sets of the benchmarks as training and test examples, with the splits that are usual for them."""

from __future__ import annotations

import gzip
import html
import re
from collections.abc import Callable
from pathlib import Path

from manyhot.data.examples import Examples
from manyhot.data.read import read_examples
from manyhot.labels.sparse import SparseLabels

Pair = tuple[Examples, Examples]
COOKING_TRAIN = 12_404


def reuters21578(folder: Path) -> Pair:
    """R90 of ModApte: labels with a training and a test row, and the rows that have one. SGML, read here by pattern."""
    rows: dict[str, list[tuple[str, list[str]]]] = {"TRAIN": [], "TEST": []}
    for file in sorted((folder / "reuters21578").glob("*.sgm.gz")):
        with gzip.open(file, "rt", encoding="latin-1") as stream:
            content = stream.read()
        for head, document in re.findall(r"<REUTERS (.*?)>(.*?)</REUTERS>", content, re.DOTALL):
            split = _first(r'LEWISSPLIT="(.*?)"', head)
            if 'TOPICS="YES"' in head and split in rows:
                rows[split].append(_story(document))
    train, test = ({topic for _, topics in rows[split] for topic in topics} for split in ("TRAIN", "TEST"))
    names = sorted(train & test)
    number = {name: place for place, name in enumerate(names)}
    return _examples(rows["TRAIN"], number), _examples(rows["TEST"], number)


def cooking_stackexchange(folder: Path) -> Pair:
    """The first 12,404 titles to train on, the last 3,000 to test."""
    examples = read_examples(folder / "cooking_stackexchange" / "cooking.stackexchange.txt.gz")
    return examples[:COOKING_TRAIN], examples[COOKING_TRAIN:]


def goemotions(folder: Path) -> Pair:
    """Training and test file; the development rows are not used."""
    return _files(folder / "goemotions", "train.tsv.gz", "test.tsv.gz")


def eurlex57k(folder: Path) -> Pair:
    """Training and test file; title, header and recitals are the text, and labels that only the test has stay out."""
    return _files(folder / "eurlex57k", "train.jsonl.xz", "test.jsonl.xz")


SETS: dict[str, Callable[[Path], Pair]] = {
    each.__name__: each for each in (reuters21578, cooking_stackexchange, goemotions, eurlex57k)
}


def _files(folder: Path, train: str, test: str) -> Pair:
    examples = read_examples(folder / train)
    return examples, read_examples(folder / test).with_labels(examples.label_names)


def _story(document: str) -> tuple[str, list[str]]:
    topics = re.findall(r"<D>(.*?)</D>", _first(r"<TOPICS>(.*?)</TOPICS>", document))
    text = _first(r"<TEXT.*?>(.*?)</TEXT>", document)
    parts = [_first(rf"<{name}>(.*?)</{name}>", text) for name in ("TITLE", "BODY")]
    return html.unescape("\n".join(part for part in parts if part) or text), topics


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.DOTALL)
    return found.group(1) if found else ""


def _examples(rows: list[tuple[str, list[str]]], number: dict[str, int]) -> Examples:
    kept = [(text, sorted({number[topic] for topic in topics if topic in number})) for text, topics in rows]
    kept = [(text, labels) for text, labels in kept if labels]
    labels = SparseLabels.from_lists([each for _, each in kept], num_labels=len(number))
    return Examples(labels, tuple(number), texts=[text for text, _ in kept])
