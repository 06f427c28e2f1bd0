"""`manyhot train` and `evaluate` on a GPU for very many labels, timed from outside: ``python -m benchmarks.extreme_wide``.

    python -m benchmarks.extreme_wide --train train.jsonl.xz --test test.jsonl.xz --output page.md -- --hidden 512

What stands behind ``--`` goes to ``manyhot train``. The use of the device is what nvidia-smi says ten times a second. Every
line that a command prints is shown at once with its time, so that a run that is cut off has said where it was.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

METRICS = [f"{name}@{k}" for name in ("P", "PSP") for k in (1, 3, 5)]
DECIDED = ("micro-F1", "macro-F1")


class Busy(threading.Thread):
    """Reads the use of the device until ``stop``."""

    def __init__(self):
        super().__init__(daemon=True)
        self.readings, self.going = [], True

    def run(self):
        asked = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "100"]
        with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                used, memory = (float(part) for part in line.split(","))
                self.readings.append((time.monotonic(), used, memory))
                if not self.going:
                    process.terminate()
                    break

    def mean(self, first, last):
        """Mean use between two times, in per cent."""
        own = [used for at, used, _ in self.readings if first <= at <= last]
        return sum(own) / max(len(own), 1)


# How the lines start or what is in them that end a stage of training, and what the stage is.
STAGES = (
    ("run folder", "start and reading"),
    (" body, loss ", "words"),
    ("epoch 1/", "rows on the device, kernels and the first pass"),
    ("tuning the decision rule", "other passes and held-out lists"),
    ("trained in", "tuning"),
    ("Done: ", "saving"),
)


def timed(command):
    """``(wall seconds, [(seconds, line)])``; ends with the command's last lines where it fails."""
    begun, said = time.monotonic(), []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            said.append((time.monotonic() - begun, line.rstrip()))
            print(f"{said[-1][0]:7.1f} {said[-1][1]}", flush=True)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {[line for _, line in said[-12:]]}")
    return time.monotonic() - begun, said


def stages(said, whole):
    """``[(what, seconds)]`` of a training from the lines it printed."""
    found, before = [], 0.0
    for mark, what in STAGES:
        at = next((seconds for seconds, line in said if mark in line and seconds >= before), None)
        if at is not None:
            found.append((what, at - before))
            before = at
    return [*found, ("end of the process", whole - before)]


def measure(settings, more):
    """The lines of the page."""
    with tempfile.TemporaryDirectory() as name:
        run, busy = Path(name) / "run", Busy()
        busy.start()
        begun = time.monotonic()
        command = [sys.executable, "-m", "manyhot", "train", settings.train, "--run", run, "--no-report", *more]
        took, said = timed(command)
        ended = time.monotonic()
        asked = [part for each in METRICS for part in ("--metric", each)]
        asked += [part for each in DECIDED for part in ("--metric", each)]
        predicted, output = timed([sys.executable, "-m", "manyhot", "evaluate", run, settings.test, "--json", *asked])
        busy.going = False
        events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        modified = (run / "metrics.jsonl").stat().st_mtime
    text = "\n".join(line for _, line in output)
    values = json.loads(text[text.index("{") :])["scores"]
    trained = next(event["seconds"] for event in events if event["kind"] == "end")
    # The log is last written when training ends; saving follows.
    end = ended - (time.time() - modified) + (time.monotonic() - ended)
    start = end - trained
    rates = sorted(event["rows_per_second"] for event in events if event["kind"] == "epoch")
    busiest = max((memory for _, _, memory in busy.readings), default=0)
    return [
        "| " + " | ".join(METRICS) + " | whole command, s | evaluate, s | run folder |",
        "|" + "--:|" * (len(METRICS) + 3),
        "| "
        + " | ".join(f"{100 * values[each]:.2f}" for each in METRICS)
        + f" | {took:.1f} | {predicted:.1f} | {size / 2**30:.2f} GiB |",
        "",
        f"{events[0]['message']}; settings {' '.join(more) or 'by default'}. Start, reading and words took"
        f" {start - begun:.1f} s, training {trained:.1f} s ({len(rates)} passes, {rates[len(rates) // 2]:,.0f} rows a second"
        f" in the median one), saving and the end {ended - end:.1f} s. The device was {busy.mean(start, end):.0f} % busy in"
        f" training, {busy.mean(begun, ended):.0f} % over the whole command; at most {busiest / 1024:.1f} GiB were used."
        f" {events[-2]['message']}; on the test rows micro-F1 {values['micro-F1']:.4f}, macro-F1 {values['macro-F1']:.4f},"
        f" {100 * values['empty']:.1f} % of the rows empty.",
        "",
        "| stage of `manyhot train` | seconds |",
        "|---|--:|",
        *(f"| {what} | {seconds:.1f} |" for what, seconds in stages(said, took)),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--output", type=Path)
    parser.add_argument("more", nargs="*", help="flags of manyhot train, behind --")
    settings = parser.parse_args()
    head = [
        f"# Very many labels on {torch.cuda.get_device_name()}: `manyhot train`",
        "",
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, torch {torch.__version__}."
        " Command: `python -m benchmarks.extreme_wide --train train.jsonl.xz --test test.jsonl.xz`.",
        "",
    ]
    text = "\n".join([*head, *measure(settings, settings.more)]) + "\n"
    print(text)
    if settings.output:
        settings.output.write_text(text)


if __name__ == "__main__":
    main()
