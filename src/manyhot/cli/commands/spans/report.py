"""Reports of span models: what ``train`` leaves in the run folder, and ``evaluate --report``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from manyhot.cli.commands.report import file_names
from manyhot.data.spans.examples import SpanExamples
from manyhot.training.spans.bundle import TrainedSpanModel


def span_run_reporter(
    folder: Path, files: Mapping[str, Sequence[str]]
) -> Callable[[TrainedSpanModel, SpanExamples | None], None]:
    """What ``train_spans`` calls with the texts it held out, to leave a report in the run folder."""

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
    """Write the report of a span model on texts it was not trained on; the path of its page."""
    from manyhot.report.files import write_report
    from manyhot.report.spans.measure import measure_spans

    return write_report(measure_spans(model, examples, what="test", files=file_names(files)), folder, title=title)
