"""Progress of a training run: a bar and one line per epoch on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from manyhot.cli.io.console import messages
from manyhot.cli.io.flags import flags_of, name_flags
from manyhot.cli.io.terminal import printable
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.run.progress import Event
from manyhot.training.spans.settings import SpanSettings

FINAL = "final"
# Messages of a run name settings; they are printed as flags.
SWITCHES = {flag.name: flag.type is bool for kind in (TrainSettings, SpanSettings) for flag in flags_of(kind)}
# If no terminal is attached, a line is printed at least this often, in seconds.
SECONDS_BETWEEN_LINES = 10.0


class Watch:
    """Shows the events of a run on the standard error.

    Args:
        quiet: show nothing.
        title: printed before each line, if there are several runs.
    """

    def __init__(self, *, quiet: bool = False, title: str = "") -> None:
        self.quiet = quiet
        self.title = title
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._shown = time.monotonic()

    def __enter__(self) -> Watch:
        if not self.quiet and messages.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=messages, transient=True)
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if self.quiet:
            return
        fit = str(event.extra.get("fit", FINAL))
        if event.kind in ("epoch", "step") and self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task("", total=event.epochs)
            about = self.title or ("training" if fit == FINAL else fit)
            done = event.epoch if event.kind == "epoch" else event.epoch - 1
            self._bar.update(self._task, description=about, completed=done, total=event.epochs)
        # Fits before the final one only choose and tune settings, so only their last line is shown. Within a long epoch a
        # terminal shows the bar; otherwise a line shows that training continues.
        line = event.line()
        if event.kind == "step":
            shown = self._bar is None
        else:
            quiet_long = self._bar is None and time.monotonic() - self._shown >= SECONDS_BETWEEN_LINES
            shown = event.kind != "epoch" or fit == FINAL or event.epoch == event.epochs or quiet_long
        if line and shown:
            self._shown = time.monotonic()
            before = [self.title] if self.title else []
            before += [fit] if fit != FINAL else []
            messages.print(Text(printable(name_flags(": ".join([*before, line]), SWITCHES))))
