"""Harm that only some formats can do: sizes that are claimed, wide tables, bombs inside archives, odd cells.

``SPECIAL[(holds, format)]`` maps a case's name to a function that writes the file into a folder and returns its path.
"""

import gzip
import io
import json
import struct
import zipfile

import numpy as np

from data.hostile.harms import newlines_gz, zeros_gz
from data.hostile.samples import BRAT_TEXT, RECORDS, ROWS_OF

HUGE = (10**8, 10**9, 2**31 - 2, 2**31, 10**15)


def text(name, content):
    """A case that writes one file."""

    def write(folder):
        path = folder / name
        path.write_bytes(content() if callable(content) else content.encode())
        return path

    return write


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def feature_rows(cells):
    """JSON lines whose rows have these features in turn."""
    return lines({"features": cells[row % len(cells)], "labels": ["ab"[row % 2]]} for row in range(24))


def label_rows(labels):
    return lines({"text": content, "labels": labels[row % len(labels)]} for row, (content, _) in enumerate(ROWS_OF))


def many_labels_a_row():
    names = [f"l{number}" for number in range(10_000)]
    return lines({"text": f"row {row} here", "labels": names} for row in range(60)).encode()


def unknown_rows_and_many_labels():
    first = {"text": "one row", "labels": [f"l{number}" for number in range(100_000)]}
    return lines([first, *({"text": f"row {row}", "labels": None} for row in range(2000))]).encode()


JSONL = {
    f"an index of {index}": text(
        "a.jsonl", feature_rows([{"indices": [0, index], "values": [1, 2]}, {"indices": [1], "values": [1]}])
    )
    for index in HUGE
}
JSONL |= {
    "an index of 1.7": text("a.jsonl", feature_rows([{"indices": [0, 1.7], "values": [1, 2]}])),
    "an index below 0": text("a.jsonl", feature_rows([{"indices": [-1, 2], "values": [1, 2]}])),
    "rows without a feature": text("a.jsonl", feature_rows([[]])),
    "objects without a feature": text("a.jsonl", feature_rows([{}])),
    "indices without a feature": text("a.jsonl", feature_rows([{"indices": [], "values": []}])),
    "one row of features": text("a.jsonl", feature_rows([[], [1.0]])),
    "an infinite feature": text("a.jsonl", feature_rows([{"x": 1}, {"x": 2}]).replace('"x": 2', '"x": 1e400')),
    "NaN features": text("a.jsonl", feature_rows([[float("nan")]])),
    "a soft label of 2": text("a.jsonl", label_rows([{"a": 0.5}, {"a": 2}])),
    "an unknown label that is null": text("a.jsonl", label_rows([["a"], ["b"]]).replace("}", ', "unknown": [null]}')),
    "labels of every kind": text("a.jsonl", label_rows([["a"], "b", 3, None, {"c": 1}, [None], [[]], True, 1.5])),
    "numbers of 20 digits as labels": text("a.jsonl", label_rows([[10**19], [10**20 + 1]])),
    "no labels at all": text("a.jsonl", label_rows([[]])),
    "10,000 labels a row": text("a.jsonl", many_labels_a_row),
    "2,000 unknown rows and 100,000 labels": text("a.jsonl", unknown_rows_and_many_labels),
    "5,000 keys a row": text("a.jsonl", lines({f"k{n}": n % 3 for n in range(5000)} | {"labels": ["a"]} for _ in range(30))),
    "an array": text("a.json", json.dumps([{"text": content, "labels": [name]} for content, name in ROWS_OF], indent=1)),
    "objects inside a text": text("a.jsonl", lines({"text": {"a": [1]}, "labels": ["x"]} for _ in range(5))),
    "a MB of empty lists": text("a.jsonl", '{"text": "a b", "labels": [' + "[]," * 300_000 + "[]]}\n"),
}


def wide(columns, rows):
    """A table of 0 and 1 with this many columns of labels beside two features."""
    head = "size,width," + ",".join(f"label_{number}" for number in range(columns))
    body = [f"{row},{row % 3}," + ",".join("01"[(row * column) % 3 == 1] for column in range(columns)) for row in range(rows)]
    return head + "\n" + "\n".join(body) + "\n"


def wide_features(columns, rows):
    head = ",".join(f"f{number}" for number in range(columns)) + ",label_a"
    return head + "\n" + "".join(",".join(["1.5"] * columns) + f",{row % 2}\n" for row in range(rows))


def many_names():
    rows = [f"{row},name{row % 30_000},{row % 2}" for row in range(60_000)]
    return ("size,name,label_a\n" + "\n".join(rows) + "\n").encode()


ODD = "text,toxic,mild\n" + "some words here,1,0\nother words there,0,1\n" * 100
CSV = {
    "40,000 columns": text("a.csv", wide_features(40_000, 3)),
    "20,000 columns of labels": text("a.csv", wide(20_000, 30)),
    "30,000 names in a column": text("a.csv", many_names),
    "a 2 among labels": text("a.csv", ODD + "odd words here,2,0\n"),
    "a word among labels": text("a.csv", ODD + "odd words here,maybe,0\n"),
    "an open list among lists": text("a.csv", "text,tags\n" + "some words,\"['x', 'y']\"\n" * 30 + "more words,['x'\n"),
    "formulas": text("a.csv", "text,tags\n" + '=cmd|x,"=1+1"\n@a b,-x\n' * 12),
    "no header": text("a.csv", "".join(f"{content},{name}\n" for content, name in ROWS_OF)),
    "infinite features": text("a.csv", "size,label_a\n" + "1,0\n1e39,1\n" * 12),
    "soft labels": text("a.csv", "text,x,y\n" + "some words,0.3,0\nother words,0.9,1\n" * 12),
    "names that are the same": text("a.csv", "text," + ",".join(["x"] * 3000) + "\na b," + ",".join("1" * 3000) + "\n"),
    "an empty header": text("a.csv", ",,\n1,2,3\n"),
    "a list bomb": text("a.csv", "text,tags\n" + 'some words,"' + "[" * 5000 + '"\n' * 2),
}


def svm(index):
    return "".join(f"{row % 2} 1:1 {index}:1\n" for row in range(24))


SVMLIGHT = {f"an index of {index}": text("a.svm", svm(index)) for index in (*HUGE, 10**19, -1, "1.7", "x", "")}
SVMLIGHT |= {
    "no feature": text("a.svm", "1 \n2 \n" * 12),
    "a value of 1e39": text("a.svm", "1 1:1e39\n2 2:1\n" * 12),
    "a control character": text("a.svm", "1 1:1\n1 2:\x01\n"),
    "100,000 labels in a row": text("a.svm", ",".join(map(str, range(100_000))) + " 1:1\n" + "1 2:1\n" * 12),
    "a label of 20 digits": text("a.svm", "99999999999999999999 1:1\n1 2:1\n" * 12),
}
XC = {
    f"a header of {rows} {features} {labels}": text("a.txt", f"{rows} {features} {labels}\n" + "0,1 0:1 3:1\n1 1:1\n" * 12)
    for rows, features, labels in [
        (24, 10, 10**8),
        (24, 10, 10**15),
        (24, 10**8, 3),
        (24, 2**31 - 2, 3),
        (24, 10**15, 3),
        (10**15, 10, 3),
        (0, 10, 3),
        (24, 0, 0),
        (24, 10, 2),
        (24, 10, 5 * 10**5),
    ]
}


def arff(attributes, rows, relation="r -C 1"):
    return (
        f"@relation '{relation}'\n"
        + "".join(f"@attribute {each}\n" for each in attributes)
        + "@data\n"
        + "\n".join(rows)
        + "\n"
    )


def arff_beside_xml(content, xml, name="a.xml"):
    def write(folder):
        (folder / name).write_bytes(xml)
        (folder / "a.arff").write_text(content)
        return folder / "a.arff"

    return write


LABELLED = ["l {0,1}", "f numeric"]
NAMES_20000 = [f"l{number} {{0,1}}" for number in range(20_000)]
LAUGHS = (
    b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
    + b']><labels><label name="&j;"/></labels>'
)
ARFF = {
    "blanks in a value": text("a.arff", arff(["l {0,1}", "c {a,b}"], ["1,a" + " " * 60_000 + "'", "0,b"])),
    "blanks in a declaration": text("a.arff", arff(["l {0,1}", "c {" + "a" + " " * 60_000 + "'}"], ["1,a"])),
    "blanks before a type": text("a.arff", arff(["l {0,1}", "c" + " " * 60_000 + "{"], ["1,a"])),
    "blanks before a name": text("a.arff", arff(["l {0,1}", " " * 60_000], ["1,a"])),
    "20,000 labels": text(
        "a.arff", arff([*NAMES_20000, "f numeric"], ["0," * 20_000 + "1.5", "1," * 20_000 + "2"] * 3, "r -C 20000")
    ),
    "20,000 names that the XML has": arff_beside_xml(
        arff([*NAMES_20000, "f numeric"], ["{0 1,20000 2}", "{5 1}"] * 12, "r"),
        b"<labels>" + b"".join(b'<label name="l%d"/>' % n for n in range(20_000)) + b"</labels>",
    ),
    "30,000 nominal values": text(
        "a.arff",
        arff(["l {0,1}", "c {" + ",".join(f"v{n}" for n in range(30_000)) + "}"], [f"{n % 2},v{n}" for n in range(3000)]),
    ),
    "nominal values in sparse rows": text(
        "a.arff",
        arff(
            ["l {0,1}", "c {" + ",".join(f"v{n}" for n in range(30_000)) + "}"], [f"{{0 {n % 2},1 v{n}}}" for n in range(3000)]
        ),
    ),
    "a number of 1e39": text("a.arff", arff(LABELLED, ["1,1e39", "0,2"] * 12)),
    "a number of 20 digits": text("a.arff", arff(LABELLED, ["{99999999999999999999 1}"])),
    "a number of 5,000 digits": text("a.arff", arff(LABELLED, ["{" + "9" * 5000 + " 1}"])),
    "a label of 7": text("a.arff", arff(["l numeric", "f numeric"], ["1,2", "7,2"] * 12)),
    "labels alone": text("a.arff", arff(["l {0,1}", "m {0,1}"], ["1,0"] * 12, "r -C 2")),
    "a date": text("a.arff", arff(["l {0,1}", "d date"], ["1,2020", "0,2021"] * 12)),
    "an XML bomb": arff_beside_xml(arff(LABELLED, ["1,2"], "r"), LAUGHS),
    "a compressed XML bomb": arff_beside_xml(
        arff(LABELLED, ["1,2"], "r"), gzip.compress(b"<labels>" + b" " * (40 * 2**20) + b"</labels>", 9)
    ),
    "a deep XML": arff_beside_xml(arff(LABELLED, ["1,2"], "r"), b"<labels>" * 50_000),
    "20,000 declarations of one name": text("a.arff", arff([*LABELLED, *["x numeric"] * 20_000], ["1,2"])),
}
FASTTEXT = {
    "100,000 labels in a line": text(
        "a.txt", " ".join(f"__label__{n}" for n in range(100_000)) + " a b\n" + "__label__1 c d\n" * 12
    ),
    "a prefix alone": text("a.txt", "__label__ a b\n__label__x c d\n" * 12),
    "labels without words": text("a.txt", "__label__a\n__label__b\n" * 12),
}
TABBED = {
    "numbers of 20 digits": text("a.tsv", "some words here\t99999999999999999999\tk\nmore words there\t1\tk\n" * 12),
    "100,000 numbers": text(
        "a.tsv", "some words here\t" + ",".join(map(str, range(100_000))) + "\tk\n" + "more words\t1\tk\n" * 12
    ),
    "names beside that are a bomb": lambda folder: (
        (folder / "labels.txt").write_bytes(zeros_gz()),
        text("train.tsv", "some words here\t0\tk\nmore words there\t1\tk\n" * 12)(folder),
    )[1],
}


def archive(members, compressed=True):
    """An .npz with these raw members."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return sink.getvalue()


def npy(shape, kind="<f8", content=b"", order=False):
    """An array file whose header claims ``shape``."""
    head = repr({"descr": kind, "fortran_order": order, "shape": shape}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + content


def saved(**arrays):
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    return sink.getvalue()


def matrix(kind, shape, **arrays):
    """A scipy matrix file that claims ``shape``."""
    made = {"format": np.asarray(kind.encode()), "shape": np.asarray(shape)}
    return saved(**made, **arrays)


TWO = {"data": np.ones(2), "indices": np.asarray([0, 1]), "indptr": np.asarray([0, 1, 2])}


def npz_pair(features, labels):
    def write(folder):
        (folder / "Y.npz").write_bytes(labels)
        (folder / "X.npz").write_bytes(features)
        return folder / "X.npz"

    return write


def npz(content):
    return text("a.npz", lambda: content() if callable(content) else content)


EYE = np.eye(24)
NPZ = {
    "a claim of 8 TB": npz(archive({"X": npy((10**6, 10**6)), "Y": npy((10**6, 2))})),
    "a claim below 0": npz(archive({"X": npy((-1, -1)), "Y": npy((2, 2))})),
    "a bomb of zeros": npz(
        lambda: archive({"X": npy((2 * 2**20, 8), content=bytes(2**27)), "Y": npy((2 * 2**20, 1), "|u1", bytes(2**21))})
    ),
    "objects": npz(lambda: saved(X=np.asarray([{"a": 1}] * 24, dtype=object), Y=EYE)),
    "an unknown type": npz(archive({"X": npy((2, 2), "|V8", bytes(32)), "Y": npy((2, 2), content=bytes(32))})),
    "features of width 0": npz(saved(X=np.zeros((24, 0)), Y=EYE)),
    "labels of width 0": npz(saved(X=EYE, Y=np.zeros((24, 0)))),
    "no row": npz(saved(X=np.zeros((0, 3)), Y=np.zeros((0, 2)))),
    "infinite features": npz(saved(X=EYE * 1e300, Y=EYE)),
    "labels of 7": npz(saved(X=EYE, Y=EYE * 7)),
    "texts": npz(saved(X=np.asarray([["a"]] * 24), Y=EYE)),
    "three axes": npz(saved(X=np.zeros((24, 2, 2)), Y=EYE)),
    "complex numbers": npz(saved(X=EYE + 1j, Y=EYE)),
    "a header of garbage": npz(archive({"X": b"\x93NUMPY\x01\x00\xff\xffxxxx", "Y": b"no"})),
    "an empty archive": npz(archive({})),
    "half a million labels": npz_pair(matrix("csr", (2, 5), **TWO), matrix("csr", (2, 5 * 10**5), **TWO)),
    "a wide matrix": npz_pair(matrix("csr", (2, 2**31 - 2), **TWO), matrix("csr", (2, 3), **TWO)),
    "10^12 labels": npz_pair(matrix("csr", (2, 5), **TWO), matrix("csr", (2, 10**12), **TWO)),
    "10^12 rows by columns": npz_pair(matrix("csc", (10**12, 2), **TWO), matrix("csr", (2, 3), **TWO)),
    "10^12 columns by columns": npz_pair(matrix("csc", (2, 10**12), **TWO), matrix("csr", (2, 3), **TWO)),
    "10^12 rows by entries": npz_pair(
        matrix("coo", (10**12, 2), data=np.ones(1), row=np.asarray([5]), col=np.asarray([0])), matrix("csr", (2, 3), **TWO)
    ),
    "index pointers that fall": npz_pair(
        matrix("csr", (2, 5), **(TWO | {"indptr": np.asarray([0, 9, 2])})), matrix("csr", (2, 3), **TWO)
    ),
    "indices beyond": npz_pair(matrix("csr", (2, 5), **(TWO | {"indices": np.asarray([0, 99])})), matrix("csr", (2, 3), **TWO)),
    "diagonals": npz_pair(matrix("dia", (2, 5), data=np.ones((1, 5)), offsets=np.asarray([0])), matrix("csr", (2, 3), **TWO)),
}


def table(columns, **how):
    def content():
        import pyarrow
        import pyarrow.parquet

        sink = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns(pyarrow)), sink, **how)
        return sink.getvalue()

    return text("a.parquet", content)


BASE = {"text": [content for content, _ in ROWS_OF], "labels": [[name] for _, name in ROWS_OF]}
PARQUET = {
    "a time out of range": table(lambda pa: BASE | {"when": pa.array([2**62] * 24, pa.timestamp("us"))}),
    "a time that is asked for": table(lambda pa: {"text": BASE["text"], "labels": pa.array([2**62] * 24, pa.timestamp("us"))}),
    "bytes": table(lambda pa: BASE | {"id": pa.array([b"\xff\xfe"] * 24)}),
    "a column nobody asks for that is a bomb": table(
        lambda pa: BASE | {"big": pa.array(["\0" * 2**22] * 24)}, use_dictionary=False, compression="gzip", compression_level=9
    ),
    "a text that is a bomb": table(
        lambda pa: {"text": pa.array(["\0" * 2**22] * 24), "labels": BASE["labels"]},
        use_dictionary=False,
        compression="gzip",
        compression_level=9,
    ),
    "ten million rows of nothing": table(
        lambda pa: {"text": pa.nulls(10**7, pa.string()), "label_a": pa.nulls(10**7, pa.bool_())}
    ),
    "maps and structures": table(
        lambda pa: BASE | {"m": pa.array([[("a", 1)]] * 24, pa.map_(pa.string(), pa.int64())), "s": [{"a": {"b": 1}}] * 24}
    ),
    "decimals": table(lambda pa: BASE | {"d": pa.array([1] * 24).cast(pa.decimal128(30, 2))}),
    "no row": table(lambda pa: {"text": pa.array([], pa.string()), "labels": pa.array([], pa.list_(pa.string()))}),
    "3,000 columns": table(lambda _: {f"label_{n}": [n % 2] * 24 for n in range(3000)} | {"text": BASE["text"]}),
    "infinite features": table(lambda _: {"f": [float("inf"), 1.0] * 12, "label_a": [0, 1] * 12}),
    "vectors of no width": table(
        lambda pa: {"features": pa.array([[]] * 24, pa.list_(pa.float64())), "labels": BASE["labels"]}
    ),
}


def span_lines(rows):
    return lines(rows)


def marked(marks):
    return lines([*RECORDS, {"text": "Ada met Bob", "spans": marks}])


LONG_TEXT = "Ada met Bob twice and left. " * 8000
SPAN_JSONL = {
    "a very long text": text(
        "a.jsonl", lines([*RECORDS, {"text": LONG_TEXT, "spans": [{"start": 0, "end": 3, "type": "PER"}]}])
    ),
    "20,000 spans of one text": text(
        "a.jsonl", lines([{"text": LONG_TEXT, "spans": [[n, n + 2 + n % 3, "PER"] for n in range(20_000)]}, *RECORDS])
    ),
    "10,000 types": text("a.jsonl", lines({"text": "Ada met Bob", "spans": [[0, 3, f"t{n}"]]} for n in range(10_000))),
    "a span that ends before it begins": text("a.jsonl", marked([[3, 0, "PER"]])),
    "a span of 20 digits": text("a.jsonl", marked([[0, 10**19, "PER"]])),
    "a span below 0": text("a.jsonl", marked([[-5, -1, "PER"]])),
    "a span of 1.5": text("a.jsonl", marked([[0, 1.5, "PER"]])),
    "a span that is true": text("a.jsonl", marked([[True, 3, "PER"]])),
    "a type that is a list": text("a.jsonl", marked([[0, 3, ["a", "b"]]])),
    "spans that are names": text("a.jsonl", marked(["a", "b"])),
    "spans that are null": text("a.jsonl", marked(None)),
    "tokens that overlap": text(
        "a.jsonl", lines({**row, "tokens": [{"start": 0, "end": 3}, {"start": 1, "end": 4}]} for row in RECORDS)
    ),
    "an empty text": text("a.jsonl", lines([*RECORDS, {"text": "", "spans": []}])),
    "empty texts alone": text("a.jsonl", lines({"text": "", "spans": []} for _ in range(9))),
    "blanks alone": text("a.jsonl", lines({"text": "  ", "spans": [[0, 1, "X"]]} for _ in range(9))),
}
TOKEN = "Ada B-PER\nmet O\nBob B-PER\n\n" * 9
CONLL = {
    "a bad tag": text("a.conll", TOKEN + "Eve X-PER\nran O\n\n"),
    "bad tags alone": text("a.conll", "Ada PER\nmet NO\n\n" * 9),
    "an entity that does not begin": text("a.conll", TOKEN + "Eve I-PER\n\n"),
    "an entity that does not end": text("a.conll", TOKEN.replace("B-PER", "S-PER") + "Eve B-PER\nran O\n\n"),
    "a sentence of 50,000 tokens": text("a.conll", TOKEN + "Ada B-PER\nmet O\n" * 25_000),
    "10,000 columns": text("a.conll", TOKEN + "Ada " + "x " * 10_000 + "O\n\n"),
    "no tag": text("a.conll", TOKEN + "Eve\n\n"),
    "a type of 1 MB": text("a.conll", TOKEN + "Eve B-" + "x" * 2**20 + "\n\n"),
}


def brat(marks, content=BRAT_TEXT, *, name="a", more=()):
    def write(path):
        folder = path / "brat"
        folder.mkdir()
        if content is not None:
            (folder / f"{name}.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
        if marks is not None:
            (folder / f"{name}.ann").write_bytes(marks if isinstance(marks, bytes) else marks.encode())
        for other, inside in more:
            (folder / other).write_bytes(inside() if callable(inside) else inside)
        return folder

    return write


MARK = "T1\tPER 0 3\tAda\n"
BRAT = {
    "no text": brat(MARK, None),
    "no marks": brat(None),
    "a mark beyond the text": brat("T1\tPER 0 99999999\tAda\n"),
    "a mark of 20 digits": brat(f"T1\tPER 0 {10**19}\tAda\n"),
    "a mark of 5,000 digits": brat("T1\tPER 0 " + "9" * 5000 + "\tAda\n"),
    "a mark that says something else": brat("T1\tPER 0 3\tBob\n"),
    "a mark in pieces": brat("T1\tPER 0 3;8 11\tAda Bob\n" + MARK),
    "100,000 pieces": brat("T1\tPER " + ";".join("0 3" for _ in range(100_000)) + "\tAda\n" + MARK),
    "relations alone": brat("R1\tmet Arg1:T1 Arg2:T2\n" * 100),
    "a text that is a bomb": brat(MARK, None, more=[("a.txt.gz", zeros_gz)]),
    "marks that are a bomb": brat(None, more=[("a.ann.gz", newlines_gz)]),
    "a text of 30 MB": brat(MARK, b"Ada met Bob. " * (30 * 2**20 // 13)),
    "a text that is not UTF-8": brat(MARK, b"Ada met \xff\xfe\n"),
    "marks that are not UTF-8": brat(b"T1\tPER 0 3\tA\xff\xfe\n"),
    "1,000 texts": brat(
        MARK, more=[pair for n in range(500) for pair in ((f"b{n}.txt", b"Ada met"), (f"b{n}.ann", MARK.encode()))]
    ),
    "nothing": brat(None, None),
}
CLUENER = {
    "a place that is wrong": text("a.json", lines({"text": "Ada met", "label": {"name": {"Ada": [[1, 2]]}}} for _ in range(9))),
    "places that are text": text("a.json", lines({"text": "Ada met", "label": {"name": {"Ada": "x"}}} for _ in range(9))),
    "a label that is a list": text("a.json", lines({"text": "Ada met", "label": ["name"]} for _ in range(9))),
    "a place of 20 digits": text(
        "a.json", lines({"text": "Ada met", "label": {"name": {"Ada": [[0, 10**19]]}}} for _ in range(9))
    ),
}
SPECIAL = {
    ("labels", "jsonl"): JSONL,
    ("labels", "csv"): CSV,
    ("labels", "svmlight"): SVMLIGHT,
    ("labels", "xc"): XC,
    ("labels", "arff"): ARFF,
    ("labels", "fasttext"): FASTTEXT,
    ("labels", "text-ids"): TABBED,
    ("labels", "npz"): NPZ,
    ("labels", "parquet"): PARQUET,
    ("spans", "span-jsonl"): SPAN_JSONL,
    ("spans", "conll"): CONLL,
    ("spans", "brat"): BRAT,
    ("spans", "cluener"): CLUENER,
}
