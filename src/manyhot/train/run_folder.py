"""The folder of a run: settings, data fingerprint, versions, log, checkpoints and the model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from manyhot.data.examples import Examples
from manyhot.train.bundle import versions
from manyhot.train.checkpoint import Checkpoints
from manyhot.train.durable import append_line, make_folder, write_json
from manyhot.train.progress import Event, json_line
from manyhot.train.settings import TrainSettings


class RunFolder:
    """A run's files.

    Args:
        path: the folder.
        settings: of this run.
        fingerprints: of its data.
        resume: whether a run that is there is gone on with; without it, it is an error to have one.
    """

    def __init__(self, path: Path, settings: TrainSettings, fingerprints: dict[str, str], *, resume: bool) -> None:
        self.path = path
        make_folder(path)
        described = path / "settings.json"
        if described.exists():
            if not resume:
                raise ValueError(f"train: `run` must be a new folder; {str(path)!r} holds a run. Resume it or choose another.")
            self._check_same(json.loads(described.read_text(encoding="utf-8")), settings, fingerprints)
        else:
            write_json(described, {"settings": settings.to_dict(), "data": fingerprints, "versions": versions()})
        self.checkpoints = Checkpoints(path / "checkpoints")

    def _check_same(self, found: dict[str, Any], settings: TrainSettings, fingerprints: dict[str, str]) -> None:
        before = TrainSettings.from_dict(found["settings"]).to_dict()
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

    @property
    def finished(self) -> bool:
        """Whether there is a finished model."""
        return (self.model / "model.json").exists()

    def log(self, event: Event) -> None:
        """One more line in ``metrics.jsonl``."""
        append_line(self.path / "metrics.jsonl", json_line(event))


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
