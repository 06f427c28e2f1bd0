"""``manyhot inspect``: how files are read, with a bar chart of their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import typer

from manyhot.cli.commands.spans.inspect import inspect_spans, show_span_inspection
from manyhot.cli.commands.spans.reading import TaskFlag, checked_task, refuse_span_flags, span_read_flags, span_reading_of
from manyhot.cli.io.console import JsonFlag, bar, number, results, show_json, show_pairs, show_table, show_text
from manyhot.cli.io.reading import FilesArgument, as_typed, read_files, read_flags, reading_of
from manyhot.data.examples import Source
from manyhot.data.files.problems import DataError
from manyhot.data.inspect import Inspection, inspect_examples
from manyhot.data.reading import Reading

SHOWN_LABELS = 20
TestFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--test", help="Test files, to find rows that are also training rows and labels that do not occur in training."
    ),
]


@span_read_flags
@read_flags
def inspect(
    files: FilesArgument,
    *,
    task: TaskFlag = None,
    test: TestFlag = None,
    json: JsonFlag = False,
    reading: dict[str, Any],
    span_reading: dict[str, Any],
) -> None:
    """Show how manyhot reads files of examples, and list their problems.

    The exit code is 1 if rows have problems.
    """
    try:
        if checked_task(task) == "spans":
            marked = inspect_spans(files, test, span_reading_of(reading, span_reading))
            show_json(marked.to_json()) if json else show_span_inspection(marked)
            if marked.num_problems:
                raise typer.Exit(1)
            return
        refuse_span_flags(span_reading)
        chosen = reading_of(reading)
        train = read_files(files, chosen, quiet=True, on_problem="collect")
        like, beside = Reading.of(train).options(labels=True), None
        if test:
            beside = read_files(test, {}, inherited={**like, **chosen}, quiet=True, on_problem="collect")
        found = inspect_examples(train, test=beside)
    except DataError as error:
        if json:
            show_json(_typed({"problems": [error.problem.to_dict()], "num_problems": 1}))
        raise
    if json:
        show_json(_typed(found.to_dict()))
    else:
        show_inspection(found)
    if found.num_problems or (found.test is not None and found.test.num_problems):
        raise typer.Exit(1)


def _typed(told: dict[str, Any]) -> dict[str, Any]:
    """Remarks and problems that name flags instead of arguments; text from the files is unchanged."""
    told = {**told, "remarks": [as_typed(remark) for remark in told["remarks"]]} if "remarks" in told else dict(told)
    told["problems"] = [{**each, "message": as_typed(each["message"])} for each in told.get("problems", ())]
    if isinstance(told.get("test"), dict):
        told["test"] = _typed(told["test"])
    return told


def show_inspection(found: Inspection) -> None:
    """Print the inspection as tables."""
    for source in found.sources:
        _show_source(source)
    _show_numbers(found)
    _show_frequencies(found)
    if found.test is not None:
        show_text()
        show_text("Test part", style="bold")
        for source in found.test.sources:
            _show_source(source)
        _show_numbers(found.test)
    _show_list("Remarks", [as_typed(remark) for remark in found.remarks()])
    problems = [*found.problems, *(() if found.test is None else found.test.problems)][:10]
    total = found.num_problems + (0 if found.test is None else found.test.num_problems)
    _show_list(f"Problems (the first {len(problems)} of {total:,})", [as_typed(str(problem)) for problem in problems])


def _show_source(source: Source) -> None:
    told = [("file", source.path), ("format", source.format)]
    told += [(name.replace("_", " "), _brief(value)) for name, value in source.chosen.items()]
    show_pairs("", told)


def _brief(value: Any, most: int = 6) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        more = f", ... ({len(value):,} in all)" if len(value) > most else ""
        return ", ".join(str(part) for part in value[:most]) + more
    if isinstance(value, Mapping):
        return _brief([f"{name} ({_brief(part)})" for name, part in value.items()])
    if isinstance(value, bool):
        return number(value)
    return "tab" if value == "\t" else str(value)


def _show_numbers(found: Inspection) -> None:
    labels = found.labels
    show_text()
    show_pairs(
        "",
        [
            ("rows", found.rows),
            ("inputs", f"{found.kind}: {_input_words(found.inputs)}"),
            ("labels", labels.labels),
            ("labels per row", f"{labels.cardinality:.3f} on average (density {labels.density:.4g})"),
            ("label sets", f"{labels.distinct_sets:,} different"),
            ("imbalance", f"{labels.imbalance:,.1f} (most frequent over rarest), {labels.mean_imbalance:,.1f} on average"),
        ],
    )


def _input_words(told: Mapping[str, Any]) -> str:
    if "words_mean" in told:
        mean, median, most = (told[f"words_{name}"] for name in ("mean", "median", "most"))
        return f"{mean:,.1f} words on average, median {median:,g}, at most {most:,}"
    return ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in told.items())


def _show_frequencies(found: Inspection) -> None:
    """Print the most frequent labels and, if there are many, a summary of the others."""
    if not found.labels.counts:
        return
    every = np.asarray(found.labels.counts)
    order = np.argsort(-every, kind="stable")
    counts = every[order]
    shown = [(int(every[place]), found.label_names[place]) for place in order[:SHOWN_LABELS].tolist()]
    name_width = min(max(len(name) for _, name in shown), 28)
    most = max(shown[0][0], 1)
    width = max(results.width - name_width - 24, 10)
    show_text()
    rows = [
        (_cut(name, name_width), count, f"{count / max(found.rows, 1):.2%}", bar(count / most, min(width, 40)))
        for count, name in shown
    ]
    show_table(("label", "rows", "share", ""), rows, right=(1, 2), whole=(0, 1, 2, 3))
    if len(counts) > len(shown):
        rest = counts[SHOWN_LABELS:]
        middle = rest[len(rest) // 2]
        show_text(f"and {len(rest):,} more labels with {rest[-1]:,} to {rest[0]:,} rows; half of them have {middle:,} or fewer")


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"


def _show_list(title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    show_text()
    show_text(title, style="bold")
    for line in lines:
        show_text(f"- {line}")
