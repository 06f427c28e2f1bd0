r"""ARFF, dense and sparse, with the labels named by MULAN's XML beside it.

Parsed by hand rather than with liac-arff, which is the oracle in the tests: its pattern for nominal values takes time
exponential in their number on a declaration that is not well formed (two seconds for 16 values), a bad value is reported
without column and value, a column repeated in a sparse row is overwritten in silence, and dates are refused.

Every row is first a row of numbers, with a nominal value as its place in the declared list: in a sparse row what is left out is
0, which for a nominal attribute means the first value. Then the columns of labels are split off. A nominal feature with the
values {0,1} stays one column; other nominal features become one 0/1 column per declared value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from manyhot._suggest import nearest
from manyhot.data.examples import Examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.label_files import find_mulan_xml, names_in_label_file
from manyhot.data.files.problems import ProblemLog, shown
from manyhot.data.formats.arff.header import Attribute, meka_labels, read_header
from manyhot.data.formats.arff.rows import ArffRows
from manyhot.data.options import ReadOptions
from manyhot.data.tables.columns import listed
from manyhot.data.tables.reorder import index_lists
from manyhot.data.tables.table import source_of

Array = np.ndarray[Any, Any]


def read_arff(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """All rows of an ARFF file."""
    lines = file.lines()
    relation, attributes = read_header(lines, problems)
    label_names, chosen = _label_names(file, relation, attributes, options, problems)
    place = {attribute.name: number for number, attribute in enumerate(attributes)}
    label_places = sorted(place[name] for name in label_names)
    texts: list[str] | None = None
    inputs = [number for number in range(len(attributes)) if number not in set(label_places)]
    usable = [number for number in inputs if attributes[number].type in ("number", "nominal")]
    rows = ArffRows(attributes, problems, strings=[] if usable else [n for n in inputs if attributes[n].type == "string"])
    matrix, numbers = rows.read(lines)
    chosen["attributes"] = len(inputs)
    chosen["left_out"] = [attributes[number].name for number in inputs if number not in usable and number not in rows.strings]
    labels, unknown = _labels(matrix, label_places, attributes, numbers, problems, sparse=rows.sparse)
    if usable:
        features, feature_names = _features(matrix, usable, attributes, numbers, problems, sparse=rows.sparse)
    else:
        texts, features, feature_names = rows.texts, None, None
        if not rows.strings:
            raise problems.fatal("must have attributes that are not labels; it has none of type numeric, nominal or string.")
    return Examples(
        labels,
        tuple(attributes[number].name for number in label_places),
        texts=texts,
        features=features,
        unknown=unknown,
        feature_names=feature_names,
        source=(source_of(problems, "arff", {name: value for name, value in chosen.items() if value}),),
        absent="unknown",
    )


def _label_names(
    file: InputFile, relation: str, attributes: Sequence[Attribute], options: ReadOptions, problems: ProblemLog
) -> tuple[Sequence[str], dict[str, Any]]:
    """The attributes that are labels: named, in a label file, or by MEKA's number; and what was chosen."""
    names: Sequence[str] | None = [options.labels] if isinstance(options.labels, str) else options.labels
    names = names or options.label_names
    chosen: dict[str, Any] = {}
    path = options.label_file or (find_mulan_xml(file.name) if names is None and file.name != "-" else None)
    if names is None and path is not None:
        names = names_in_label_file(path)
        chosen["label_file"] = str(path)
    if names is None:
        names = meka_labels(relation, list(attributes))
        chosen["labels"] = None if names is None else "-C in the relation's name"
    if names is None:
        if not options.need_labels:
            return [], chosen
        raise problems.fatal(
            "which attributes are labels must be said; there is no MULAN XML of the file's name beside it."
            " Give `label_file`, or name the attributes with `labels`."
        )
    known = {attribute.name for attribute in attributes}
    for name in names:
        if name not in known and options.need_labels:
            raise problems.fatal(
                f"labels must be attributes; there is no {name!r}.{nearest(name, known)} The attributes are {listed(known)}."
            )
    return [name for name in names if name in known], chosen


def _labels(
    matrix: Any,
    places: Sequence[int],
    attributes: Sequence[Attribute],
    lines: Sequence[int],
    problems: ProblemLog,
    *,
    sparse: bool,
) -> tuple[Any, Any]:
    """Labels and what is unknown of them."""
    part = matrix[:, places].tocoo() if sparse else matrix[:, places]
    rows, columns = (part.row.astype(np.int64), part.col.astype(np.int64)) if sparse else np.indices(part.shape).reshape(2, -1)
    values = part.data if sparse else part.reshape(-1)
    meaning = np.zeros((len(places), 2))
    for number, place in enumerate(places):
        attribute = attributes[place]
        truth = [False, True] if attribute.type == "number" else attribute.truth
        if truth is None or (sparse and truth[:1] == [True]):
            what = "whose first value is the negative one in a sparse file" if truth else "with the values 0 and 1"
            raise problems.fatal(
                f"a label must be an attribute {what}; got {shown('{' + ','.join(attribute.values) + '}')}.",
                line=attribute.line,
                column=attribute.name,
            )
        meaning[number, : len(truth)] = truth[:2]
    wrong = ~(np.isnan(values) | (values == 0) | (values == 1))
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise problems.fatal(
            f"a label must be 0 or 1, or ? where it is not known; got {values[first]:g}.",
            line=lines[int(rows[first])],
            column=attributes[places[int(columns[first])]].name,
        )
    missing = np.isnan(values)
    positive = ~missing & (meaning[columns, np.where(missing, 0, values).astype(np.int64)] > 0)
    shape = (matrix.shape[0], len(places))
    unknown = index_lists(rows[missing], columns[missing], shape) if missing.any() else None
    return index_lists(rows[positive], columns[positive], shape), unknown


def _features(
    matrix: Any,
    places: Sequence[int],
    attributes: Sequence[Attribute],
    lines: Sequence[int],
    problems: ProblemLog,
    *,
    sparse: bool,
) -> tuple[Any, tuple[str, ...]]:
    """Feature columns, with one column per value of the nominal ones that are not {0,1}."""
    simple = [place for place in places if attributes[place].type == "number" or attributes[place].zero_one]
    blocks: list[Any] = [matrix[:, simple]]
    names = [attributes[place].name for place in simple]
    values = blocks[0].data if sparse else blocks[0]
    if np.isinf(values).any():
        raise problems.fatal("features must be finite numbers; one is infinite. Mark missing values with ?.")
    for place in places:
        attribute = attributes[place]
        if attribute.type == "nominal" and not attribute.zero_one:
            codes = matrix[:, [place]].toarray() if sparse else matrix[:, [place]]
            blocks.append(codes == np.arange(len(attribute.values)))
            names += [f"{attribute.name}={value}" for value in attribute.values]
    if not sparse:
        zero_one = [column for column, place in enumerate(simple) if attributes[place].zero_one]
        _check_zero_one(blocks[0], zero_one, [names[column] for column in zero_one], lines, problems)
        return np.concatenate(blocks, axis=1).astype(np.float32), tuple(names)
    from scipy.sparse import csr_matrix, hstack

    stacked = hstack([csr_matrix(block, dtype=np.float32) for block in blocks], format="csr") if len(blocks) > 1 else blocks[0]
    stacked.eliminate_zeros()
    return stacked.astype(np.float32), tuple(names)


def _check_zero_one(
    block: Array, columns: Sequence[int], names: Sequence[str], lines: Sequence[int], problems: ProblemLog
) -> None:
    """Where whole rows were read as numbers, {0,1} attributes have not been held against their declaration yet."""
    part = block[:, columns]
    wrong = np.argwhere(~(np.isnan(part) | (part == 0) | (part == 1)))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise problems.fatal(
            f"the value must be one of {{0,1}}, or ? where it is missing; got {part[row, column]:g}.",
            line=lines[row],
            column=names[column],
        )
