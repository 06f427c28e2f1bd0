"""manyhot's default against linear peers on public text sets: ``python -m benchmarks.text_peers --data FOLDER``.

Every cell, one system on one set, runs in a process of its own and is kept as a line of JSON, so that the page can be made
in several sittings; a cell that is there is not run again. LibMultiLabel runs under ``--peer-python``, an interpreter that
has ``libmultilabel`` and manyhot's dependencies.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.earlier_cells import earlier_cells
from benchmarks.text_sets import SETS
from benchmarks.tuning import processor
from manyhot.data.examples import Examples
from manyhot.decisions.rule import DecisionRule
from manyhot.evaluation import EMPTY, evaluate

METRICS = ("micro-F1", "macro-F1", "SubACC", "P@1", "P@3", "P@5")
PEER_OPTIONS = "-s 1 -B 1"
# Hours on two cores; the peer's own time is printed as not run.
TOO_LONG = {("thresholds", "eurlex57k"), ("scikit-learn", "eurlex57k")}
NAMES = {
    "manyhot": "manyhot train, default",
    "one-vs-rest": "LibMultiLabel one-vs-rest",
    "tree": "LibMultiLabel tree",
    "thresholds": "LibMultiLabel per-label thresholds, cross-validated",
    "scikit-learn": "scikit-learn OneVsRest, logistic, C = 10",
}


def run_manyhot(train_examples: Examples, test: Examples) -> dict[str, Any]:
    from manyhot.training.rows.train import train

    begun = _clock()
    model = train(train_examples)
    spent = _spent(begun)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        size = sum(each.stat().st_size for each in Path(folder).rglob("*") if each.is_file())
    return {**spent, "size": size, "body": model.shape["body"], **evaluate(model, test, METRICS)}


def run_peer(system: str, train_examples: Examples, test: Examples) -> dict[str, Any]:
    """Words by tf-idf (sublinear, in at least 2 rows), then one of the linear models; time includes the tf-idf."""
    import joblib
    from sklearn.feature_extraction.text import TfidfVectorizer

    labels = _indicator(train_examples)
    begun = _clock()
    words = TfidfVectorizer(sublinear_tf=True, min_df=2)
    features = words.fit_transform(train_examples.texts)
    model, cut = (_fit_scikit_learn if system == "scikit-learn" else _fit_libmultilabel)(system, labels, features)
    spent = _spent(begun)
    inputs = words.transform(test.texts)
    scores = model.decision_function(inputs) if system == "scikit-learn" else model.predict_values(inputs)
    with tempfile.TemporaryDirectory() as folder:
        joblib.dump((words, model), Path(folder) / "model")
        size = (Path(folder) / "model").stat().st_size
    logits = torch.from_numpy(np.ascontiguousarray(scores, dtype=np.float32))
    return {**spent, "size": size, **evaluate(logits, test, METRICS, rule=DecisionRule(threshold=cut))}


def _fit_libmultilabel(system: str, labels: Any, features: Any) -> tuple[Any, float]:
    import libmultilabel.linear as peer

    if system == "one-vs-rest":
        return peer.train_1vsrest(labels, features, options=PEER_OPTIONS, verbose=False), 0.0
    if system == "tree":
        return peer.train_tree(labels, features, options=PEER_OPTIONS, verbose=False), 0.5
    np.random.seed(0)  # noqa: NPY002 - the peer draws its folds from it
    return peer.train_thresholding(_summable(labels), features, options=PEER_OPTIONS, verbose=False), 0.0


def _fit_scikit_learn(system: str, labels: Any, features: Any) -> tuple[Any, float]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    del system
    return OneVsRestClassifier(LogisticRegression(C=10, max_iter=1000), n_jobs=2).fit(features, labels), 0.0


def _indicator(examples: Examples) -> Any:
    from scipy import sparse

    found = examples.labels
    values = np.ones(len(found.indices))
    return sparse.csr_matrix((values, found.indices.numpy(), found.offsets.numpy()), shape=tuple(found.shape))


def _summable(labels: Any) -> Any:
    """libmultilabel 0.10.0 sums the labels along axis 2, which SciPy 1.17 refuses and older ones took for axis 0."""
    from scipy import sparse

    class Labels(sparse.csc_matrix):
        def sum(self, axis=None, dtype=None, out=None):
            return super().sum(axis=0 if axis == 2 else axis, dtype=dtype, out=out)

    return Labels(labels)


def _clock() -> tuple[float, float]:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return time.perf_counter(), own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _spent(begun: tuple[float, float]) -> dict[str, float]:
    now = _clock()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": now[0] - begun[0], "cpu_seconds": now[1] - begun[1], "peak": peak}


def work(name: str, system: str, data: Path) -> dict[str, Any]:
    """One cell, in this process."""
    train_examples, test = SETS[name](data)
    found = run_manyhot(train_examples, test) if system == "manyhot" else run_peer(system, train_examples, test)
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    versions |= _versions("scipy", "scikit-learn", "libmultilabel", "liblinear-multicore", "manyhot")
    cell = {"set": name, "system": system, "rows": [len(train_examples), len(test)], "labels": train_examples.num_labels}
    return {**cell, **found, "date": str(datetime.datetime.now(datetime.UTC).date()), "versions": versions}


def _versions(*packages: str) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def run_cell(name: str, system: str, options: argparse.Namespace) -> dict[str, Any]:
    """One cell, in a process of its own with as many threads as asked for."""
    python = options.peer_python if system in ("one-vs-rest", "tree", "thresholds") else sys.executable
    command = [python, "-m", "benchmarks.text_peers", "--data", str(options.data), "--cell", name, system]
    root = Path(__file__).resolve().parent.parent
    threads = str(options.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    before = os.getloadavg()[0]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=root)
    if ended.returncode:
        raise SystemExit(f"{system} on {name} failed:\n{ended.stderr[-2000:]}")
    return {**json.loads(ended.stdout.splitlines()[-1]), "load_before": round(before, 2)}


def page(cells: list[dict[str, Any]], options: argparse.Namespace) -> str:
    versions: dict[str, str] = {}
    for cell in cells:
        versions |= cell["versions"]
    text = [
        "# manyhot's default against linear peers on text",
        "",
        f"- Date: {' to '.join(sorted({cell['date'] for cell in cells})[:: max(len({c['date'] for c in cells}) - 1, 1)])}",
        "- Command: `python -m benchmarks.text_peers --data FOLDER "
        + ("--systems manyhot --peers-from PAGE`" if options.peers_from else "--peer-python PYTHON`"),
        f"- Hardware: {processor()}, {options.threads} threads of {os.cpu_count()} cores",
        f"- Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}",
        f"- LibMultiLabel's options: `{PEER_OPTIONS}`; peers read words by scikit-learn's tf-idf (sublinear, min_df 2)",
        "",
        "All systems see the same training rows and are measured by the same code on the same test rows. Defaults were chosen"
        " on training rows, with earlier test figures of some sets known. A system that is not listed was not run. Macro-F1 is"
        " over all labels, absent ones count 0. Seconds are from texts in memory to a finished model,"
        " with tf-idf, all cross-fitting and tuning; CPU seconds beside them, since other work may have shared the machine:"
        " the load is the mean number of running processes in the minute before the cell. Peak memory is of the whole process,"
        " with the interpreter, its libraries and the data. The tree's probabilities are cut at 0.5, other peers' scores at 0.",
        *(
            ["", f"The peers were not run again: their figures are those of [an earlier page]({options.peers_from.name})."]
            if options.peers_from
            else []
        ),
    ]
    for name in dict.fromkeys(cell["set"] for cell in cells):
        rows = [cell for cell in cells if cell["set"] == name]
        text += ["", f"## {name}: {rows[0]['rows'][0]:,} / {rows[0]['rows'][1]:,} rows, {rows[0]['labels']:,} labels", ""]
        text += ["| system | " + " | ".join(METRICS) + " | empty rows, % | s | CPU s | load | peak, MB | model, MB |"]
        text += ["|---" * (len(METRICS) + 7) + "|"]
        text += [_line(system, rows) for system in NAMES if (system, name) in TOO_LONG or _find(rows, system)]
        text += ["", _verdict(rows)]
    return "\n".join(text) + "\n"


def _find(rows: list[dict[str, Any]], system: str) -> dict[str, Any] | None:
    return next((row for row in rows if row["system"] == system), None)


def _line(system: str, rows: list[dict[str, Any]]) -> str:
    cell = _find(rows, system)
    if cell is None:
        return f"| {NAMES[system]} | not run: hours |" + " |" * (len(METRICS) + 5)
    shown = [f"{100 * cell[metric]:.1f}" for metric in (*METRICS, EMPTY)]
    shown += [f"{cell['seconds']:.1f}", f"{cell['cpu_seconds']:.1f}", f"{cell['load_before']:.1f}"]
    shown += [f"{cell['peak'] / 1e6:.0f}", f"{cell['size'] / 1e6:.1f}"]
    return f"| {NAMES[system]} | " + " | ".join(shown) + " |"


def _verdict(rows: list[dict[str, Any]]) -> str:
    own, peers = _find(rows, "manyhot"), [row for row in rows if row["system"] != "manyhot"]
    if own is None or not peers:
        return "Nothing to compare yet."
    parts = []
    for metric in METRICS:
        best = max(peers, key=lambda row: row[metric])
        gap = 100 * (own[metric] - best[metric])
        parts.append(f"{metric} {gap:+.1f} ({NAMES[best['system']]})")
    return "manyhot against the best of the peers that ran, points: " + "; ".join(parts) + "."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("MANYHOT_DATA"), help="folder with the data sets")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=list(SETS))
    parser.add_argument("--systems", nargs="+", choices=tuple(NAMES), default=list(NAMES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cells", type=Path, default=Path("runs/text-peers.jsonl"), help="finished cells, a line each")
    parser.add_argument("--again", action="store_true", help="run the cells named anew")
    parser.add_argument("--peers-from", type=Path, help="an earlier page, whose figures of peers are taken over")
    parser.add_argument("--output", type=Path, default=None)
    parser.add_argument("--cell", nargs=2, metavar=("SET", "SYSTEM"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data or MANYHOT_DATA must name the folder with the data sets")
    if options.cell:
        print(json.dumps(work(*options.cell, Path(options.data))))
        return
    options.cells.parent.mkdir(parents=True, exist_ok=True)
    cells = [json.loads(line) for line in options.cells.read_text().splitlines()] if options.cells.exists() else []
    for name in options.sets:
        for system in options.systems:
            there = any((cell["set"], cell["system"]) == (name, system) for cell in cells)
            if (system, name) in TOO_LONG or (there and not options.again):
                continue
            cell = run_cell(name, system, options)
            cells = [each for each in cells if (each["set"], each["system"]) != (name, system)] + [cell]
            options.cells.write_text("".join(json.dumps(each) + "\n" for each in cells))
            print(f"{name}, {system}: {cell['seconds']:.1f} s, micro-F1 {cell['micro-F1']:.4f}", file=sys.stderr, flush=True)
    if options.peers_from:
        own = {(cell["set"], cell["system"]) for cell in cells}
        earlier = earlier_cells(
            options.peers_from, {name: title for name, title in NAMES.items() if name != "manyhot"}, METRICS
        )
        cells += [cell for cell in earlier if (cell["set"], cell["system"]) not in own]
    order = list(SETS)
    text = page(sorted(cells, key=lambda cell: order.index(cell["set"])), options)
    if options.output:
        options.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
