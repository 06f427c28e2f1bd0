"""Millions of labels and rows from files to top-k predictions on one GPU: rows a second, memory, share of the floor.

    python -m benchmarks.extreme_gpu --output page.md

The set is made up: a row has a few labels, frequent ones most often, and words that its labels share. It is written to files,
which are mapped into memory and moved to the device once. The floor is the matrix products of the head alone (three to train
where scores are kept, four where they are made again, one to predict) at the rate of a large product in this run.
"""

from __future__ import annotations

import argparse
import datetime
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from manyhot import SparseLabels
from manyhot.training.rows.bodies.wide import WideBody
from manyhot.training.rows.fit import TrainingRows
from manyhot.training.rows.inputs.device_rows import DeviceRows
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.wide.fit import WideFit

LABELS_A_ROW, WORDS_A_LABEL, OTHER_WORDS = 3, 4, 6


def write_rows(folder, name, rows, settings, seed):
    """Labels and words of some rows, as .npy files; made in parts on the device."""
    draw = torch.Generator(settings.device).manual_seed(seed)
    about = {"device": settings.device, "generator": draw}
    labels = (torch.rand(rows, LABELS_A_ROW, **about) ** 4 * settings.labels).long().clamp_(max=settings.labels - 1)
    each = torch.arange(1, 1 + WORDS_A_LABEL, device=settings.device)
    own = (labels.unsqueeze(2) * 2_654_435_761 + each * 40_503).remainder(settings.features).flatten(1)
    words = torch.cat([own, torch.randint(settings.features, (rows, OTHER_WORDS), **about)], dim=1)
    np.save(folder / f"{name}-labels.npy", labels.sort(dim=1).values.int().cpu().numpy())
    np.save(folder / f"{name}-words.npy", words.int().cpu().numpy())


class Csr:
    """Rows of equally many words with equal values, in the form of a CSR matrix, over a mapped file."""

    def __init__(self, path):
        words = np.load(path, mmap_mode="r")
        self.indptr = np.arange(len(words) + 1, dtype=np.int64) * words.shape[1]
        self.indices = words.reshape(-1)
        self.data = np.full(self.indices.shape, words.shape[1] ** -0.5, dtype=np.float32)


def read_rows(folder, name, settings):
    """The rows of a file on the device, and their labels on the host; a label that was drawn twice for a row counts once."""
    labels = torch.from_numpy(np.load(folder / f"{name}-labels.npy").astype(np.int64))
    again = torch.zeros_like(labels, dtype=torch.bool)
    again[:, 1:] = labels[:, 1:] == labels[:, :-1]
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), (~again).sum(dim=1).cumsum(0)])
    listed = SparseLabels(labels[~again], offsets, settings.labels)
    return DeviceRows(Csr(folder / f"{name}-words.npy"), listed, None, torch.device(settings.device)), listed


def product_rate(settings):
    """Multiplications and additions a second of a large product in bfloat16."""
    size = 8192 if settings.device == "cuda" else 256
    left, right = (torch.randn(size, size, device=settings.device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        left @ right
    begun = settled(settings)
    for _ in range(10):
        left @ right
    return 10 * 2 * size**3 / (settled(settings) - begun)


def settled(settings):
    """The time once the device has done everything."""
    if settings.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def train(body, rows, labels, settings):
    """``(rows trained on, seconds, loss at the start, loss at the end)``, by the steps that `manyhot train` takes; stops after
    so many seconds."""
    sizes = {"batch_size": settings.batch, "epochs": 1, "dropout": 0.0, "device": settings.device}
    about = TrainSettings(model="wide", loss="zlpr", pos_weight=100.0, learning_rate=settings.rate, **sizes)
    fitted = {"salt": 0, "device": torch.device(settings.device), "linear": False, "on_device": rows}
    fit = WideFit(body, TrainingRows(None, labels), about, **fitted)
    fit.train_mode()
    losses, done, begun = [], 0, None
    for place, (batch, count) in enumerate(fit.batches(0)):
        losses.append(fit.step(settings.rate, batch).clone())
        if place == settings.warmup - 1:
            begun, done = settled(settings), 0
        elif begun is not None:
            done += count
            if place % 16 == 0 and settled(settings) - begun > settings.seconds:
                break
    seconds = settled(settings) - begun
    values = torch.stack(losses).float()
    return done, seconds, float(values[:20].mean()), float(values[-20:].mean())


@torch.no_grad()
def predict(body, rows, settings):
    """``(rows, seconds, P@1, P@5)`` of the five best labels of each row."""
    body.eval()
    # A whole batch and one of the size of the last one: each has kernels of its own.
    for inputs, _, _ in rows.batches(np.arange(min(len(rows), settings.batch + len(rows) % settings.batch)), settings.batch):
        body(inputs).top(5)
    begun, hits, done = settled(settings), torch.zeros(5, device=settings.device), 0
    for inputs, labels, _ in rows.batches(np.arange(len(rows)), settings.batch):
        top = body(inputs).top(5).indices
        at = torch.arange(len(labels), device=top.device).unsqueeze(1).expand_as(top)
        hits += labels.contains(at.flatten(), top.flatten()).view_as(top).sum(dim=0)
        done += len(labels)
    found = hits.cumsum(0) / max(done, 1)
    return done, settled(settings) - begun, float(found[0]), float(found[4]) / 5


def measure(settings):
    """The lines of the page."""
    cuda, work = settings.device == "cuda", settings.labels * settings.hidden * 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begun = settled(settings)
        write_rows(folder, "train", settings.rows, settings, 1)
        write_rows(folder, "test", settings.test_rows, settings, 2)
        written = settled(settings)
        (rows, labels), (test, _) = (read_rows(folder, part, settings) for part in ("train", "test"))
        read = settled(settings)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
    rate = product_rate(settings)
    torch.manual_seed(0)
    with torch.device(settings.device):
        sizes = {"hidden": settings.hidden, "head": "bfloat16" if cuda else "float32", "dropout": 0.0, "moves": True}
        body = WideBody(settings.features, settings.labels, **sizes)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    done, seconds, first, last = train(body, rows, labels, settings)
    peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0
    predicted, took, at_1, at_5 = predict(body, test, settings)
    tables = sum(each.numel() * each.element_size() for each in body.parameters()) / 2**30
    kept = settings.batch * settings.labels * 2 <= (torch.cuda.mem_get_info()[1] // 16 if cuda else 128 << 20)
    products = 3 if kept else 4
    floors = [products * done * work / rate, predicted * work / rate]
    made = f"{written - begun:.1f} s to make and write {size:,.0f} MiB, {read - written:.1f} s from the files to the device"
    return [
        f"{settings.labels:,} labels, {settings.rows:,} rows, {settings.features:,} words, hidden size {settings.hidden},"
        f" {settings.batch} rows a step, {made}. A large product: {rate / 1e12:.0f} TFLOP/s.",
        "",
        "| work | rows | seconds | rows a second | floor, s | share of the floor |",
        "|---|---:|---:|---:|---:|---:|",
        f"| train ({products} products) | {done:,} | {seconds:.1f} | {done / seconds:,.0f} | {floors[0]:.2f} |"
        f" {floors[0] / seconds:.0%} |",
        f"| top 5 | {predicted:,} | {took:.1f} | {predicted / took:,.0f} | {floors[1]:.2f} | {floors[1] / took:.0%} |",
        "",
        f"Weights {tables:.2f} GiB; peak memory of the device in training {peak:.2f} GiB with the rows on it. Loss"
        f" {first:.2f} at the start, {last:.2f} at the end; P@1 {at_1:.3f}, P@5 {at_5:.3f} on {predicted:,} rows not seen,"
        f" after {done / max(settings.rows, 1):.0%} of one pass.",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("labels", 3_000_000), ("rows", 1_000_000), ("test-rows", 50_000), ("features", 500_000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--warmup", type=int, default=5, help="first steps that are not timed")
    parser.add_argument("--seconds", type=float, default=60.0, help="training stops after so many")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--output", type=Path)
    settings = parser.parse_args()
    name = torch.cuda.get_device_name() if settings.device == "cuda" else "CPU"
    head = [
        f"# Millions of labels on {name}",
        "",
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, torch {torch.__version__}.",
        "Command: `python -m benchmarks.extreme_gpu`.",
        "",
    ]
    text = "\n".join([*head, *measure(settings)]) + "\n"
    print(text)
    if settings.output:
        settings.output.write_text(text)


if __name__ == "__main__":
    main()
