"""The folder of a run: settings, data fingerprint, versions, log, checkpoints and the model."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import Tensor

from manyhot._files import append_line, make_folder, write_json
from manyhot.data.examples import Examples
from manyhot.data.mapped.rows import MappedMatrix
from manyhot.training.run.checkpoint import Checkpoints, Saved, SharedCheckpoints
from manyhot.training.run.claim import RunClaim
from manyhot.training.run.processes import Processes
from manyhot.training.run.progress import Event, json_line
from manyhot.training.run.settings import RunSettings
from manyhot.training.run.tensorboard import EventFile
from manyhot.training.run.versions import versions

if TYPE_CHECKING:
    from manyhot.training.run.sharded_checkpoint import Like, ShardedCheckpoints


class RunFolder:
    """A run's files.

    Args:
        path: the folder.
        settings: of this run.
        fingerprints: of its data.
        resume: continue the run that is there; without it, a run in the folder is an error.
        sharded: whether each process has a part of the state; then each writes its own into the checkpoints.

    With several processes, only the first one reads and writes everything else in the folder.
    """

    def __init__(
        self, path: Path, settings: RunSettings, fingerprints: dict[str, str], *, resume: bool, sharded: bool = False
    ) -> None:
        self.path, self.processes, self.sharded = path, Processes.current(), sharded
        self.checkpoints: Checkpoints | SharedCheckpoints | ShardedCheckpoints
        self._events: EventFile | None = None
        if self.processes.first:
            self._open(settings, fingerprints, resume=resume)
            self.checkpoints = Checkpoints(path / "checkpoints")
            self._events = EventFile(path / "tensorboard") if settings.tensorboard else None
        if self.processes.count > 1:
            own = cast(Checkpoints, self.checkpoints) if self.processes.first else None
            self.checkpoints = SharedCheckpoints(own, self.processes)
        if self.sharded:
            # This import takes a second.
            from manyhot.training.run.sharded_checkpoint import ShardedCheckpoints

            self.checkpoints = ShardedCheckpoints(path / "checkpoints", self.processes)
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
        free = [name for name in settings.may_change if before[name] and settings.to_dict()[name]]
        changed = [name for name, value in settings.to_dict().items() if before[name] != value and name not in free]
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

    def load(self, name: str, like: Like) -> Saved | None:
        """The last complete checkpoint called ``name``, or None; sharded as ``like`` is, if each process has a part."""
        held = self.checkpoints
        return held.load(name) if isinstance(held, (Checkpoints, SharedCheckpoints)) else held.load(name, like)

    def log(self, event: Event) -> None:
        """Append a line to ``metrics.jsonl``, and a record to the event file if there is one."""
        if self.processes.first:
            append_line(self.path / "metrics.jsonl", json_line(event))
        if self._events is not None:
            self._events.add(event)


@contextlib.contextmanager
def claimed(run: Path | str | RunClaim) -> Iterator[Path]:
    """The path of a run folder, claimed for the time of the block unless the caller has claimed it. With several processes, the
    first one claims it.
    """
    if isinstance(run, RunClaim) or not Processes.current().first:
        yield run.path if isinstance(run, RunClaim) else Path(run)
        return
    with RunClaim(Path(run)) as claim:
        yield claim.path


def fingerprint(examples: Examples, sample_weight: Tensor | None = None) -> str:
    """A digest of inputs, labels and names."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(examples.label_names).encode())
    for labels in (examples.labels, examples.unknown):
        if labels is not None:
            digest.update(_bytes(labels.offsets.numpy()))
            digest.update(_bytes(labels.indices.numpy()))
            if labels.values is not None:
                digest.update(_bytes(labels.values.float().numpy()))
    features = examples.features
    if examples.texts is not None:
        for text in examples.texts:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    elif examples.images is not None:
        digest.update(_bytes(examples.images.numpy()))
    elif isinstance(features, np.ndarray):
        digest.update(_bytes(features))
    else:
        mapped = isinstance(features, MappedMatrix)
        names = ("offsets", "columns", "values") if mapped else ("indptr", "indices", "data")
        for name in names:
            digest.update(_bytes(getattr(features, name)))
    if sample_weight is not None:
        digest.update(_bytes(sample_weight.double().numpy()))
    return digest.hexdigest()


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of an array, which is not copied if it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
