"""Reports of span models, written by ``train`` into the run folder and by ``evaluate --report``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from manyhot.cli.commands.report import file_names
from manyhot.data.spans.examples import SpanExamples
from manyhot.training.spans.bundle import TrainedSpanModel


def span_run_reporter(
    folder: Path, files: Mapping[str, Sequence[str]]
) -> Callable[[TrainedSpanModel, SpanExamples | None], None]:
    """A callback for ``train_spans`` that writes a report on the held-out texts into the run folder."""

    def write(model: TrainedSpanModel, held: SpanExamples | None) -> None:
        # Imported here because reports load slowly, and --help should be fast.
        from manyhot.report.files import write_report
        from manyhot.report.spans.measure import measure_spans

        if held is None or not len(held):
            return
        what, key = ("validation", "validation") if files.get("validation") else ("held out", "train")
        write_report(measure_spans(model, held, what=what, files=file_names(files.get(key, ())), run=folder), folder)

    return write


def report_on_spans(model: TrainedSpanModel, examples: SpanExamples, folder: Path, *, files: Sequence[str], title: str) -> Path:
    """Write the report of a span model on texts it was not trained on; returns the path of its page."""
    from manyhot.report.files import write_report
    from manyhot.report.spans.measure import measure_spans

    return write_report(measure_spans(model, examples, what="test", files=file_names(files)), folder, title=title)
