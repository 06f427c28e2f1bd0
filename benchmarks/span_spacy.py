"""spaCy's ner from a blank model, for the span benchmark; trained by another Python, measured by this one.

Run with spaCy's Python this file is a worker: it reads JSON lines of words and spans, trains, and writes what it predicts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LANGUAGES = {"cluener": "zh", "germeval": "de", "wnut": "en"}
EPOCHS = {"cluener": 10, "germeval": 6, "wnut": 20}
METHOD = "spaCy ner, blank"


def run_spacy(python: str, folder: str, out: Path, only: list[str], seeds: list[int], until: float) -> None:
    """Every data set with every seed, where its cell is not there yet; none goes on after ``until``."""
    from benchmarks.span_cells import figures, save
    from manyhot.metrics.spans.scores import SpanMetrics

    wanted = [each for each in only if each in LANGUAGES] or list(LANGUAGES)
    for seed in seeds:
        for data in wanted:
            path, left = out / f"{data}--spacy--{seed}.json", until - time.monotonic()
            if left <= 0 or path.exists():
                continue
            result, truth = _told(python, folder, data, str(EPOCHS[data]), str(seed), str(left))
            metrics = SpanMetrics()
            metrics.update(result.pop("spans"), truth)
            about = {"data": data, "method": METHOD, "seed": seed, "changes": ""}
            save(path, {**about, **figures(metrics), "f1_at_zero": None, **result})


def spacy_speed(python: str, folder: str, data: str, seconds: float) -> dict[str, Any]:
    """Sentences a second of training and reading, of a few seconds each."""
    return {"speed": True, "data": data, "method": METHOD, **_told(python, folder, data, "0", "0", str(seconds))[0]}


def _told(python: str, folder: str, data: str, *numbers: str) -> tuple[dict[str, Any], Any]:
    """What the worker says, and the spans that are marked in the test set."""
    from benchmarks.span_cells import load

    train, dev, test = load(folder, data)
    if dev is None:
        held = len(train) // 20
        train, dev = train[held:], train[:held]
    with tempfile.TemporaryDirectory() as scratch:
        for name, part in (("train", train), ("dev", dev), ("test", test)):
            _write(Path(scratch) / f"{name}.jsonl", part)
        subprocess.run([python, __file__, scratch, LANGUAGES[data], *numbers], check=True)
        return json.loads((Path(scratch) / "result.json").read_text()), test.spans


def _write(path: Path, examples: Any) -> None:
    with path.open("w") as file:
        for row, text in enumerate(examples.texts):
            tokens = None if examples.tokens is None else examples.tokens[row]
            file.write(json.dumps({"text": text, "spans": _outer(examples.spans[row]), "tokens": tokens}) + "\n")


def _outer(spans: Any) -> list[Any]:
    """Spans that share no character, the longer ones first."""
    kept: list[Any] = []
    for span in sorted(spans, key=lambda span: span.start - span.end):
        if all(span.end <= other.start or other.end <= span.start for other in kept):
            kept.append(span)
    return sorted(kept, key=lambda span: span.start)


class Task:
    """A blank model with the component's defaults, in spaCy's Python, and the texts it is trained on."""

    def __init__(self, folder: Path, language: str, seed: int) -> None:
        import spacy
        from spacy.util import fix_random_seed

        fix_random_seed(seed)
        self.folder, self.version = folder, spacy.__version__
        self.nlp = spacy.blank(language)
        self.nlp.add_pipe("ner")
        self.training = self.examples(self.rows("train"))
        self.optimizer = self.nlp.initialize(lambda: self.training)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / f"{name}.jsonl").read_text().splitlines()]

    def document(self, row: dict[str, Any]) -> Any:
        from spacy.tokens import Doc

        if row["tokens"] is None:
            return self.nlp.make_doc(row["text"])
        words = [row["text"][start:end] for start, end in row["tokens"]]
        return Doc(self.nlp.vocab, words=words, spaces=[True] * (len(words) - 1) + [False] * bool(words))

    def examples(self, rows: list[dict[str, Any]]) -> list[Any]:
        from spacy.training import Example

        made = []
        for row in rows:
            doc = self.document(row)
            entities = [(start, end, kind) for kind, start, end in row["spans"] if doc.char_span(start, end) is not None]
            made.append(Example.from_dict(doc, {"entities": entities}))
        return made

    def predicted(self, rows: list[dict[str, Any]]) -> list[list[Any]]:
        docs = self.nlp.pipe((self.document(row) for row in rows), batch_size=256)
        return [[(each.label_, each.start_char, each.end_char) for each in doc.ents] for doc in docs]

    def f1(self, rows: list[dict[str, Any]]) -> float:
        truth = [{tuple(span) for span in row["spans"]} for row in rows]
        found = [set(map(tuple, row)) for row in self.predicted(rows)]
        hits = sum(len(one & two) for one, two in zip(truth, found, strict=True))
        return 2 * hits / max(sum(map(len, truth)) + sum(map(len, found)), 1)

    def train(self, limit: float = float("inf"), *, size: int = 0, clock: Any = time.monotonic) -> tuple[int, float]:
        """An epoch in batches of rising size, or of one size, or as much of it as fits; texts and seconds."""
        from spacy.util import compounding, minibatch

        begun, count = clock(), 0
        for batch in minibatch(self.training, size=size or compounding(16.0, 64.0, 1.002)):
            self.nlp.update(batch, drop=0.1, sgd=self.optimizer)
            count += len(batch)
            if clock() - begun > limit:
                break
        return count, clock() - begun

    def result(self, **figures: Any) -> dict[str, Any]:
        return {"batch_size": "16 to 64", "device": f"CPU, spaCy {self.version}", **figures}


def worker(folder: Path, language: str, epochs: int, seed: int, limit: float) -> dict[str, Any]:
    """The best epoch by the dev set; no epoch is begun that would not end within ``limit`` seconds."""
    import random

    started = time.monotonic()
    task = Task(folder, language, seed)
    if not epochs:
        return speed(task, limit)
    dev, test, draw = task.rows("dev"), task.rows("test"), random.Random(seed)
    best, best_spans, spent, seconds, curve, begun = -1.0, [], 0.0, 0.0, [], time.monotonic()
    for epoch in range(epochs):
        now = time.monotonic()
        if epoch and now - started + (now - begun) / epoch > limit:
            break
        draw.shuffle(task.training)
        spent += task.train()[1]
        with task.nlp.use_params(task.optimizer.averages):
            value = task.f1(dev)
            curve.append([None, round(value, 4)])
            print(f"epoch {epoch + 1}/{epochs}: dev F1 {value:.4f}, {spent:.0f} s", file=sys.stderr, flush=True)
            if value > best:
                start = time.monotonic()
                best, best_spans = value, task.predicted(test)
                seconds = time.monotonic() - start
    return task.result(
        spans=best_spans,
        train_per_second=len(curve) * len(task.training) / spent,
        predict_per_second=len(test) / seconds,
        seconds={"train": time.monotonic() - begun},
        epochs=len(curve),
        curve=curve,
        validation_f1=best,
    )


def speed(task: Task, limit: float) -> dict[str, Any]:
    """Training for ``limit`` seconds of the processor, after a moment that is not counted, and reading some texts."""
    clock = time.process_time
    task.train(limit / 4, clock=clock)
    count, took = task.train(limit, clock=clock)
    count_64, took_64 = task.train(limit, size=64, clock=clock)
    test = task.rows("test")[:512]
    task.predicted(test)
    begun = clock()
    task.predicted(test)
    rate = len(test) / (clock() - begun)
    return task.result(
        train_per_second=count / took, train_64_per_second=count_64 / took_64, predict_per_second=rate, threads=1
    )


if __name__ == "__main__":
    done = worker(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    (Path(sys.argv[1]) / "result.json").write_text(json.dumps(done))
