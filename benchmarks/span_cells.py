"""The cells of the span benchmark: one model on one data set with one seed, trained and measured."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.span_crf import CrfNetwork, crf_objective
from manyhot.data.spans.examples import SpanExamples
from manyhot.data.spans.read import read_span_examples
from manyhot.metrics.spans.scores import SpanMetrics
from manyhot.training.run.progress import Event
from manyhot.training.spans.bundle import TrainedSpanModel
from manyhot.training.spans.fit import SpanFit
from manyhot.training.spans.network import SpanObjective
from manyhot.training.spans.scoring import score_spans
from manyhot.training.spans.session import SpanSession
from manyhot.training.spans.settings import SpanSettings

# CLUENER's test set has no public labels: its dev set is the test set here, so nothing may be chosen by it; a twentieth of the
# training texts is held out for that. The other two sets stop by their dev sets.
FILES = {
    "cluener": ("cluener2020/train.json.gz", None, "cluener2020/dev.json.gz"),
    "germeval": ("germeval2014/germ.train.iob2.gz", "germeval2014/germ.dev.iob2.gz", "germeval2014/germ.test.iob2.gz"),
    "wnut": ("wnut17/wnut17train.conll.gz", "wnut17/emerging.dev.conll.gz", "wnut17/emerging.test.annotated.gz"),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "cluener": {"epochs": 14, "batch_size": 64, "validation": 0.05},
    "germeval": {"epochs": 12, "batch_size": 64},
    "wnut": {"epochs": 24, "batch_size": 32},
}
METHODS: dict[str, dict[str, Any]] = {
    "Efficient GlobalPointer": {"head": "efficient"},
    "GlobalPointer": {"head": "global-pointer"},
    "BiLSTM-CRF": {},
    "without rotary": {"head": "efficient", "rotary": False},
    "BCE on the grid": {"head": "efficient", "loss": "bce"},
    "focal on the grid": {"head": "efficient", "loss": "focal"},
    "with R-Drop": {"head": "efficient", "rdrop": 0.5},
    "GlobalPointer without rotary": {"head": "global-pointer", "rotary": False},
}
CRF = "BiLSTM-CRF"
# Steps and texts that a speed is measured over.
SPEED = {"cuda": (100, 1343), "cpu": (24, 512)}


@dataclass(frozen=True)
class Cell:
    """One number of the page, or one of several that it is the mean of."""

    data: str
    method: str
    seed: int
    changes: str = ""

    @property
    def name(self) -> str:
        tried = "--" + re.sub(r"[^\w.=-]+", "_", self.changes) if self.changes else ""
        return f"{self.data}--{self.method.replace(' ', '-')}--{self.seed}{tried}"


@lru_cache(maxsize=3)
def load(folder: str, data: str) -> tuple[SpanExamples, SpanExamples | None, SpanExamples]:
    train, dev, test = (None if name is None else read_span_examples(Path(folder) / name) for name in FILES[data])
    assert train is not None
    assert test is not None
    return train, dev, test


def session_of(cell: Cell, folder: str, device: str, changes: dict[str, Any]) -> SpanSession:
    train, dev, _ = load(folder, cell.data)
    chosen = {"patience": 0, "seed": cell.seed, "device": device, **SETTINGS[cell.data], **METHODS[cell.method], **changes}
    chosen |= changed(cell.changes.split(",")) if cell.changes else {}
    return SpanSession(train, SpanSettings(**chosen), dev)


def run_cell(cell: Cell, folder: str, device: str, changes: dict[str, Any], *, log: Path) -> dict[str, Any]:
    """Train, measure on the test set; what is known of it, fit for JSON. Every epoch is a line of the log."""
    begun = time.monotonic()
    torch.manual_seed(cell.seed)
    session = session_of(cell, folder, device, changes)
    curve: list[tuple[float, float]] = []

    def watch(event: Event) -> None:
        if event.kind == "epoch":
            curve.append((event.loss, event.value))
            with log.open("a") as file:
                file.write(event.line() + "\n")

    session.progress = watch
    prepared = time.monotonic()
    network, objective = parts_of(cell, session)
    model = session.train(network, objective)
    trained = time.monotonic()
    test = load(folder, cell.data)[2]
    metrics = score_spans(model, test)
    at_zero = score_spans(model.with_settings(replace(model.settings, threshold=0.0)), test)
    return {
        **vars(cell),
        **figures(metrics),
        "f1_at_zero": 100 * at_zero.f1(),
        "threshold": model.settings.threshold,
        "seconds": {"prepare": prepared - begun, "train": trained - prepared, "test": time.monotonic() - trained},
        "curve": [[round(loss, 4), None if value != value else round(value, 4)] for loss, value in curve],
        "validation_f1": model.about.get("validation_f1"),
        "best_epoch": model.about.get("best_epoch"),
        "parameters": sum(each.numel() for each in network.parameters()),
        "settings": session.settings.to_dict(),
        "torch": torch.__version__,
        "device": device_name(device),
    }


def parts_of(cell: Cell, session: SpanSession) -> tuple[Any, Any]:
    network: Any = session.network()
    if cell.method != CRF:
        return network, SpanObjective(session.settings.loss, session.settings.rdrop)
    return CrfNetwork(network.encoder, len(session.type_names), 2 if session.settings.decode == "nested" else 1), crf_objective


def figures(metrics: SpanMetrics) -> dict[str, Any]:
    """All figures of the page, in per cent."""
    counts = metrics.counts()
    return {
        "f1": 100 * metrics.f1(),
        "outer_f1": 100 * metrics.f1(level="outer"),
        "inner_f1": 100 * metrics.f1(level="inner"),
        "precision": 100 * counts.precision,
        "recall": 100 * counts.recall,
        "boundary_f1": 100 * metrics.f1(match="boundary"),
        "macro_f1": 100 * metrics.f1(average="macro"),
    }


def speed_cell(method: str, folder: str, device: str, data: str = "cluener") -> dict[str, Any]:
    """Sentences a second of training steps alone, nothing else running; on a CPU, a second of processor time."""
    cell = Cell(data, method, 0)
    session = session_of(cell, folder, device, {})
    network, objective = parts_of(cell, session)
    fit = SpanFit(
        network.to(session.device),
        objective,
        session.windows.rows,
        num_types=len(session.type_names),
        settings=session.settings,
        device=session.device,
    )
    network.train()
    steps, num_texts = SPEED[session.device.type]
    clock = time.process_time if session.device.type == "cpu" else time.monotonic
    batches = fit.epoch_batches(0)[:steps]
    # The first pass compiles what has to be compiled and is not timed; on a CPU nothing has to be.
    for part in (batches if session.device.type == "cuda" else batches[:1], batches):
        begun = clock()
        for picked in part:
            fit.step(fit.rate(), picked)
        _wait(session.device)
        took = clock() - begun
    rate = sum(map(len, batches)) / took
    decode = TrainedSpanModel(network, session.shape, session.inputs, session.type_names, session.settings)
    texts = load(folder, data)[2][:num_texts]
    decode.predict(texts[:256], batch_size=256)
    begun = clock()
    decode.predict(texts, batch_size=256)
    _wait(session.device)
    return {
        "speed": True,
        "data": data,
        "method": method,
        "train_per_second": rate,
        "predict_per_second": len(texts) / (clock() - begun),
        "batch_size": session.settings.batch_size,
        "torch": torch.__version__,
        "device": device_name(device),
        "threads": torch.get_num_threads(),
    }


def changed(pairs: list[str]) -> dict[str, Any]:
    """``name=value`` pairs of settings that are tried."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        found[name] = json.loads(value) if re.fullmatch(r"-?[\d.]+(e-?\d+)?|true|false|null", value) else value
    return found


def device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def save(path: Path, result: dict[str, Any]) -> None:
    """Whole or not there."""
    half = path.with_suffix(".part")
    half.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    half.replace(path)
