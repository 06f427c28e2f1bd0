"""The folder of a run: settings, data fingerprint, versions, log, checkpoints and the model."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from manyhot._files import append_line, make_folder, write_json
from manyhot.data.examples import Examples
from manyhot.training.run.checkpoint import Checkpoints, SharedCheckpoints
from manyhot.training.run.processes import Processes
from manyhot.training.run.progress import Event, json_line
from manyhot.training.run.settings import RunSettings
from manyhot.training.run.tensorboard import EventFile
from manyhot.training.run.versions import versions


class RunFolder:
    """A run's files.

    Args:
        path: the folder.
        settings: of this run.
        fingerprints: of its data.
        resume: whether a run that is there is gone on with; without it, it is an error to have one.

    Of several processes the first one alone looks at the folder and writes.
    """

    def __init__(self, path: Path, settings: RunSettings, fingerprints: dict[str, str], *, resume: bool) -> None:
        self.path, self.processes = path, Processes.current()
        self.checkpoints: Checkpoints | SharedCheckpoints
        self._events: EventFile | None = None
        if self.processes.first:
            self._open(settings, fingerprints, resume=resume)
            self.checkpoints = Checkpoints(path / "checkpoints")
            self._events = EventFile(path / "tensorboard") if settings.tensorboard else None
        if self.processes.count > 1:
            own = self.checkpoints if self.processes.first else None
            self.checkpoints = SharedCheckpoints(own, self.processes)
        self.finished = bool(self.processes.agreed(float((self.model / "model.json").exists())))

    def _open(self, settings: RunSettings, fingerprints: dict[str, str], *, resume: bool) -> None:
        path = self.path
        make_folder(path)
        described = path / "settings.json"
        if described.exists():
            if not resume:
                raise ValueError(f"train: `run` must be a new folder; {str(path)!r} holds a run. Resume it or choose another.")
            self._check_same(json.loads(described.read_text(encoding="utf-8")), settings, fingerprints)
        else:
            write_json(described, {"settings": settings.to_dict(), "data": fingerprints, "versions": versions()})

    def _check_same(self, found: dict[str, Any], settings: RunSettings, fingerprints: dict[str, str]) -> None:
        before = type(settings).from_dict(found["settings"]).to_dict()
        changed = [name for name, value in settings.to_dict().items() if before[name] != value]
        if changed:
            name = changed[0]
            raise ValueError(
                f"train: a run must be resumed with its own settings; `{name}` was {before[name]!r}, now"
                f" {settings.to_dict()[name]!r}. The settings are in {str(self.path / 'settings.json')!r}."
            )
        if found["data"] != fingerprints:
            raise ValueError("train: a run must be resumed with the data it was started with; the data changed.")

    @property
    def model(self) -> Path:
        """Where the finished model is."""
        return self.path / "model"

    def log(self, event: Event) -> None:
        """One more line in ``metrics.jsonl``, and in the event file where one was asked for."""
        if self.processes.first:
            append_line(self.path / "metrics.jsonl", json_line(event))
        if self._events is not None:
            self._events.add(event)


def discard_unbegun(path: Path, *others: str) -> None:
    """Take away the folder of a run that was refused before its first step, and the files ``others`` in it.

    Where anything has been trained, nothing is taken away; nor is what a run does not write.
    """
    checkpoints = path / "checkpoints"
    if (path / "metrics.jsonl").exists() or (checkpoints.is_dir() and any(checkpoints.iterdir())):
        return
    with contextlib.suppress(OSError):
        for name in ("settings.json", *others):
            (path / name).unlink(missing_ok=True)
        for folder in (checkpoints, path / "tensorboard"):
            shutil.rmtree(folder, ignore_errors=True)
        path.rmdir()


def fingerprint(examples: Examples, sample_weight: Tensor | None = None) -> str:
    """A digest of inputs, labels and names."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(examples.label_names).encode())
    for labels in (examples.labels, examples.unknown):
        if labels is not None:
            digest.update(labels.offsets.numpy().tobytes() + labels.indices.numpy().tobytes())
    if examples.texts is not None:
        for text in examples.texts:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    elif examples.images is not None:
        digest.update(np.ascontiguousarray(examples.images.numpy()).tobytes())
    elif isinstance(examples.features, np.ndarray):
        digest.update(np.ascontiguousarray(examples.features).tobytes())
    else:
        for part in (examples.features.indptr, examples.features.indices, examples.features.data):
            digest.update(np.ascontiguousarray(part).tobytes())
    if sample_weight is not None:
        digest.update(sample_weight.double().numpy().tobytes())
    return digest.hexdigest()
