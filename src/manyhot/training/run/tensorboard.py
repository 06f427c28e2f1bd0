"""The numbers of a run as event files for TensorBoard."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from manyhot._files import make_folder, storage_error
from manyhot.training.run.progress import Event

NUMBERS = ("loss", "rows_per_second")


class EventFile:
    """A new event file in a folder; every record is in the file when ``add`` returns.

    Args:
        folder: its folder. Earlier event files of the run stay; TensorBoard reads them together.

    Raises:
        ValueError: if the package tensorboard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2  # type: ignore[import-untyped, unused-ignore]
            from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            raise ValueError(
                "train: `tensorboard` needs the package tensorboard. Install it with: pip install tensorboard"
            ) from None
        self._event, self._summary, self._records = event_pb2.Event, summary_pb2.Summary, RecordWriter
        make_folder(folder)
        # The time first, so that the files of a run that was resumed sort in the order they were written in.
        self.path = folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    def add(self, event: Event) -> None:
        """Write the numbers of an epoch under the name of its fit; other events have none."""
        if event.kind != "epoch":
            return
        fit = str(event.extra.get("fit", "run"))
        numbers = {name: getattr(event, name) for name in NUMBERS}
        numbers |= {event.metric or "value": event.value, "learning_rate": event.extra.get("learning_rate", float("nan"))}
        values = [
            self._summary.Value(tag=f"{fit}/{name}", simple_value=value) for name, value in numbers.items() if value == value
        ]
        self._write(self._event(wall_time=time.time(), step=event.epoch, summary=self._summary(value=values)))

    def _write(self, record: Any) -> None:
        try:
            with self.path.open("ab") as file:
                self._records(file).write(record.SerializeToString())
        except OSError as error:
            raise storage_error(self.path, error) from error
