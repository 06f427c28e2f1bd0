"""All losses on 11 tabular sets with two bodies, 22 groups, and on text sets: ``python -m benchmarks.compare_groups``.

    python -m benchmarks.compare_groups --data FOLDER --out RESULTS            # runs what RESULTS does not have yet
    python -m benchmarks.compare_groups --out RESULTS --merge A B              # cells of several runs into one folder
    python -m benchmarks.compare_groups --out RESULTS --page FILE              # the page from the cells alone; with
        --text TEXT LARGE --rules RULES --default FILE                         # ... what is shown beside them
    python -m benchmarks.compare_groups --out RESULTS --complete FOLDER        # methods every group has, for manyhot report
    python -m benchmarks.compare_groups --prepare FOLDER --data SOURCE         # text sets as JSON lines
    python -m benchmarks.compare_groups --sets text --data FOLDER --out TEXT   # the text sets, prepared
    python -m benchmarks.compare_groups --sets eurlex57k --data SOURCE --out LARGE --losses FEW --seeds 3 \\
        --settings max_features=5000,batch_size=512,steps=560                  # 4,108 labels: for a GPU

``--data`` is the folder with one folder for each set.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

from manyhot._files import write_json
from manyhot.comparison.grid import Progress, run_grid
from manyhot.comparison.methods import parse_methods
from manyhot.comparison.plan import Plan
from manyhot.comparison.records import CELLS, PLAN, STATISTICS, add_cells, cell_key, merge_cells, read_cells
from manyhot.comparison.sets import SetFiles, pair_files
from manyhot.comparison.settings import CompareSettings
from manyhot.comparison.statistics import summarise

TABULAR = ("flags", "emotions", "scene", "yeast", "birds", "medical", "enron", "bibtex", "cal500", "corel5k", "delicious")
RUNS = "runs.jsonl"
TEXT = ("reuters21578", "cooking_stackexchange", "goemotions")
FILES = {"eurlex57k": ("train.jsonl.xz", "test.jsonl.xz")} | dict.fromkeys(TEXT, ("train.jsonl.gz", "test.jsonl.gz"))
METHODS = (
    "zlpr,bce,focal,dice1,dice2,lsep,asymmetric,two_way,pairwise,powerset,tlpr,zlpr+smoothing,zlpr+mixup,zlpr+rdrop,"
    "zlpr+smoothing+rdrop,zlpr+pos_weight=3,zlpr+pos_weight=10,zlpr+pos_weight=labels,zlpr+pos_weight=auto"
)


def find_sets(folder: Path, names: list[str]) -> list[SetFiles]:
    """The files of the sets in their folders, called by the folder."""
    found = []
    for name in names:
        kinds = FILES.get(name, ("*.arff.gz",))
        files = sorted(str(file) for kind in kinds for file in (folder / name).glob(kind))
        if not files:
            raise SystemExit(f"there is no data of {name} in {folder / name}")
        (one,) = pair_files(files, {})
        found.append(SetFiles(name, one.train, one.test, one.reading))
    return found


def prepare_text(source: Path, into: Path) -> None:
    """Text sets as JSON lines of text and labels: R90 of Reuters by ModApte, the first 12,404 cooking titles, GoEmotions."""
    for name, parts in (
        ("reuters21578", reuters(source / "reuters21578")),
        ("cooking_stackexchange", cooking(source / "cooking_stackexchange")),
        ("goemotions", goemotions(source / "goemotions")),
    ):
        (into / name).mkdir(parents=True, exist_ok=True)
        for part, rows in parts.items():
            with gzip.open(into / name / f"{part}.jsonl.gz", "wt", encoding="utf-8") as file:
                file.writelines(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows)
            print(f"{name} {part}: {len(rows)} rows")


Rows = list[tuple[str, list[str]]]


def reuters(folder: Path) -> dict[str, Rows]:
    """The 90 topics with a row in both parts, and the rows that have one."""
    parts: dict[str, Rows] = {"train": [], "test": []}
    for path in sorted(folder.glob("reut2-*.sgm.gz")):
        content = gzip.decompress(path.read_bytes()).decode("latin-1")
        for head, body in re.findall(r"<REUTERS ([^>]*)>(.*?)</REUTERS>", content, re.S):
            split = re.search(r'LEWISSPLIT="(TRAIN|TEST)"', head)
            if 'TOPICS="YES"' not in head or split is None:
                continue
            topics = re.findall(r"<D>(.*?)</D>", re.search(r"<TOPICS>(.*?)</TOPICS>", body, re.S).group(1))
            text = re.sub(r"<[^>]+>", " ", re.search(r"<TEXT.*?>(.*)</TEXT>", body, re.S).group(1))
            parts[split[1].lower()].append((" ".join(text.replace("&lt;", "<").split()), topics))
    both = set.intersection(*({topic for _, topics in rows for topic in topics} for rows in parts.values()))
    return {
        part: [(text, kept) for text, topics in rows if (kept := [t for t in topics if t in both])]
        for part, rows in parts.items()
    }


def cooking(folder: Path) -> dict[str, Rows]:
    """The usual split: the first 12,404 titles to train, the last 3,000 to test."""
    lines = gzip.decompress((folder / "cooking.stackexchange.txt.gz").read_bytes()).decode().splitlines()
    rows = []
    for line in lines:
        words = line.split()
        labels = [word.removeprefix("__label__") for word in words if word.startswith("__label__")]
        rows.append((" ".join(word for word in words if not word.startswith("__label__")), labels))
    return {"train": rows[:12404], "test": rows[-3000:]}


def goemotions(folder: Path) -> dict[str, Rows]:
    """Train and test; the development part is left out, as every seed draws its own validation rows."""
    names = (folder / "labels.txt").read_text().split()
    parts = {}
    for part in ("train", "test"):
        lines = gzip.decompress((folder / f"{part}.tsv.gz").read_bytes()).decode().split("\n")
        fields = [line.split("\t") for line in lines if line]
        parts[part] = [(text, [names[int(number)] for number in numbers.split(",")]) for text, numbers, _ in fields]
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("MANYHOT_DATA"))
    parser.add_argument("--out", type=Path, default=Path("comparisons/groups"))
    parser.add_argument("--sets", default="tabular", help="tabular, text, or names with commas")
    parser.add_argument("--models", default="linear,mlp")
    parser.add_argument("--losses", default=METHODS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--minutes", type=float, help="start no job after this")
    parser.add_argument("--first", default="", help="methods that run before the others")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--settings", default="", help="settings of the budget that differ, as trials=4,max_features=5000")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="CELLS")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--text", type=Path, nargs="+", default=[], help="folders of text sets, for the page")
    parser.add_argument("--rules", type=Path, help="the folder of benchmarks.compare_rules, for the page")
    parser.add_argument("--default", type=Path, help="the file of benchmarks.train_default, for the page")
    parser.add_argument("--complete", type=Path)
    parser.add_argument("--prepare", type=Path)
    given = parser.parse_args()
    if given.prepare:
        prepare_text(Path(given.data), given.prepare)
        return
    if given.merge:
        given.out.mkdir(parents=True, exist_ok=True)
        print(merge_cells(given.merge, given.out / CELLS), "cells")
        return
    if given.complete:
        print(", ".join(write_complete(given.out, given.complete)))
        return
    if given.page:
        from benchmarks.compare_page import page

        given.page.write_text(page(given.out, text=given.text, rules=given.rules, default=given.default))
        return
    names = {"tabular": list(TABULAR), "text": list(TEXT)}.get(given.sets) or given.sets.split(",")
    plan = Plan(
        tuple(find_sets(Path(given.data), names)),
        tuple(given.models.split(",")),
        tuple(parse_methods([given.losses])),
        given.seeds,
        CompareSettings.from_dict({"device": given.device, **budget(given.settings)}),
    )
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / PLAN, plan.to_dict())
    started = time.monotonic()

    def watch(progress: Progress) -> None:
        job, error = progress.job, f" FAILED {progress.error}" if progress.error else ""
        about = f"{job.data}/{job.model}/{job.method.name} {progress.seconds:.1f} s{error}"
        print(f"{time.monotonic() - started:6.0f} s {progress.done}/{progress.total} {about}", file=sys.stderr, flush=True)

    # A time limit from outside must not lose the entry of what was run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run_grid(plan, given.out, workers=given.jobs, minutes=given.minutes, first=given.first.split(","), watch=watch)
    finally:
        failures = add_entry(given.out, plan, given.jobs, time.monotonic() - started)
    sys.exit(1 if failures else 0)


def write_complete(folder: Path, into: Path) -> list[str]:
    """A comparison of those methods alone that have every seed in every group; says which."""
    plan = json.loads((folder / PLAN).read_text())
    wanted = {(data, model, seed) for data in plan["data"] for model in plan["models"] for seed in range(plan["seeds"])}
    cells = [cell for cell in read_cells(folder / CELLS) if "metrics" in cell]
    found = {name: {(c["data"], c["model"], c["seed"]) for c in cells if c["method"] == name} for name in plan["methods"]}
    methods = [name for name in plan["methods"] if found[name] >= wanted]
    kept = [cell for cell in cells if cell["method"] in methods]
    into.mkdir(parents=True, exist_ok=True)
    (into / CELLS).unlink(missing_ok=True)
    add_cells(into / CELLS, kept)
    write_json(into / PLAN, {**plan, "methods": methods, "cells": len(kept)})
    write_json(into / STATISTICS, summarise(kept, order=methods))
    return methods


def budget(text: str) -> dict[str, int | float]:
    """``name=value`` with commas."""
    pairs = (part.split("=") for part in text.split(",") if part)
    return {name: float(value) if "." in value else int(value) for name, value in pairs}


def add_entry(folder: Path, plan: Plan, jobs: int, took: float) -> int:
    """Write down what ran and for how long; says how many cells failed."""
    keys = {
        cell_key(each.name, model, method.name, seed)
        for each in plan.sets
        for model in plan.models
        for method in plan.methods
        for seed in range(plan.seeds)
    }
    cells = [cell for cell in read_cells(folder / CELLS) if cell["key"] in keys]
    failures = sum("error" in cell for cell in cells)
    print(f"{len(cells) - failures} of {plan.num_cells} cells, {failures} failed, {took:.0f} s")
    about = plan.to_dict()
    entry = {"seconds": round(took, 1), "cells": len(cells) - failures, "processes": jobs}
    with (folder / RUNS).open("a") as file:
        file.write(json.dumps({**entry, "hardware": about["hardware"], "versions": about["versions"]}) + "\n")
    return failures


if __name__ == "__main__":
    main()
