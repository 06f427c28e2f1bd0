"""A small good file of every format of the registry, to be harmed."""

import io
import json
import tempfile
from pathlib import Path

import numpy as np

from manyhot.data.mapped.pack import pack
from manyhot.data.options import ReadOptions

ROWS = 24
WORDS = {"eggs": "boil the yolk", "pans": "an iron pan", "bread": "dough and flour"}
ROWS_OF = [(f"{WORDS[name]} number {row}", name) for row in range(ROWS // 3) for name in WORDS]
PEOPLE = [("Ada", "met"), ("Bob", "saw"), ("Eve", "asked")] * (ROWS // 3)


def _jsonl():
    return "".join(json.dumps({"id": row, "text": text, "labels": [name]}) + "\n" for row, (text, name) in enumerate(ROWS_OF))


def _table(delimiter):
    rows = [delimiter.join(("size", "colour", "label_a", "label_b"))]
    rows += [delimiter.join((str(row / 2), ("red", "blue")[row % 2], str(row % 2), str(row % 3 and 1))) for row in range(ROWS)]
    return "\n".join(rows) + "\n"


def _svmlight():
    return "".join(f"{row % 3},{3 + row % 2} 1:0.5 {2 + row % 4}:{row}\n" for row in range(ROWS))


def _arff():
    head = (
        "@relation 'r -C 2'\n@attribute a {0,1}\n@attribute b {0,1}\n@attribute size numeric\n@attribute c {red,'dark blue'}\n"
    )
    rows = (f"{row % 2},{row % 3 and 1},{row / 2},{('red', chr(39) + 'dark blue' + chr(39))[row % 2]}" for row in range(ROWS))
    return head + "@data\n" + "\n".join(rows) + "\n"


def _parquet():
    import pyarrow
    import pyarrow.parquet

    sink = io.BytesIO()
    columns = {"text": [text for text, _ in ROWS_OF], "labels": [[name] for _, name in ROWS_OF], "size": list(range(ROWS))}
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue()


def _npz():
    sink = io.BytesIO()
    places = np.arange(ROWS)
    np.savez_compressed(sink, X=np.stack([places % 2, places / ROWS, places % 3], axis=1), Y=np.eye(3)[places % 3])
    return sink.getvalue()


def _mapped():
    """The files of a folder of packed rows, by name."""
    with tempfile.TemporaryDirectory() as place:
        rows = Path(place) / "rows.jsonl"
        rows.write_text(_jsonl())
        pack([rows], Path(place) / "packed", ReadOptions())
        return {each.name: each.read_bytes() for each in sorted((Path(place) / "packed").iterdir())}


def _spans(row, name, verb):
    text = f"{name} {verb} Bob twice"
    marks = [{"start": 0, "end": len(name), "type": "PER"}, {"start": len(text) - 9, "end": len(text) - 6, "type": "PER"}]
    return {"id": str(row), "text": text, "spans": marks}


def _cluener(record):
    marked = {}
    for span in record["spans"]:
        said = record["text"][span["start"] : span["end"]]
        marked.setdefault(said, []).append([span["start"], span["end"] - 1])
    return {"text": record["text"], "label": {"name": marked}}


RECORDS = [_spans(row, *pair) for row, pair in enumerate(PEOPLE)]
CONLL = "".join(f"{name} B-PER\n{verb} O\nBob B-PER\ntwice O\n\n" for name, verb in PEOPLE)

MAPPED = _mapped()
# (what it holds, name) to the file's suffix and content; brat is made of two files, here its marks, and mapped
# rows of a folder, here what describes it.
SAMPLES = {
    ("labels", "jsonl"): (".jsonl", _jsonl()),
    ("labels", "json"): (".json", "[" + ",\n".join(_jsonl().splitlines()) + "]\n"),
    ("labels", "csv"): (".csv", _table(",")),
    ("labels", "tsv"): (".tsv", _table("\t")),
    ("labels", "parquet"): (".parquet", _parquet()),
    ("labels", "xc"): (".txt", f"{ROWS} 6 5\n{_svmlight()}"),
    ("labels", "svmlight"): (".svm", _svmlight()),
    ("labels", "arff"): (".arff", _arff()),
    ("labels", "fasttext"): (".txt", "".join(f"__label__{name} {text}\n" for text, name in ROWS_OF)),
    ("labels", "text-ids"): (".tsv", "".join(f"{text}\t{row % 3}\tk{row}\n" for row, (text, _) in enumerate(ROWS_OF))),
    ("labels", "libmultilabel"): (".txt", "".join(f"k{row}\t{name}\t{text}\n" for row, (text, name) in enumerate(ROWS_OF))),
    ("labels", "npz"): (".npz", _npz()),
    ("labels", "mapped"): ("", MAPPED["about.json"]),
    ("labels", "text"): (".txt", "".join(f"{text}\n" for text, _ in ROWS_OF)),
    ("spans", "span-jsonl"): (".jsonl", "".join(json.dumps(record) + "\n" for record in RECORDS)),
    ("spans", "span-json"): (".json", json.dumps(RECORDS, indent=1)),
    ("spans", "cluener"): (".json", "".join(json.dumps(_cluener(record)) + "\n" for record in RECORDS)),
    ("spans", "conll"): (".conll", CONLL),
    ("spans", "brat"): (".ann", "T1\tPER 0 3\tAda\nT2\tPER 8 11\tBob\n" * 3),
    ("spans", "text"): (".txt", "".join(f"{record['text']}\n" for record in RECORDS)),
}
BRAT_TEXT = "Ada met Bob twice.\nNobody else came.\n" * 20


def write_mapped(folder, about=MAPPED["about.json"], name="about.json"):
    """Put packed rows into a folder, described by ``about``."""
    folder.mkdir()
    for each, content in MAPPED.items():
        (folder / (name if each == "about.json" else each)).write_bytes(about if each == "about.json" else content)
    return folder


def sample(key):
    """The suffix and the bytes of the good file of a format."""
    suffix, content = SAMPLES[key]
    return suffix, content if isinstance(content, bytes) else content.encode()
