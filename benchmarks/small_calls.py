"""Every loss with every option on a small batch, the host counted: what a call takes beside torch's binary cross-entropy.

    python -m benchmarks.small_calls [--device cuda] [--rows 256] [--labels 80] [--types bfloat16] [--output PAGE.md]

At this size a call takes the host longer than the device, so that the time shows the checks, launches and small tensors of a
call. Losses come from the catalog. All calls of a type take turns, and medians of the rounds are printed, in microseconds.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import time
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.gpu_engine import backward, table
from manyhot import SparseLabels, rdrop_loss
from manyhot.losses.catalog import LOSSES

ROUNDS, CALLS = 7, 40
HEAD = ["loss", "call", "value", "times BCE", "with gradient", "times BCE"]


def problem(rows, num_labels, dtype, device):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, num_labels, generator=generator).to(device, dtype)
    labels = (torch.rand(rows, num_labels, generator=generator) < 0.05).to(device, torch.uint8)
    labels[:, 0] = 1  # a row without a positive is no problem for any loss but softmax
    return logits, labels


def options(labels):
    """The calls that are tried, by name: ``(labels, keyword arguments, feature of the catalog that they need)``."""
    weight = torch.linspace(0.5, 2, labels.shape[1], device=labels.device)
    rows = torch.linspace(0.5, 2, labels.shape[0], device=labels.device)
    soft = torch.where(labels == 1, 0.9, 0.05)
    lists = SparseLabels.from_dense(labels)
    where = torch.arange(labels.shape[1], device=labels.device) % 7 != 3
    return {
        "uint8": (labels, {}, None),
        "bool": (labels.bool(), {}, None),
        "lists": (lists, {}, None),
        "soft labels": (soft, {}, "soft_labels"),
        "smoothing": (labels, {"smoothing": 0.1}, "smoothing"),
        "where": (labels, {"where": where.expand_as(labels)}, "where"),
        "weights": (labels, {"pos_weight": weight, "neg_weight": 0.5}, "pos_weight"),
        "row weights": (labels, {"sample_weight": rows}, None),
        "sum": (labels, {"reduction": "sum"}, None),
        "none": (labels, {"reduction": "none"}, None),
    }


def losses():
    """Functions by title, with the entry that says what they support."""
    for entry in LOSSES.values():
        if not entry.one_label:
            yield entry.title, entry, entry.function, dict(entry.settings)


def calls_of(logits, labels):
    """Every call that the catalog allows, as ``(loss, option, function of the scores)``."""
    for title, entry, function, settings in losses():
        for option, (given, keywords, feature) in options(labels).items():
            if option == "none" and entry.name == "two_way":
                continue  # has no value per row
            if feature is None or entry.why_not(feature) is None:
                yield title, option, lambda x, f=function, g=given, k=settings | keywords: f(x, g, **k)
    other = logits + 0.1
    yield "R-Drop", "uint8", lambda x: rdrop_loss(x, other, labels)


def microseconds(functions, device):
    """Medians over rounds in which all functions take turns."""
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    taken = [[] for _ in functions]
    for _ in range(ROUNDS):
        for own, function in zip(taken, functions, strict=True):
            function()
            wait()
            begun = time.perf_counter()
            for _ in range(CALLS):
                function()
            wait()
            own.append((time.perf_counter() - begun) / CALLS * 1e6)
    return [statistics.median(own[1:]) for own in taken]


def measure(rows, num_labels, dtype, device):
    """The rows of the table of one type."""
    logits, labels = problem(rows, num_labels, dtype, device)
    leaf = logits.clone().requires_grad_()
    floats = labels.to(dtype)
    named = [("torch's BCE", "floats", lambda x: binary_cross_entropy_with_logits(x, floats)), *calls_of(logits, labels)]
    with torch.no_grad():
        values = microseconds([lambda f=f: f(logits) for *_, f in named], device)
    whole = microseconds([lambda f=f: backward(f(leaf).sum(), leaf) for *_, f in named], device)
    return [
        [title, option, f"{value:.0f}", f"{value / values[0]:.2f}", f"{both:.0f}", f"{both / whole[0]:.2f}"]
        for (title, option, _), value, both in zip(named, values, whole, strict=True)
    ]


def page(settings, found):
    device = torch.cuda.get_device_name() if settings.device == "cuda" else f"{torch.get_num_threads()} threads of a CPU"
    command = f"python -m benchmarks.small_calls --device {settings.device}"
    parts = [
        f"# Small calls of every loss on {device}",
        f"{datetime.date.today()}, torch {torch.__version__}. Command: `{command}`.",
        f"{settings.rows} rows, {settings.labels} labels; microseconds of a call with the host counted, medians of"
        f" {ROUNDS - 1} rounds in which all calls take turns. Every call sums its result, as `none` needs it.",
    ]
    for name, rows in found.items():
        parts += [f"## {name}", table(HEAD, rows)]
    return "\n\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--labels", type=int, default=80)
    parser.add_argument("--types", default="float32,bfloat16")
    parser.add_argument("--output", type=Path)
    settings = parser.parse_args()
    found = {}
    for name in settings.types.split(","):
        found[name] = measure(settings.rows, settings.labels, getattr(torch, name), settings.device)
        if settings.output:
            settings.output.write_text(page(settings, found))
    if not settings.output:
        print(page(settings, found))


if __name__ == "__main__":
    main()
