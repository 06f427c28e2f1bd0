r"""ARFF, dense and sparse, with the labels named by MULAN's XML beside it.

liac-arff is only the reference in the tests. On a malformed declaration its pattern for nominal values takes time exponential
in their number (two seconds for 16 values). It reports a bad value without column and value, silently overwrites a column that
occurs twice in a sparse row, and rejects dates.

Every row is first parsed as numbers; a nominal value is its index in the declared list. In a sparse row an omitted value is 0,
which for a nominal attribute means the first value. Then the label columns are split off. A nominal feature with the
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
from manyhot.data.files.problems import ProblemLog
from manyhot.data.formats.arff.header import Attribute, meka_labels, read_header
from manyhot.data.formats.arff.rows import ArffRows
from manyhot.data.formats.arff.split import ArffTable, features_of, labels_of
from manyhot.data.formats.format import FileStart, Format
from manyhot.data.options import ReadOptions
from manyhot.data.tables.columns import listed
from manyhot.data.tables.table import source_of


def read_arff(file: InputFile, options: ReadOptions, problems: ProblemLog) -> Examples:
    """All rows of an ARFF file."""
    lines = file.lines()
    relation, attributes = read_header(lines, problems)
    label_names, chosen = _label_names(file, relation, attributes, options, problems)
    unused = {"label_file": "`labels` or `label_names` names the labels"} if options.labels or options.label_names else {}
    unused |= {"label_names": "`labels` names the labels"} if options.labels else {}
    own = set(label_names)
    label_places = [number for number, attribute in enumerate(attributes) if attribute.name in own]
    inputs = [number for number, attribute in enumerate(attributes) if attribute.name not in own]
    usable = [number for number in inputs if attributes[number].type in ("number", "nominal")]
    strings = [] if usable else [number for number in inputs if attributes[number].type == "string"]
    if not usable and not strings:
        raise problems.fatal("must have attributes that are not labels; it has none of type numeric, nominal or string.")
    rows = ArffRows(attributes, problems, strings=strings)
    table = ArffTable(*rows.read(lines), attributes, problems)
    labels, unknown, bad = labels_of(table, label_places)
    features, feature_names = None, None
    if usable:
        features, feature_names, bad_features = features_of(table, usable)
        bad = np.union1d(bad, bad_features)
    taken = {*usable, *strings}
    chosen["attributes"] = len(inputs)
    chosen["left_out"] = [attributes[number].name for number in inputs if number not in taken]
    chosen["nominal"] = {
        attributes[place].name: list(attributes[place].values)
        for place in usable
        if attributes[place].type == "nominal" and not attributes[place].zero_one
    }
    examples = Examples(
        labels,
        tuple(attributes[number].name for number in label_places),
        texts=rows.texts if strings else None,
        features=features,
        unknown=unknown,
        feature_names=feature_names,
        source=(source_of(problems, "arff", {name: value for name, value in chosen.items() if value}, unused=unused),),
        absent="unknown",
    )
    return examples[np.setdiff1d(np.arange(len(examples)), bad)] if len(bad) else examples


def _label_names(
    file: InputFile, relation: str, attributes: Sequence[Attribute], options: ReadOptions, problems: ProblemLog
) -> tuple[Sequence[str], dict[str, Any]]:
    """The attributes that are labels: named, from a label file, or by MEKA's number; and the entries of ``Source.chosen``."""
    names: Sequence[str] | None = [options.labels] if isinstance(options.labels, str) else options.labels
    names = names or options.label_names
    chosen: dict[str, Any] = {}
    path = options.label_file or (find_mulan_xml(file.name) if names is None and file.name != "-" else None)
    if names is None and path is not None:
        names = names_in_label_file(path, max_expansion=options.max_expansion)
        chosen["label_file"] = str(path)
    if names is None:
        names = meka_labels(relation, list(attributes))
        chosen["labels"] = None if names is None else "-C in the relation's name"
    if names is None:
        if not options.need_labels:
            return [], chosen
        raise problems.fatal(
            "the label attributes are not known; there is no MULAN XML with the file's name beside it."
            " Set `label_file`, or name the attributes with `labels`."
        )
    known = {attribute.name for attribute in attributes}
    for name in names:
        if name not in known and options.need_labels:
            raise problems.fatal(
                f"labels must be attributes; there is no {name!r}.{nearest(name, known)} The attributes are {listed(known)}."
            )
    return [name for name in names if name in known], chosen


def _looks(start: FileStart) -> bool:
    first = next((line.lower() for line in start.lines if not line.startswith("%")), "")
    return first.startswith(("@relation", "@attribute"))


FORMAT = Format(
    name="arff",
    about="ARFF, dense or sparse, labels named by MULAN's XML beside it",
    read=read_arff,
    suffixes=(".arff",),
    takes=("labels", "label_names", "label_file"),
    looks=_looks,
)
