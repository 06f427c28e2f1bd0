"""Which body serves thousands of labels, told a metric: ``python -m benchmarks.told_many --data FOLDER --out FILE``.

Training rows of yso_titles with its K most frequent labels, which judge nothing here: 40,000 rows to train on, 5,000 others to
judge by. The test file is not read. One line of JSON a body, K and metric; what is there is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from manyhot.data.examples import Examples
from manyhot.data.read import read_examples
from manyhot.evaluation import evaluate
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train

ROWS, JUDGED, LINES = 40_000, 5_000, 60_000
METRICS = ("P@1", "P@3", "P@5", "micro-F1", "macro-F1", "SubACC", "MLC-F1", "AvgPrec")
BODIES = ("tree", "bag", "linear")


def examples_of(folder: Path, count: int) -> tuple[Examples, Examples]:
    """Rows to train on and to judge by, with the ``count`` most frequent labels."""
    with tempfile.TemporaryDirectory() as there:
        path = Path(there) / "train.jsonl"
        with lzma.open(folder / "yso_titles" / "train.jsonl.xz", "rt", encoding="utf-8") as source, path.open("w") as file:
            file.writelines(itertools.islice(source, LINES))
        rows = read_examples(path)
    counts = torch.bincount(rows.labels.indices, minlength=rows.num_labels)
    names = [rows.label_names[place] for place in counts.argsort(descending=True, stable=True)[:count].sort().values.tolist()]
    kept = rows.with_labels(tuple(names))
    labelled = (kept.labels.counts() > 0).nonzero().flatten()
    kept = kept[labelled[torch.randperm(len(labelled), generator=torch.Generator().manual_seed(0))].numpy()]
    return kept[JUDGED : JUDGED + ROWS], kept[:JUDGED]


def run(body: str, count: int, metric: str, folder: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    rows, judged = examples_of(Path(folder), count)
    began = time.process_time()
    model = train(rows, TrainSettings(model=body, metric=metric, device="cpu", threads=1))
    seconds = time.process_time() - began
    values = evaluate(model, judged, METRICS)
    about = {"body": body, "labels": count, "metric": metric, "rows": len(rows), "features": model.inputs.width}
    return {**about, "seconds": round(seconds, 1), "metrics": {name: values[name] for name in METRICS}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("MANYHOT_DATA"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--labels", default="4000,1000,250")
    parser.add_argument("--metrics", default="P@3,micro-F1,macro-F1,SubACC")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    done = {(c["body"], c["labels"], c["metric"]) for c in map(json.loads, lines)}
    counts, metrics = map(int, given.labels.split(",")), given.metrics.split(",")
    wanted = [(b, c, m) for c, m, b in itertools.product(counts, metrics, BODIES)]
    with ProcessPoolExecutor(given.jobs) as pool, given.out.open("a") as file:
        waiting = {pool.submit(run, *cell, str(given.data)): cell for cell in wanted if cell not in done}
        for each in as_completed(waiting):
            try:
                file.write(json.dumps(each.result()) + "\n")
                file.flush()
            except Exception as error:  # One bad cell must not end the others.
                print(waiting[each], f"{type(error).__name__}: {error}"[:300], flush=True)


if __name__ == "__main__":
    main()
