"""Label trees against their peers on very many labels: ``python -m benchmarks.extreme_cpu --data FOLDER --work FOLDER``.

Every system gets the same tf-idf rows, made by manyhot's text inputs, and the same test rows. A cell, one system on one set,
runs in a process of its own (``extreme_peers``) and is kept in ``--work``; a cell that is there is not run again. Peers run
under ``--python SYSTEM=INTERPRETER``. ``--page`` prints the page of all cells that are there.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import multiprocessing
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from benchmarks.extreme_lanes import Lanes, free_cores
from benchmarks.extreme_peers import SYSTEMS, THREADS, TOP, clock, largest_memory, since
from benchmarks.tuning import processor
from manyhot.data.read import read_examples
from manyhot.labels.sparse import SparseLabels
from manyhot.metrics.at_k import label_propensities, precision_at_k, propensity_precision_at_k
from manyhot.scores.top import TopScores

# Ours, with the number of trees; None: the default.
OURS: dict[str, int | None] = {"manyhot": None, "manyhot-one": 1, "manyhot-two": 2, "manyhot-three": 3}
NAMES = {
    "manyhot": "manyhot, `tree` (squared hinge)",
    "manyhot-one": "manyhot, `tree --trees 1`",
    "manyhot-two": "manyhot, `tree --trees 2`",
    "manyhot-three": "manyhot, `tree --trees 3`",
    "omikuji-parabel": "omikuji, Parabel (defaults)",
    "omikuji-bonsai": "omikuji, Bonsai",
    "pecos": "PECOS XR-Linear (defaults)",
    "napkinxc": "napkinXC PLT (defaults)",
    "libmultilabel": "LibMultiLabel tree (defaults)",
}


def prepare(data: Path, work: Path, name: str, rows: int | None, test_rows: int | None) -> Path:
    """The folder of a set with the rows of all systems; made once."""
    folder = work / f"{name}-{rows or 'all'}"
    if (folder / "about.json").exists():
        return folder
    from manyhot.training.rows.inputs.texts import TextInputs
    from manyhot.training.rows.settings import TrainSettings

    folder.mkdir(parents=True, exist_ok=True)
    examples, test = (read_examples(data / name / f"{part}.jsonl.xz") for part in ("train", "test"))
    picked = torch.arange(len(examples))[:rows]
    labels = examples.labels[picked]
    used = torch.bincount(labels.indices, minlength=labels.num_labels) > 0
    names = tuple(np.asarray(examples.label_names)[used.numpy()].tolist())
    fitted = examples[picked].with_labels(names)
    begun = clock()
    inputs, train_rows = TextInputs.fit(fitted, TrainSettings())
    took = since(begun)
    test = test[torch.arange(len(test))[:test_rows]].with_labels(names)
    sparse.save_npz(folder / "train.npz", train_rows, compressed=False)
    sparse.save_npz(folder / "test.npz", inputs.rows(test), compressed=False)
    for part, own in (("train_labels", fitted.labels), ("test_labels", test.labels)):
        ones = np.ones(len(own.indices), dtype=np.float32)
        matrix = sparse.csr_matrix((ones, own.indices.numpy(), own.offsets.numpy()), shape=tuple(own.shape))
        sparse.save_npz(folder / f"{part}.npz", matrix, compressed=False)
    about = {"set": name, "rows": len(fitted), "test_rows": len(test), "labels": len(names), "features": train_rows.shape[1]}
    (folder / "about.json").write_text(json.dumps({**about, "features_seconds": took}))
    return folder


def run_ours(folder: Path, out: Path) -> None:
    """manyhot's trees on prepared rows, as ``train --model tree`` fits them; the name of ``out`` says how many."""
    from manyhot.training.rows.choose import trees_for
    from manyhot.training.rows.fit import TrainingRows
    from manyhot.training.rows.inputs.row_batches import take_rows
    from manyhot.training.rows.settings import TrainSettings
    from manyhot.training.rows.trees.choice import negative_cost
    from manyhot.training.rows.trees.fit import TreeFit
    from manyhot.training.run.session import RunSession

    torch.set_num_threads(THREADS)
    rows, test = (sparse.load_npz(folder / f"{name}.npz") for name in ("train", "test"))
    labels = SparseLabels.from_scipy(sparse.load_npz(folder / "train_labels.npz"))
    settings, session = TrainSettings(model="tree"), RunSession(None, None, checkpoint_seconds=1e9, metric="P@1")
    begun = clock()
    trees = OURS[out.name] or trees_for(rows.shape[0])
    sizes = {"trees": trees, "beam": settings.beam, "passes": 6, "form": "squared_hinge", "seed": 0}
    sizes["threads"], own = THREADS, TrainingRows(rows, labels)
    body = TreeFit(session, own, **sizes, neg_cost=negative_cost(session, own, **sizes)).run()
    trained, begun = since(begun), clock()
    parts = [body.top(take_rows(rows=test, picked=slice(at, at + 1024)), TOP).indices for at in range(0, test.shape[0], 1024)]
    predicted = since(begun)
    size = sum(each.numel() * each.element_size() for each in body.state_dict().values())
    np.savez(f"{out}.npz", top=torch.cat(parts).numpy())
    report = {"train": trained, "predict": predicted, "size": size, "memory": largest_memory(), "threads": THREADS}
    Path(f"{out}.json").write_text(json.dumps({**report, "version": "this repository"}))


def cell_command(folder: Path, system: str, python: str | None = None) -> list[str]:
    """The command line of one system on one set."""
    out = str(folder / system)
    if system in OURS:
        return [sys.executable, "-m", "benchmarks.extreme_cpu", "--ours", str(folder), out]
    peers = Path(__file__).with_name("extreme_peers.py")
    return [python or sys.executable, str(peers), system, str(folder), out]


def run_cells(cells: list[tuple[Path, str]], pythons: dict[str, str], given: argparse.Namespace) -> None:
    """Every cell whose result is not there, in a process of its own, as many at a time as ``given.cores`` allow."""
    waiting = [(folder, system) for folder, system in cells if not (folder / f"{system}.json").exists()]
    commands = {cell: cell_command(*cell, pythons.get(cell[1])) for cell in waiting}
    threads = {system: int(count) for system, _, count in (each.partition("=") for each in given.threads)}
    most = max([2, *(threads.get(system, 2) for _, system in waiting)])
    assert most <= given.cores, f"a cell needs {most} cores; --cores {given.cores} is fewer"
    for record in Lanes(commands, threads, given.seconds, given.begun, free_cores(given.cores)).run():
        folder = given.work / record["set"]
        if record["ended"] == "done":
            record |= measured(folder, record["system"])
        (folder / f"{record['system']}.ended").write_text(json.dumps(record))
        print(json.dumps(record), file=sys.stderr, flush=True)


def measured(folder: Path, system: str) -> dict[str, Any]:
    """P@k and PSP@k in per cent, with the cell's own report."""
    labels = SparseLabels.from_scipy(sparse.load_npz(folder / "test_labels.npz"))
    train_labels = sparse.load_npz(folder / "train_labels.npz")
    counts = torch.from_numpy(np.bincount(train_labels.indices, minlength=train_labels.shape[1]))
    propensities = label_propensities(counts, train_labels.shape[0])
    top = torch.from_numpy(np.load(folder / f"{system}.npz")["top"]).long()
    values = torch.arange(TOP, 0, -1, dtype=torch.float32).expand(top.shape).contiguous()
    scores = TopScores(torch.where(top >= 0, values, -torch.inf), top, labels.num_labels)
    found = json.loads((folder / f"{system}.json").read_text())
    for k in (1, 3, 5):
        found[f"P@{k}"] = 100 * float(precision_at_k(scores, labels, k=k))
        found[f"PSP@{k}"] = 100 * float(propensity_precision_at_k(scores, labels, propensities, k=k))
    return found


def page(work: Path) -> str:
    """The page of all cells that are there."""
    today = datetime.datetime.now(datetime.UTC).date()
    lines = [
        "# Very many labels on a CPU: label trees against their peers",
        "",
        f"{processor()}, {os.cpu_count()} cores, {platform.system()}; Python {platform.python_version()},"
        f" torch {torch.__version__}, NumPy {np.__version__}; {today}. Command: `python -m benchmarks.extreme_cpu`.",
        "",
        "All systems are fitted to the same tf-idf rows (manyhot's text inputs: words and first letters of words) and predict"
        " the same test rows, each with the settings that its own documentation uses, in one run side by side: each process has"
        " cores of its own, as many as threads. Seconds of the processor are user and system, of all threads. Training time is"
        " from prepared rows to a model in memory. Memory is the largest of the process, with the rows.",
    ]
    for folder in sorted(path.parent for path in work.glob("*/about.json")):
        about = json.loads((folder / "about.json").read_text())
        lines += [
            "",
            f"## {about['set']}: {about['rows']:,} rows, {about['labels']:,} labels, {about['features']:,} features",
            "",
            f"{about['test_rows']:,} test rows. Making the rows took {about['features_seconds'][1]:.0f} CPU seconds.",
            "",
            "| system | P@1 | P@3 | P@5 | PSP@1 | PSP@3 | PSP@5 | training, CPU s | wall s | threads"
            " | prediction, CPU ms a row | memory | model |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for system, title in NAMES.items():
            ended = folder / f"{system}.ended"
            if system in OURS and not ended.exists():
                continue
            own = json.loads(ended.read_text()) if ended.exists() else {"ended": "not run"}
            if own["ended"] != "done":
                why = f"{own['ended']} after {own['wall']:.0f} s" if "wall" in own else own["ended"]
                lines.append(f"| {title} | {why} |{' |' * 11}")
                continue
            best = " | ".join(f"{own[f'{metric}@{k}']:.2f}" for metric in ("P", "PSP") for k in (1, 3, 5))
            each = 1000 * own["predict"][1] / about["test_rows"]
            title = title if own["version"] == "this repository" else f"{title} {own['version']}"
            lines.append(
                f"| {title} | {best} | {own['train'][1]:.0f} | {own['train'][0]:.0f} | {own['threads']} | {each:.2f}"
                f" | {own['memory'] / 2**30:.1f} GiB | {own['size'] / 2**20:.0f} MiB |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--set", action="append", default=[], help="NAME or NAME:ROWS")
    parser.add_argument("--test-rows", type=int)
    parser.add_argument("--system", action="append", choices=[*OURS, *SYSTEMS])
    parser.add_argument("--python", action="append", default=[], help="SYSTEM=INTERPRETER")
    parser.add_argument("--cores", type=int, default=2, help="cores in all; each cell is pinned to two of its own")
    parser.add_argument("--threads", action="append", default=[], help="SYSTEM=N: cores and threads of its cells, if not two")
    parser.add_argument("--seconds", type=float, default=1e9, help="what is not done after so many seconds is killed")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--ours", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.begun = time.monotonic()
    if given.ours:
        run_ours(*given.ours)
        return
    pythons = dict(each.split("=", 1) for each in given.python)
    sets = [(name, int(rows) if rows else None) for name, _, rows in (each.partition(":") for each in given.set)]
    with concurrent.futures.ProcessPoolExecutor(given.cores, multiprocessing.get_context("spawn")) as pool:
        made = [pool.submit(prepare, given.data, given.work, name, rows, given.test_rows) for name, rows in sets]
        folders = [each.result() for each in made]
    run_cells([(folder, system) for folder in folders for system in given.system or ["manyhot", *SYSTEMS]], pythons, given)
    if given.page:
        print(page(given.work), end="")


if __name__ == "__main__":
    main()
