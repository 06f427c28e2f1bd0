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
EPOCHS = {"cluener": 6, "germeval": 6, "wnut": 20}
METHOD = "spaCy ner, blank"


def run_spacy(python: str, folder: str, out: Path, only: list[str]) -> None:
    """Every data set with one seed, where its cell is not there yet."""
    from benchmarks.span_cells import figures, load, save
    from manyhot.metrics.spans import SpanMetrics

    wanted = [each for each in only if each in LANGUAGES]
    for data, language in LANGUAGES.items():
        path = out / f"{data}--spacy--0.json"
        if path.exists() or (wanted and data not in wanted):
            continue
        train, dev, test = load(folder, data)
        if dev is None:
            held = len(train) // 20
            train, dev = train[held:], train[:held]
        with tempfile.TemporaryDirectory() as scratch:
            for name, part in (("train", train), ("dev", dev), ("test", test)):
                _write(Path(scratch) / f"{name}.jsonl", part)
            subprocess.run([python, __file__, scratch, language, str(EPOCHS[data])], check=True)
            result = json.loads((Path(scratch) / "result.json").read_text())
        metrics = SpanMetrics()
        metrics.update(result.pop("spans"), test.spans)
        save(path, {"data": data, "method": METHOD, "seed": 0, "changes": "", **figures(metrics), "f1_at_zero": None, **result})


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


def worker(folder: Path, language: str, epochs: int) -> None:
    """Train in spaCy's Python: the component's defaults, batches of rising size, the best epoch by the dev set."""
    import random

    import spacy
    from spacy.tokens import Doc
    from spacy.training import Example
    from spacy.util import compounding, fix_random_seed, minibatch

    fix_random_seed(0)
    nlp = spacy.blank(language)
    nlp.add_pipe("ner")

    def document(row: dict[str, Any]) -> Any:
        if row["tokens"] is None:
            return nlp.make_doc(row["text"])
        words = [row["text"][start:end] for start, end in row["tokens"]]
        return Doc(nlp.vocab, words=words, spaces=[True] * (len(words) - 1) + [False] * bool(words))

    def examples(name: str) -> tuple[list[dict[str, Any]], list[Any]]:
        rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        made = []
        for row in rows:
            doc = document(row)
            entities = [(start, end, kind) for kind, start, end in row["spans"] if doc.char_span(start, end) is not None]
            made.append(Example.from_dict(doc, {"entities": entities}))
        return rows, made

    def predicted(rows: list[dict[str, Any]]) -> list[list[Any]]:
        docs = nlp.pipe((document(row) for row in rows), batch_size=256)
        return [[(each.label_, each.start_char, each.end_char) for each in doc.ents] for doc in docs]

    def f1(rows: list[dict[str, Any]]) -> float:
        truth = [{tuple(span) for span in row["spans"]} for row in rows]
        found = [set(map(tuple, row)) for row in predicted(rows)]
        hits = sum(len(one & two) for one, two in zip(truth, found, strict=True))
        return 2 * hits / max(sum(map(len, truth)) + sum(map(len, found)), 1)

    _, training = examples("train")
    dev, _ = examples("dev")
    test, _ = examples("test")
    optimizer = nlp.initialize(lambda: training)
    draw, best, best_spans, spent, seconds, curve = random.Random(0), -1.0, [], 0.0, 0.0, []
    begun = time.monotonic()
    for epoch in range(epochs):
        draw.shuffle(training)
        start = time.monotonic()
        for batch in minibatch(training, size=compounding(16.0, 64.0, 1.002)):
            nlp.update(batch, drop=0.1, sgd=optimizer)
        spent += time.monotonic() - start
        with nlp.use_params(optimizer.averages):
            value = f1(dev)
            curve.append([None, round(value, 4)])
            print(f"epoch {epoch + 1}/{epochs}: dev F1 {value:.4f}, {spent:.0f} s", file=sys.stderr, flush=True)
            if value > best:
                start = time.monotonic()
                best, best_spans = value, predicted(test)
                seconds = time.monotonic() - start
    result = {
        "spans": best_spans,
        "train_per_second": epochs * len(training) / spent,
        "predict_per_second": len(test) / seconds,
        "batch_size": "16 to 64",
        "seconds": {"train": time.monotonic() - begun},
        "epochs": epochs,
        "curve": curve,
        "validation_f1": best,
        "device": f"CPU, spaCy {spacy.__version__}",
    }
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    worker(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
