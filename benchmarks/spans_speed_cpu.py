"""Span models and spaCy's ner on one core of a CPU: sentences per second of processor time, in turns; printed as Markdown.

    python -m benchmarks.spans_speed_cpu --data FOLDER --output PAGE.md --spacy-python VENV/bin/python

Every figure is the median over rounds. In a round each model is measured once, in a process of its own on the same core, so
that whatever else the machine does disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.span_cells import CRF, speed_cell
from benchmarks.span_spacy import METHOD as SPACY
from benchmarks.span_spacy import spacy_speed

OURS = ("Efficient GlobalPointer", "GlobalPointer", CRF)
SPEED_SECONDS = 5.0


def measured(method: str, options: argparse.Namespace) -> dict[str, Any]:
    """One model in a process of its own."""
    if method == SPACY:
        return spacy_speed(options.spacy_python, options.data, "cluener", SPEED_SECONDS)
    command = [sys.executable, "-m", "benchmarks.spans_speed_cpu", "--data", options.data, "--only", method]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows_of(rounds: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The table."""
    lines = ["| model | batch | training, sentences/s | reading, sentences/s |", "|---|---|---|---|"]
    for method, found in rounds.items():
        for name, size in (("train_per_second", found[0]["batch_size"]), ("train_64_per_second", 64)):
            if name in found[0]:
                lines.append(f"| {method} | {size} | {spread(found, name)} | {spread(found, 'predict_per_second')} |")
    return lines


def spread(found: list[dict[str, Any]], name: str) -> str:
    values = [each[name] for each in found]
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def processor() -> str:
    """The name of the processor, as Linux tells it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    told = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    kinds = [each for each in ("avx2", "avx512f", "avx512_bf16", "amx_tile") if each in told.get("flags", "").split()]
    names = [f"{name} {told[name]}" for name in ("cpu family", "model") if name in told]
    return ", ".join([told.get("model name", platform.machine()), *names, *kinds])


def page(options: argparse.Namespace, rounds: dict[str, list[dict[str, Any]]]) -> str:
    versions = f"torch {rounds[OURS[0]][0]['torch']}, {rounds[SPACY][0]['device'].removeprefix('CPU, ')}"
    return "\n".join(
        [
            "# Spans on one core",
            "",
            f"{options.note} {processor()}; one core, one thread. Python {platform.python_version()}, {versions}.",
            "Command: `python -m benchmarks.spans_speed_cpu --data FOLDER --output PAGE.md --spacy-python PYTHON"
            f" --rounds {options.rounds}`.",
            "",
            f"CLUENER. Sentences per second of processor time: median of {options.rounds} rounds, smallest and largest in"
            " brackets. In a round the models take turns on the same core, each in a process of its own.",
            "",
            *rows_of(rounds),
            "",
            Path(options.reading).read_text(encoding="utf-8").strip() if options.reading else "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the folder with cluener2020")
    parser.add_argument("--output", default="", help="the page")
    parser.add_argument("--spacy-python", default="", help="a Python with spaCy")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--note", default="", help="date and machine, for the page")
    parser.add_argument("--reading", default="", help="a file with what is to be said about the figures, for the page")
    parser.add_argument("--only", default="", help="measure this model alone, in this process, and print it as JSON")
    options = parser.parse_args()
    # The processes that are started have the same core, and as many threads.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if options.only:
        import torch

        torch.set_num_threads(1)
        print(json.dumps(speed_cell(options.only, options.data, "cpu")))
        return
    rounds: dict[str, list[dict[str, Any]]] = {method: [] for method in (*OURS, SPACY)}
    for _ in range(options.rounds):
        for method, found in rounds.items():
            found.append(measured(method, options))
            told = {name: round(value) for name, value in found[-1].items() if name.endswith("per_second")}
            print(method, told, file=sys.stderr, flush=True)
    text = page(options, rounds)
    Path(options.output).write_text(text.rstrip() + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
