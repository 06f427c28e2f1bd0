"""Parquet, read by pyarrow in record batches; columns that are not used are not read."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from manyhot.data.examples import Examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import ProblemLog, missing_package
from manyhot.data.files.streams import FREE_BYTES
from manyhot.data.formats.format import TABLE_OPTIONS, Format
from manyhot.data.options import ReadOptions
from manyhot.data.tables.column_kinds import LEAST_ROWS, SAMPLE_CELLS, SAMPLE_ROWS, ColumnKind, column_kind
from manyhot.data.tables.columns import choose_columns
from manyhot.data.tables.table import TableExamples

BATCH_ROWS = 8192
# Up to this many cells are accepted whatever the size of the file.
FREE_CELLS = 2**22


def read_parquet(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """All rows of a Parquet file; a problem's line is the row, counted from 1."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing_package("Reading Parquet", "pyarrow", file=file.name) from None
    try:
        with _source(file) as source:
            opened = pyarrow.parquet.ParquetFile(source)
            return _read(opened, source.seek(0, io.SEEK_END), options, problems)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise problems.fatal(f"could not be read as Parquet ({error}). Is the file complete?") from None


def _source(file: InputFile) -> Any:
    return open(file.name, "rb") if file.on_disk else io.BytesIO(file.read())


def _read(opened: Any, file_bytes: int, options: ReadOptions, problems: ProblemLog) -> Examples:
    # pyarrow rebuilds the schema at every access.
    types = {field.name: field.type for field in opened.schema_arrow}
    names = opened.schema_arrow.names
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise problems.fatal("column names must differ; this one occurs twice. Rename it.", column=twice)
    if not opened.metadata.num_rows:
        raise problems.fatal("must hold at least one row; it holds none.")
    sizes = _column_sizes(opened)
    affordable = max(FREE_BYTES, options.max_expansion * file_bytes)
    readable = [name for name in names if _can_be_read(types[name]) and sizes.get(name, 0) <= affordable]
    kinds = {name: ColumnKind("other") for name in names} | _sampled_kinds(opened, readable)
    columns = choose_columns(kinds, options, problems)
    wanted = columns.used()
    used = [name for name in names if name in wanted]
    _check_used({name: types[name] for name in used}, sizes, affordable, options, problems)
    _check_cells(opened.metadata.num_rows * len(used), affordable, options, problems)
    table = TableExamples(columns, options, problems, "parquet", places={name: place for place, name in enumerate(used)})
    table.extend(chain.from_iterable(_rows(opened.iter_batches(batch_size=BATCH_ROWS, columns=used))))
    return table.finish()


def _column_sizes(opened: Any) -> dict[str, int]:
    """The bytes of each column of the table when they are decompressed."""
    sizes: dict[str, int] = {}
    for group in range(opened.metadata.num_row_groups):
        row_group = opened.metadata.row_group(group)
        for place in range(row_group.num_columns):
            chunk = row_group.column(place)
            name = chunk.path_in_schema.split(".")[0]
            sizes[name] = sizes.get(name, 0) + chunk.total_uncompressed_size
    return sizes


def _can_be_read(kind: Any) -> bool:
    """Whether cells of an arrow type are texts, numbers, lists or objects of them; times and bytes are not."""
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _can_be_read(kind.value_type)
    if types.is_dictionary(kind):
        return _can_be_read(kind.value_type)
    if types.is_struct(kind):
        return all(_can_be_read(kind.field(place).type) for place in range(kind.num_fields))
    plain = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean, types.is_null)
    return any(is_kind(kind) for is_kind in plain)


def _sampled_kinds(opened: Any, names: Sequence[str]) -> dict[str, ColumnKind]:
    if not names:
        return {}
    most = max(LEAST_ROWS, min(SAMPLE_ROWS, SAMPLE_CELLS // len(names)))
    sample = next(opened.iter_batches(batch_size=most, columns=list(names)))
    return {name: column_kind(sample.column(name).to_pylist()) for name in names}


def _check_used(
    types: dict[str, Any], sizes: dict[str, int], affordable: int, options: ReadOptions, problems: ProblemLog
) -> None:
    """Check that the used columns have types that can be read, and sizes in proportion to the file."""
    for name, kind in types.items():
        if not _can_be_read(kind):
            raise problems.fatal(
                f"a column must hold texts, numbers or lists; its type is {kind}. Convert it, or leave it out.", column=name
            )
        if sizes.get(name, 0) > affordable:
            raise problems.fatal(
                f"must not be more than {options.max_expansion} times as large as the file when it is decompressed;"
                f" it would have {sizes[name]:,} bytes. If that is intended, raise `max_expansion`.",
                column=name,
            )


def _check_cells(cells: int, affordable: int, options: ReadOptions, problems: ProblemLog) -> None:
    """Check the number of cells against the size of the file: runs of one value take almost no bytes."""
    if cells > max(FREE_CELLS, affordable // 8 if affordable > FREE_BYTES else 0):
        raise problems.fatal(
            f"must not hold more than {options.max_expansion // 8} cells per byte of the file; it claims {cells:,}."
            " If that is intended, raise `max_expansion`."
        )


def _rows(batches: Iterator[Any]) -> Iterator[Iterator[tuple[int, Sequence[Any]]]]:
    row = 1
    for batch in batches:
        cells = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        yield enumerate(cells, start=row)
        row += batch.num_rows


FORMAT = Format(
    name="parquet",
    about="a Parquet table",
    read=read_parquet,
    suffixes=(".parquet", ".pq"),
    magic=b"PAR1",
    columns=True,
    takes=TABLE_OPTIONS,
)
