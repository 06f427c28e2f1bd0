"""``compare``: compare losses on files of examples."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from manyhot._files import make_folder, write_json, write_whole
from manyhot.comparison.grid import Progress, run_grid
from manyhot.comparison.methods import DEFAULT_LOSSES, parse_methods
from manyhot.comparison.plan import Plan
from manyhot.comparison.records import PLAN, STATISTICS, TABLE
from manyhot.comparison.sets import pair_files
from manyhot.comparison.settings import COMPARED_MODELS, CompareSettings
from manyhot.comparison.statistics import summarise
from manyhot.comparison.table import comparison_text


def compare(
    files: str | Path | Sequence[str | Path],
    losses: Sequence[str] = DEFAULT_LOSSES,
    settings: CompareSettings | None = None,
    *,
    models: Sequence[str] = COMPARED_MODELS,
    seeds: int = 5,
    reference: str | None = None,
    reading: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    workers: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Compare losses on your data: the same body, splits, budget and early stopping for all.

    Args:
        files: data sets. Two files whose names differ only in ``train`` and ``test`` are one set; the rows of other files are
            split.
        losses: names of the catalog, or ``powerset``; options follow a ``+``, as in ``zlpr+smoothing``.
        settings: the budget; None for the defaults.
        models: bodies, ``linear`` and ``mlp``.
        seeds: the number of seeds, for splits, initial weights and the order of rows.
        reference: the loss that the others are compared with; None for zlpr, or the first one if zlpr is not among them.
        reading: arguments of ``read_examples``.
        folder: the folder for results. Every cell is saved when it finishes, and an existing comparison is resumed. None saves
            nothing.
        workers: the number of processes.
        progress: called after every job.

    Returns:
        The statistics: values, ranks and tests by metric and decision rule, as in ``statistics.json``.

    Raises:
        ValueError: if a cell failed, with the first error.

    Example:
        >>> rows = ['{"text": "salt the water", "labels": ["salt"]}', '{"text": "slice bread", "labels": ["bread"]}'] * 20
        >>> with tempfile.TemporaryDirectory() as place:
        ...     file = Path(place) / "rows.jsonl"
        ...     _ = file.write_text("\\n".join(rows))
        ...     budget = CompareSettings(trials=1, epochs=2)
        ...     found = compare(file, ["zlpr", "bce"], budget, models=["linear"], seeds=1)
        >>> found["methods"]
        ['zlpr', 'bce']
    """
    listed = [files] if isinstance(files, (str, Path)) else list(files)
    missing = [str(file) for file in listed if not Path(file).is_file()]
    if missing:
        raise ValueError(f"compare: `files` must be files of examples; there is no {missing[0]!r}.")
    plan = plan_comparison(listed, losses, settings, models=models, seeds=seeds, reading=reading)
    chosen = reference_of(plan, reference)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()) if folder is None else folder)
        begin_comparison(plan, place)
        cells, statistics = run_comparison(plan, place, reference=chosen, workers=workers, watch=progress)
        failed = next((cell for cell in cells if "error" in cell), None)
        if failed is not None:
            raise ValueError(f"compare: the cell {failed['key']} failed: {failed['error'].splitlines()[0]}")
    return statistics


def plan_comparison(
    files: Sequence[str | Path],
    losses: Sequence[str],
    settings: CompareSettings | None = None,
    *,
    models: Sequence[str],
    seeds: int,
    reading: Mapping[str, Any] | None = None,
) -> Plan:
    """The plan of a comparison; ValueError if it is invalid."""
    sets = tuple(pair_files([str(Path(file).absolute()) for file in files], dict(reading or {})))
    return Plan(sets, tuple(models), tuple(parse_methods(list(losses))), seeds, settings or CompareSettings())


def reference_of(plan: Plan, given: str | None) -> str:
    """The method that the others are compared with: ``given``, which must be in the plan; otherwise zlpr or the first one."""
    names = [method.name for method in plan.methods]
    if given is None:
        return "zlpr" if "zlpr" in names else names[0]
    if given not in names:
        raise ValueError(f"compare: `reference` must be one of the losses compared, {', '.join(names)}; got {given!r}.")
    return given


def begin_comparison(plan: Plan, folder: Path) -> None:
    """Save the plan in the folder, so that the comparison can be resumed."""
    make_folder(folder)
    write_json(folder / PLAN, plan.to_dict())


def run_comparison(plan: Plan, folder: Path, *, reference: str, **how: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Run the missing cells, and write the statistics and their table.

    Args:
        plan: the plan.
        folder: the folder of its cells.
        reference: the loss that the others are compared with.
        how: further arguments of ``run_grid``.

    Returns:
        All cells, failed ones with an ``error``, and the statistics.
    """
    cells = run_grid(plan, folder, **how)
    statistics = summarise(cells, reference=reference, order=[method.name for method in plan.methods])
    write_json(folder / STATISTICS, statistics)
    write_whole(folder / TABLE, comparison_text(statistics).encode())
    return cells, statistics
