"""svmlight with several labels per row, and the XC repository's format: the same after a line ``rows features labels``.

A line is ``label,label index:value index:value ...``; a row without labels begins with a space. scikit-learn's reader reports
errors without a line number, takes only numbers as labels and refuses columns out of order, which some XC files have.
"""

from __future__ import annotations

import re

from manyhot.data.examples import Examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.formats.format import FileStart, Format, part_as_whole
from manyhot.data.formats.svm_rows import SvmRows
from manyhot.data.options import ReadOptions
from manyhot.data.tables.numbered import MOST_COLUMNS, compact_columns
from manyhot.data.tables.table import source_of

_PAIRS = re.compile(r"[^\s:]*+(?:\s++\d++:[^\s:]++)*+\s*+(?:#.*)?", re.ASCII)
_XC_HEADER = re.compile(r"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*", re.ASCII)


def xc_sizes(line: str) -> tuple[int, int, int] | None:
    """Rows, features and labels from the first line of an XC file, or None if it is not one.

    Example:
        >>> xc_sizes("1500 103 14"), xc_sizes("1,2 3:0.5")
        ((1500, 103, 14), None)
    """
    match = _XC_HEADER.fullmatch(line)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def read_xc(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """All rows of a file in the XC repository's format; feature and label numbers count from 0 and must be lower than the
    header's counts."""
    lines = file.lines()
    first = next(lines, (1, ""))[1]
    sizes = xc_sizes(first)
    if sizes is None:
        raise problems.fatal(f"the first line must be 'rows features labels' in whole numbers; got {shown(first)}.", line=1)
    num_rows, num_features, num_labels = sizes
    for what, count, most in (("features", num_features, MOST_COLUMNS), ("labels", num_labels, options.max_labels)):
        if count > most:
            remedy = " If that is intended, raise `max_labels`." if what == "labels" else ""
            raise problems.fatal(f"there must be at most {most:,} {what}; the header says {count:,}.{remedy}", line=1)
    names = options.label_names or tuple(map(str, range(num_labels)))
    if len(names) != num_labels:
        raise problems.fatal(f"`label_names` must have {num_labels} names, as the header says; got {len(names)}.", line=1)
    rows = SvmRows(problems, width=num_features, names=names)
    rows.read(pair for pair in lines if pair[0] <= num_rows + 1 or pair[1].strip())
    if len(rows.labels) + problems.count != num_rows:
        raise problems.fatal(
            f"the header says {num_rows} rows; there are {len(rows.labels)}. Is the file truncated, or are two files joined?",
            line=1,
        )
    gathered = rows.labels.finish(problems)
    source = source_of(problems, "xc", {"header": list(sizes), "first_index": 0})
    features, feature_names = compact_columns(rows.matrix(num_features, 0))
    return Examples(gathered.labels, gathered.names, features=features, feature_names=feature_names, source=(source,))


def read_svmlight(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """All rows of an svmlight file; features count from 1, as the format says, unless some row has a feature 0."""
    rows = SvmRows(problems, first=options.index_base or 0)
    rows.read(file.lines())
    if not len(rows.labels):
        raise problems.fatal(f"must hold at least one row; it holds none that can be read.{problems.first()}")
    lowest, highest = rows.extent()
    first = options.index_base if options.index_base is not None else 0 if lowest == 0 else 1
    remarks = []
    if options.index_base is None and first == 1:
        remarks.append(
            "Features are counted from 1, because no row has a feature 0. If they are counted from 0, set `index_base=0`."
        )
    gathered = rows.labels.finish(problems, wanted=options.label_names)
    source = source_of(problems, "svmlight", {"first_index": first}, remarks)
    features, feature_names = compact_columns(rows.matrix(max(highest + 1 - first, 0), first))
    return Examples(gathered.labels, gathered.names, features=features, feature_names=feature_names, source=(source,))


def _looks(start: FileStart) -> bool:
    return any(":" in line for line in start.lines) and all(map(_PAIRS.fullmatch, start.lines))


def _looks_like_xc(start: FileStart) -> bool:
    rows = start.lines[1:]
    return xc_sizes(start.lines[0]) is not None and any(":" in row for row in rows) and all(map(_PAIRS.fullmatch, rows))


FORMAT = Format(
    name="svmlight",
    about="label,label index:value index:value ...",
    read=read_svmlight,
    suffixes=(".svmlight", ".libsvm", ".svm"),
    looks=_looks,
    by_lines=True,
    read_part=part_as_whole(read_svmlight),
    takes=("label_names", "index_base"),
)
XC = Format(
    name="xc",
    about="the same after a line 'rows features labels', the format of the XC repository",
    read=read_xc,
    looks=_looks_like_xc,
    takes=("label_names",),
)
