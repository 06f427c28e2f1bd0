"""Span models from scratch on real data, beside a BiLSTM-CRF and spaCy's ner; printed as Markdown.

    python -m benchmarks.spans_real --data FOLDER --output PAGE.md --device cuda
    python -m benchmarks.spans_real --data FOLDER --output PAGE.md --spacy-python VENV/bin/python --only spacy

Every cell (data set, model, seed) is saved as JSON beside the page when it is done, and the page is written again: a run that
is cut short still leaves one, and a later run in the same place does only what is missing. Several cells train at a time on
the one device.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import queue
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.span_cells import CRF, METHODS, Cell, changed, run_cell, save, speed_cell
from benchmarks.span_spacy import METHOD as SPACY
from benchmarks.span_spacy import run_spacy, spacy_speed

MAIN = "Efficient GlobalPointer"
DATA = ("cluener", "germeval", "wnut")
ABLATIONS = ("without rotary", "BCE on the grid", "focal on the grid", "with R-Drop")
FIRST = (
    (MAIN, "cluener"),
    (MAIN, "germeval"),
    (CRF, "germeval"),
    (CRF, "cluener"),
    (MAIN, "wnut"),
    (CRF, "wnut"),
)
CONTEXT = multiprocessing.get_context("spawn")
# Reading the data, starting CUDA and one epoch take less.
STUCK_SECONDS = 100
SPEED_SECONDS = 6.0


def all_cells(seeds: int) -> list[Cell]:
    """In the order of what matters, and of that the longest first."""
    every = range(seeds)
    cells = [Cell(data, method, seed) for method, data in FIRST for seed in every]
    for some in (range(min(seeds, 1)), range(1, seeds)):
        cells += [Cell("cluener", method, seed) for seed in some for method in ABLATIONS]
        cells += [Cell(data, "GlobalPointer", seed) for seed in some for data in ("cluener", "wnut")]
    return cells + [Cell("germeval", "GlobalPointer", seed) for seed in every]


def work(cells: Any, folder: str, out: str, device: str, changes: dict[str, Any]) -> None:
    """One process: cells until there are none left."""
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            cell = cells.get(timeout=1)
        except queue.Empty:
            return
        path = Path(out) / f"{cell.name}.json"
        if path.exists():
            continue
        try:
            save(path, run_cell(cell, folder, device, changes, log=path.with_suffix(".log")))
        except Exception:
            (Path(out) / f"{cell.name}.error.txt").write_text(traceback.format_exc())
            print(f"{cell.name} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)


def measure_speed(folder: str, out: str, device: str, spacy_python: str) -> None:
    """One after the other, in a process of its own, nothing else running; on a CPU with one thread."""
    import torch

    torch.set_num_threads(1)
    tasks: list[tuple[str, str]] = [(device, method) for method in (MAIN, CRF, "GlobalPointer")]
    tasks += [] if device == "cpu" else [("cpu", MAIN), ("cpu", CRF)]
    tasks += [("cpu", SPACY)] if spacy_python else []
    for place, method in tasks:
        path = Path(out) / f"speed-{place.split(':')[0]}-{re.sub('[^A-Za-z]+', '-', method)}.json"
        if path.exists():
            continue
        try:
            if method == SPACY:
                save(path, spacy_speed(spacy_python, folder, "cluener", SPEED_SECONDS))
            else:
                save(path, speed_cell(method, folder, place))
        except Exception:
            print(f"speed of {method} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)


def start_mps(folder: Path) -> bool:
    """Let processes share the GPU at the same time where its driver can; False where it cannot."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return False
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = str(folder / "pipe")
    os.environ["CUDA_MPS_LOG_DIRECTORY"] = str(folder / "log")
    for name in ("pipe", "log"):
        (folder / name).mkdir()
    probe = "import torch; print(float((torch.ones(8, device='cuda') * 2).sum()))"
    try:
        subprocess.run([control, "-d"], check=True, timeout=20, capture_output=True)
        done = subprocess.run([sys.executable, "-c", probe], check=True, timeout=90, capture_output=True, text=True)
        if "16.0" in done.stdout:
            return True
    except (OSError, subprocess.SubprocessError):
        pass
    stop_mps()
    return False


def stop_mps() -> None:
    control = shutil.which("nvidia-cuda-mps-control")
    if control is not None and "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        subprocess.run([control], input="quit\n", text=True, capture_output=True, timeout=20, check=False)
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            os.environ.pop(name, None)


def run_all(options: argparse.Namespace, cells: list[Cell], out: Path, begun: float) -> None:
    """All cells, several at a time, until the time is up; then speed, alone."""
    if cells:
        left = begun + 60 * options.minutes
        scratch = tempfile.mkdtemp()
        shared = options.device.startswith("cuda") and not options.no_mps and start_mps(Path(scratch))
        if not train_cells(options, cells, out, begun, left, shared=shared):
            print("nothing moves under MPS: again without it", flush=True)
            stop_mps()
            train_cells(options, cells, out, begun, left, shared=False)
        elif shared:
            stop_mps()
        shutil.rmtree(scratch, ignore_errors=True)
    if not options.only or "speed" in options.only:
        speed = CONTEXT.Process(target=measure_speed, args=(options.data, str(out), options.device, options.spacy_python))
        speed.start()
        speed.join(timeout=options.speed_seconds)
        if speed.is_alive():
            speed.terminate()


def train_cells(options: argparse.Namespace, cells: list[Cell], out: Path, begun: float, left: float, *, shared: bool) -> bool:
    """Several at a time; False where they share the device and none has come through an epoch in a long while."""
    workers = options.workers or ((12 if shared else 5) if options.device.startswith("cuda") else 1)
    how = f"{workers} cells trained at a time on the one device, MPS {'on' if shared else 'off'}."
    (out / "how.txt").write_text(how)
    print(f"{len(cells)} cells. {how}", flush=True)
    waiting = CONTEXT.Queue()
    for cell in cells:
        waiting.put(cell)
    arguments = (waiting, options.data, str(out), options.device, options.changes)
    processes = [CONTEXT.Process(target=work, args=arguments) for _ in range(min(workers, len(cells)))]
    started, done, moving = time.monotonic(), -1, True
    for process in processes:
        process.start()
    while moving and any(process.is_alive() for process in processes) and time.monotonic() < left:
        time.sleep(2)
        ready = sum((out / f"{cell.name}.json").exists() for cell in cells)
        if ready != done:
            done = ready
            print(f"{time.monotonic() - begun:.0f} s: {done} of {len(cells)} cells", flush=True)
            write_page(options.output, out, options.note)
        if shared and time.monotonic() - started > STUCK_SECONDS:
            moving = any((out / f"{cell.name}.log").exists() for cell in cells)
    for process in processes:
        if process.is_alive():
            process.terminate()
        process.join(timeout=10)
    waiting.cancel_join_thread()
    return moving


def write_page(output: str, out: Path, note: str, reading: str = "") -> None:
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))]
    cells = [each for each in found if not each.get("speed")]
    speeds = [each for each in found if each.get("speed")]
    lines = ["# Spans on real data, from scratch", "", note, ""] if note else ["# Spans on real data, from scratch", ""]
    machines = sorted({f"{each['device']}, torch {each['torch']}" for each in found if "torch" in each})
    lines += [
        f"{platform.machine()}; {'; '.join(machines)}.",
        f"Command: `python -m benchmarks.spans_real {_shown(ARGUMENTS)}`.",
        "",
    ]
    how = out / "how.txt"
    lines += [how.read_text(), ""] if how.exists() else []
    lines += [
        "F1 in per cent over characters of the whole set, mean and standard deviation over seeds (how many is in brackets). No"
        " pretrained weights.",
        "",
    ]
    lines += _quality(cells) + _ablations(cells) + _speed(speeds) + reading.splitlines()
    lines += [
        "## Every cell",
        "",
        "| data | model | seed | F1 | at threshold 0 | precision | recall | boundary F1 | macro F1 | epochs | machine |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in sorted(cells, key=lambda each: (each["data"], each["method"], each["seed"])):
        numbers = " | ".join(
            _figure(each[name]) for name in ("f1", "f1_at_zero", "precision", "recall", "boundary_f1", "macro_f1")
        )
        tried = f", {each['changes']}" if each.get("changes") else ""
        lines.append(
            f"| {each['data']} | {each['method']}{tried} | {each['seed']} | {numbers} | {_epochs(each)} | {each['device']} |"
        )
    Path(output).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _shown(arguments: list[str]) -> str:
    """A command line without the note and without the folders of this machine."""
    noted = arguments.index("--note") if "--note" in arguments else len(arguments)
    kept = [*arguments[:noted], *arguments[noted + 2 :]]
    return " ".join(Path(each).name if each.startswith("/") else each for each in kept)


def _epochs(cell: dict[str, Any]) -> int:
    return int(cell["epochs"] if "epochs" in cell else cell["settings"]["epochs"])


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _mean(cells: list[dict[str, Any]], data: str, method: str, name: str) -> str:
    values = [each[name] for each in cells if (each["data"], each["method"], each.get("changes", "")) == (data, method, "")]
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread} ({len(values)})"


def _quality(cells: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| model | CLUENER dev | GermEval 2014 test, combined | outer | inner | WNUT-17 test |",
        "|---|---|---|---|---|---|",
    ]
    columns = (("cluener", "f1"), ("germeval", "f1"), ("germeval", "outer_f1"), ("germeval", "inner_f1"), ("wnut", "f1"))
    lines += [
        f"| {method} | {' | '.join(_mean(cells, data, method, name) for data, name in columns)} |"
        for method in (MAIN, "GlobalPointer", CRF, SPACY)
    ]
    return [
        *lines,
        "",
        "Nothing is chosen by the set that is measured on: epoch and threshold of CLUENER go by a twentieth of its training"
        " texts, those of the others by their dev sets. Published BiLSTM-CRF on CLUENER dev: 67.5 to 70.0. The CRF has the same"
        " encoder, and a second chain for inner spans of GermEval; spaCy's `ner` finds flat spans and is trained on the outer"
        " ones. Epochs and machine of each cell are below; a dash was not measured.",
        "",
    ]


def _ablations(cells: list[dict[str, Any]]) -> list[str]:
    if not any(each["method"] in ABLATIONS for each in cells):
        return []
    lines = [
        "## Ablations, Efficient GlobalPointer on CLUENER dev",
        "",
        "| what | F1 | precision | recall |",
        "|---|---|---|---|",
    ]
    for method in (MAIN, *ABLATIONS):
        parts = " | ".join(_mean(cells, "cluener", method, name) for name in ("f1", "precision", "recall"))
        lines.append(f"| {'as above' if method == MAIN else method} | {parts} |")
    return [*lines, ""]


def _speed(speeds: list[dict[str, Any]]) -> list[str]:
    if not speeds:
        return []
    lines = [
        "## Speed on CLUENER",
        "",
        "Nothing else of ours running; batches of the size named; one core where it is a CPU.",
        "",
    ]
    lines += ["| model | machine | batch | sentences a second, training | reading |", "|---|---|---|---|---|"]
    for each in speeds:
        rates = f"{each['train_per_second']:,.0f} | {each['predict_per_second']:,.0f}"
        lines.append(f"| {each['method']} | {each['device']} | {each['batch_size']} | {rates} |")
    return [*lines, ""]


ARGUMENTS: list[str] = []


def main(arguments: list[str] | None = None) -> None:
    begun = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the folder with cluener2020, germeval2014 and wnut17")
    parser.add_argument("--output", required=True, help="the page; cells go into a folder of the same name beside it")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=8.3, help="after this no cell goes on")
    parser.add_argument("--speed-seconds", type=float, default=75, help="after this no speed is measured any more")
    parser.add_argument("--workers", type=int, default=0, help="cells at a time; 0: 12 with MPS, 5 without, 1 on a CPU")
    parser.add_argument("--no-mps", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of cells, or: speed, spacy, page")
    parser.add_argument("--try", nargs="*", default=[], dest="tried", help="DATA:METHOD:NAME=VALUE,... cells to try")
    parser.add_argument("--try-seeds", type=int, default=1, help="seeds of the cells to try")
    parser.add_argument("--set", nargs="*", default=[], dest="changes", help="settings to try, name=value")
    parser.add_argument("--earlier", default="", help="a folder of cells of an earlier run that hold here too")
    parser.add_argument("--spacy-python", default="", help="a Python with spaCy; its cells run on the CPU")
    parser.add_argument("--spacy-seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--note", default="", help="date and machine, for the page")
    parser.add_argument("--reading", default="", help="a file with what is to be said about the figures, for the page")
    options = parser.parse_args(arguments)
    ARGUMENTS[:] = sys.argv[1:] if arguments is None else arguments
    options.changes = changed(options.changes)
    out = Path(options.output).with_suffix("")
    out.mkdir(parents=True, exist_ok=True)
    for path in Path(options.earlier).glob("*.json") if options.earlier else ():
        shutil.copyfile(path, out / path.name)
    special = {"speed", "spacy", "page"} & set(options.only)
    wanted = [] if "spacy" in special else [each for each in options.only if each not in special]
    cells = [cell for cell in all_cells(options.seeds) if not options.only or any(part in cell.name for part in wanted)]
    tried = [each.split(":") for each in options.tried]
    cells += [Cell(data, method, seed, changes) for seed in range(options.try_seeds) for data, method, changes in tried]
    cells = [cell for cell in cells if not (out / f"{cell.name}.json").exists()]
    assert all(cell.method in METHODS for cell in cells)
    run_all(options, cells, out, begun)
    if "spacy" in special:
        until = begun + 60 * options.minutes
        run_spacy(options.spacy_python, options.data, out, options.only, options.spacy_seeds, until)
    reading = Path(options.reading).read_text(encoding="utf-8") if options.reading else ""
    write_page(options.output, out, options.note, reading)
    print(Path(options.output).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
