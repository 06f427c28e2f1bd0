"""Few long texts against their sentences: ``python -m benchmarks.spans_joined --data FOLDER``.

Sentences of GermEval are trained on as they are, and joined to long texts. Both models are measured on the same test sentences.
A line of JSON for each model says which types it finds at all.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch

from manyhot.data.spans.examples import SpanExamples, TextSpan
from manyhot.data.spans.read import read_span_examples
from manyhot.training.spans.scoring import score_spans
from manyhot.training.spans.settings import SpanSettings
from manyhot.training.spans.train import train_spans


def sampled(examples: SpanExamples, count: int, draw: np.random.Generator) -> SpanExamples:
    """That many texts, drawn at random."""
    picked = draw.permutation(len(examples.texts))[:count].tolist()
    return SpanExamples([examples.texts[place] for place in picked], [examples.spans[place] for place in picked])


def joined(examples: SpanExamples, together: int) -> SpanExamples:
    """Every ``together`` texts as one, with a blank between them."""
    texts, spans = [], []
    for first in range(0, len(examples.texts), together):
        text, own = "", []
        for part, marked in zip(
            examples.texts[first : first + together], examples.spans[first : first + together], strict=True
        ):
            own += [TextSpan(span.type, span.start + len(text), span.end + len(text)) for span in marked]
            text += part + " "
        texts.append(text.rstrip())
        spans.append(own)
    return SpanExamples(texts, spans)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("MANYHOT_DATA"))
    parser.add_argument("--sentences", type=int, default=450)
    parser.add_argument("--together", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = given.data / "germeval2014"
    train, test = (read_span_examples(folder / f"germ.{part}.iob2.gz") for part in ("train", "test"))
    for seed in range(given.seeds):
        draw = np.random.default_rng(100 + seed)
        rows, judged = sampled(train, given.sentences, draw), sampled(test, 800, draw)
        for form, examples in (("sentences", rows), ("joined", joined(rows, given.together))):
            begun = time.process_time()
            model = train_spans(examples, SpanSettings(hidden=96, layers=1, threads=1, seed=seed, device="cpu"))
            spent, found = time.process_time() - begun, score_spans(model, judged)
            line = {"seed": seed, "trained on": form, "texts": len(examples.texts), "CPU seconds": round(spent)}
            line |= {"F1": round(100 * found.f1(), 1), "macro F1": round(100 * found.f1(average="macro"), 1)}
            line |= {"types": sorted(str(name) for name, counts in found.by_type().items() if counts.hits)}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
