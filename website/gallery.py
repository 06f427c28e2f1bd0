"""Makes the gallery: ``python website/gallery.py --data FOLDER [NAME ...]`` trains runs and keeps their reports.

The data stay where they are. Files that a run needs in another form are made under build/gallery. Reports of texts that may not
be passed on lose their rows before they are kept; figures are over all rows either way.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import platform
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from manyhot import Examples, read_examples, write_examples
from manyhot.report.files import HTML, read_report, write_report

ROOT = Path(__file__).resolve().parents[1]
SHELF, WORK = ROOT / "docs" / "gallery", ROOT / "build" / "gallery"
FIGURES = SHELF / "figures.json"


@dataclass(frozen=True)
class Show:
    """A run of the gallery.

    Args:
        title: of the report.
        commands: arguments of ``manyhot``, one call after the other; DATA and WORK stand for the folders.
        report: the folder of the report that is kept, below WORK.
        prepare: makes the files that the commands need beside the data.
        quotes: whether the licence lets rows be shown.
        beside: the folder of another report whose figures are kept too.
    """

    title: str
    commands: tuple[str, ...]
    report: str
    prepare: Callable[[Path], None] = lambda _: None
    quotes: bool = True
    beside: str = ""


def _newswire(data: Path) -> None:
    sys.path.insert(0, str(ROOT))
    from benchmarks.text_sets import reuters21578

    for part, examples in zip(("train", "test"), reuters21578(data), strict=True):
        write_examples(examples, WORK / f"newswire-{part}.jsonl")


def _library(data: Path) -> None:
    with lzma.open(data / "yso_titles" / "label_names.tsv.xz", "rt", encoding="utf-8") as stream:
        names = dict(line.rstrip("\n").split("\t")[:2] for line in stream)
    for part, count in (("train", 100_000), ("test", 5_000)):
        with lzma.open(data / "yso_titles" / f"{part}.jsonl.xz", "rt", encoding="utf-8") as stream:
            lines = stream.readlines()
        # Neighbours in the file share their subjects: the first rows would not be like the test rows.
        chosen = random.Random(0).sample(lines, count)
        with (WORK / f"library-{part}.jsonl").open("w", encoding="utf-8") as out:
            for line in map(json.loads, chosen):
                labels = [names.get(str(label), str(label)) for label in line["labels"]]
                out.write(json.dumps({"text": line["text"], "labels": labels}) + "\n")


def _partial(data: Path, unknown: float = 0.5) -> None:
    for part in ("train", "test"):
        examples: Examples = read_examples(data / "yeast" / f"yeast-{part}.arff.gz")
        features = torch.as_tensor(examples.features.todense() if hasattr(examples.features, "todense") else examples.features)
        draw = random.Random(0)
        lines = [",".join([*(f"x{place}" for place in range(features.shape[1])), *examples.label_names])]
        for row, held in zip(features.tolist(), examples.labels.dense().tolist(), strict=True):
            cells = ["" if part == "train" and draw.random() < unknown else str(int(value)) for value in held]
            lines.append(",".join([*(f"{value:.6g}" for value in row), *cells]))
        (WORK / f"partial-{part}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _small_share(data: Path, rows: int = 3_000) -> None:
    with gzip.open(data / "goemotions" / "train.tsv.gz", "rt", encoding="utf-8") as stream:
        lines = [line for line, _ in zip(stream, range(rows), strict=False)]
    (WORK / "few.tsv").write_text("".join(lines), encoding="utf-8")
    shutil.copyfile(data / "goemotions" / "labels.txt", WORK / "labels.txt")


NAMED = "--label-names DATA/goemotions/labels.txt"
SHOWS = {
    "emotions": Show(
        "Emotions in comments: goemotions",
        (f"train DATA/goemotions/train.tsv.gz {NAMED} --test DATA/goemotions/test.tsv.gz --run WORK/emotions",),
        "emotions/test",
    ),
    "newswire": Show(
        "Topics of newswire: Reuters-21578, R90",
        ("train WORK/newswire-train.jsonl --test WORK/newswire-test.jsonl --run WORK/newswire",),
        "newswire/test",
        _newswire,
        quotes=False,
    ),
    "codes": Show(
        "Diagnosis codes of radiology reports: medical",
        ("train DATA/medical/medical-train.arff.gz --test DATA/medical/medical-test.arff.gz --run WORK/codes",),
        "codes/test",
        quotes=False,
    ),
    "entities": Show(
        "Entities in noisy text: WNUT 2017",
        (
            "train --task spans DATA/wnut17/wnut17train.conll.gz --validation-file DATA/wnut17/emerging.dev.conll.gz"
            " --test DATA/wnut17/emerging.test.annotated.gz --epochs 4 --run WORK/entities",
        ),
        "entities/test",
    ),
    "library": Show(
        "Library subjects of 100,000 titles: YSO",
        ("train WORK/library-train.jsonl --test WORK/library-test.jsonl --run WORK/library",),
        "library/test",
        _library,
    ),
    "partial": Show(
        "Half of the labels unknown: yeast",
        ("train WORK/partial-train.csv --labels 'Class*' --test WORK/partial-test.csv --run WORK/partial",),
        "partial/test",
        _partial,
        quotes=False,
    ),
    "distillation": Show(
        "3,000 comments and a teacher: goemotions",
        (
            "train WORK/few.tsv --label-names WORK/labels.txt --test DATA/goemotions/test.tsv.gz --run WORK/alone",
            "train WORK/few.tsv --label-names WORK/labels.txt --test DATA/goemotions/test.tsv.gz --teacher WORK/emotions"
            " --run WORK/distillation",
        ),
        "distillation/test",
        _small_share,
        beside="alone/test",
    ),
}


def _cpu_seconds() -> float:
    """Time of all finished child processes on a core: unlike wall time it hardly depends on what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(name: str, data: Path) -> dict[str, object]:
    """Train a run and keep its report; returns what the page says about it."""
    show = SHOWS[name]
    WORK.mkdir(parents=True, exist_ok=True)
    show.prepare(data)
    seconds = []
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    for command in show.commands:
        words = [word.replace("DATA", str(data)).replace("WORK", str(WORK)).strip("'") for word in command.split()]
        shutil.rmtree(words[words.index("--run") + 1], ignore_errors=True)
        before = _cpu_seconds()
        call = [sys.executable, "-m", "manyhot", *words, "--quiet"]
        subprocess.run(call, check=True, stdout=subprocess.DEVNULL, env=one_thread)
        seconds.append(round(_cpu_seconds() - before, 1))
    report = read_report(WORK / show.report)
    if not show.quotes:
        words = (report.get("explanations") or {}).get("words", [])
        report |= {"worst": [], "suspects": None, "explanations": {"words": words, "examples": []}}
    target = SHELF / name
    write_report(report, WORK / "kept" / name, title=show.title)
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(WORK / "kept" / name / HTML, target / HTML)
    beside = {"beside": read_report(WORK / show.beside)["metrics"]} if show.beside else {}
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    made = {"date": datetime.now(UTC).date().isoformat(), "cpu_seconds": seconds, "versions": versions}
    return {**made, "commands": list(show.commands), "metrics": report["metrics"], **beside}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    for each in given.names or SHOWS:
        figures = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.is_file() else {}
        figures[each] = run(each, given.data)
        FIGURES.parent.mkdir(parents=True, exist_ok=True)
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
