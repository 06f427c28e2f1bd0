"""Parquet, read by pyarrow in record batches and only the columns that are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from manyhot.data.examples import Examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import ProblemLog, missing_package
from manyhot.data.options import ReadOptions
from manyhot.data.tables.column_kinds import SAMPLE_ROWS
from manyhot.data.tables.table import TableExamples, columns_of

BATCH_ROWS = 8192


def read_parquet(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """All rows of a Parquet file; a problem's line is the row, counted from 1."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing_package("Reading Parquet", "pyarrow", file=file.name) from None
    try:
        opened = pyarrow.parquet.ParquetFile(
            file.name if file.compression is None and file.name != "-" else pyarrow.BufferReader(file.read())
        )
        names = opened.schema_arrow.names
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise problems.fatal("column names must differ; this one is there twice. Rename it.", column=twice)
        sample = next(opened.iter_batches(batch_size=SAMPLE_ROWS), None)
        if sample is None or not sample.num_rows:
            raise problems.fatal("must hold at least one row; it holds none.")
        columns = columns_of({name: sample.column(name).to_pylist() for name in names}, options, problems)
        wanted = {*columns.text, *columns.features, *columns.label_columns, columns.labels, columns.ids, columns.unknown}
        table = TableExamples(columns, options, problems, "parquet")
        used = [name for name in names if name in wanted]
        table.extend(chain.from_iterable(_rows(opened.iter_batches(batch_size=BATCH_ROWS, columns=used))))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise problems.fatal(f"could not be read as Parquet ({error}). Is the file whole?") from None
    return table.finish()


def _rows(batches: Iterator[Any]) -> Iterator[Iterator[tuple[int, Mapping[str, Any]]]]:
    row = 1
    for batch in batches:
        names = batch.schema.names
        cells = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        yield ((row + place, dict(zip(names, values, strict=True))) for place, values in enumerate(cells))
        row += batch.num_rows
