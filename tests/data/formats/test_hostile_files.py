"""Whatever is in a file, the answer is examples or a DataError that says file, place and remedy."""

import gzip
import json
import lzma

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manyhot.data.files.problems import DataError
from manyhot.data.formats.registry import formats
from manyhot.data.read import read_examples

# Small whole files, which are cut and bent below.
GOOD = {
    "jsonl": b'{"id": 1, "text": "a b", "labels": ["x", "y"]}\n{"id": 2, "text": "c d", "labels": ["x"]}\n',
    "csv": b'text,tags\n"a, b",x;y\nc d,x\n',
    "tsv": b"text\ttags\na b\tx;y\nc d\tx\n",
    "svmlight": b"1,2 1:0.5 3:2\n2 2:1\n",
    "xc": b"2 4 3\n1,2 1:0.5 3:2\n2 2:1\n",
    "arff": b"@relation '-C 1'\n@attribute l {0,1}\n@attribute f numeric\n@attribute c {a,'b c'}\n@data\n1,2.5,a\n0,?,'b c'\n",
    "fasttext": b"__label__x __label__y a b\n__label__x c d\n",
    "libmultilabel": b"d1\tx y\ta b c\nd2\tx\tc d e\n",
    "text-ids": b"a b c\t1,2\tk1\nc d e\t1\tk2\n",
}


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def only_data_errors(path, **options):
    try:
        examples = read_examples(path, **options)
    except DataError:
        return None
    assert len(examples) > 0
    assert examples.labels.shape == (len(examples), len(examples.label_names))
    return examples


anything = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("format", [None, *formats("labels")])
@anything
@given(content=st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode())))
def test_random_bytes(put, format, content):
    only_data_errors(put("random", content), format=format)


@pytest.mark.parametrize("format", GOOD)
@anything
@given(data=st.data())
def test_bent_files(put, format, data):
    content = bytearray(GOOD[format])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from(
                [
                    b"",
                    b"{",
                    b"}",
                    b"[",
                    b'"',
                    b"'",
                    b":",
                    b",",
                    b"\t",
                    b"\n",
                    b"\r",
                    b"\x00",
                    b"\xff",
                    b"-1",
                    b"1e999",
                    b"nan",
                    b"\\",
                    b" ",
                    b"9" * 30,
                ]
            )
        )
        if not content:
            return
    for mode in ("raise", "collect"):
        only_data_errors(put("bent", bytes(content)), format=format, on_problem=mode)


@pytest.mark.parametrize("format", GOOD)
def test_files_cut_at_every_byte(put, format):
    whole = only_data_errors(put("whole", GOOD[format]), format=format)
    assert len(whole) == 2
    for size in range(len(GOOD[format])):
        only_data_errors(put("cut", GOOD[format][:size]), format=format)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_compressed_files_cut_at_every_byte(put, pack):
    packed = pack(GOOD["jsonl"])
    for size in range(len(packed)):
        with pytest.raises(DataError):
            read_examples(put("cut.jsonl.packed", packed[:size]))


def test_binary_tables_cut_short_or_bent(put, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": ["a b", "c d"], "labels": [["x"], ["y"]]}), tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", X=np.eye(4, dtype=np.float32), Y=np.eye(4, 3))
    random = np.random.default_rng(0)
    for name in ("a.parquet", "a.npz"):
        whole = (tmp_path / name).read_bytes()
        for size in range(0, len(whole), 17):
            only_data_errors(put(f"cut-{name}", whole[:size]))
        for _ in range(100):
            bent = bytearray(whole)
            bent[random.integers(len(bent))] = random.integers(256)
            only_data_errors(put(f"bent-{name}", bytes(bent)))


def test_npz_never_unpickles(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.asarray([{"a": 1}], dtype=object), Y=np.eye(1))
    with pytest.raises(DataError, match="pickle"):
        read_examples(tmp_path / "a.npz")


def test_a_nominal_list_that_does_not_close_is_refused_at_once(put):
    values = ", ".join(f"'v{number}'" for number in range(200))
    with pytest.raises(DataError, match="line 2"):
        read_examples(put("a.arff", f"@relation r\n@attribute a {{{values}}} x}}y\n@data\n1\n"))


LONG = {"text": "x" * 5000, "labels": ["a"]}
ROW = '{"text": "a", "labels": ["x"]}\n'
MEKA = "@relation 'r -C 1'\n@attribute l {0,1}\n@attribute c {a,b}\n@data\n1,a\n"
CASES = {
    "an empty file": ("a.jsonl", "", {}, "is empty"),
    "only blank lines": ("a.txt", "\n\n", {}, "blank lines"),
    "invalid UTF-8": (
        "a.jsonl",
        GOOD["jsonl"] + b'{"text": "\xe9"}',
        {},
        "line 3, column 11: must be UTF-8; got the byte 0xe9 at byte 99",
    ),
    "UTF-16": ("a.csv", "text,tags\na b,c\n".encode("utf-16"), {}, "iconv -f utf-16"),
    "a line too long": ("a.jsonl", json.dumps(LONG), {"max_line_bytes": 1000}, "line 1: the line must be at most 1000 bytes"),
    "a label column of mixed types": (
        "a.jsonl",
        ROW + '{"text": "b", "labels": 3}',
        {},
        "line 2, column 'labels': labels must be a list or an object as in the rows before; got 3",
    ),
    "a label that is no name": ("a.jsonl", '{"text": "a", "labels": [["x"]]}', {}, "line 1, column 'labels'"),
    "a text that is no string": (
        "a.jsonl",
        ROW + '{"text": 7, "labels": ["x"]}',
        {},
        "line 2, column 'text': the text must be a string; got 7",
    ),
    "broken JSON": ("a.jsonl", ROW + '{"text": "a", labels: []}', {}, "line 2, column 15"),
    "a JSON array": ("a.json", '[{"text": "a"}]', {"format": "jsonl"}, "not JSON lines"),
    "half a surrogate pair": ("a.jsonl", '{"text": "\\ud800", "labels": []}', {}, "surrogate"),
    "a key twice": ("a.jsonl", '{"text": "a", "text": "b", "labels": []}', {}, "line 1, column 'text'"),
    "deep nesting": ("a.jsonl", '{"text": ' + "[" * 100000, {}, "line 1"),
    "a wrong column name": ("a.csv", "text,tags\na b,c\n", {"labels": "tag"}, "Did you mean 'tags'"),
    "no label column": ("a.csv", "text,num\na b,3.5\n", {}, "no column of labels was found among 'text', 'num'"),
    "rows of different length": ("a.csv", "text,tags\na b,c\na b,c,d\n", {}, "line 3: the row must have 2 columns"),
    "an open quotation mark": ("a.csv", 'text,tags\n"a b,c\nd,e\n', {}, "line 2"),
    "a column twice": ("a.csv", "text,x,x\na b,1,0\n", {}, "line 1, column 'x'"),
    "a label outside 0 and 1": (
        "a.csv",
        "text,x\n" + "a b,1\n" * 1500 + "a b,2\n",
        {},
        "line 1502, column 'x': a label must be 0, 1 or a number between them",
    ),
    "a feature that is no number": (
        "a.csv",
        "f,label_x\n" + "1,1\n" * 1500 + "z,1\n",
        {},
        "line 1502, column 'f': a feature must be a number; got 'z'",
    ),
    "an infinite feature": ("a.csv", "f,label_x\n1,1\n1e300,0\n", {}, "column 'f'"),
    "two separators": ("a.csv", 'text,tags\na b,x|y\na b,"x,z"\n', {}, "Choose one with `separator`"),
    "no header": ("a.csv", "1,2\n3,4\n", {}, "header=False"),
    "an XC label out of range": (
        "a.txt",
        "1 4 3\n3 1:1\n",
        {"format": "xc"},
        "line 2, column 'labels': a label must be a whole number in [0, 3)",
    ),
    "an XC feature out of range": (
        "a.txt",
        "1 4 3\n2 4:1\n",
        {"format": "xc"},
        "line 2, column '4': a feature must have an index in [0, 4); got '4:1'",
    ),
    "an XC header that counts wrongly": ("a.txt", "3 4 3\n2 1:1\n", {"format": "xc"}, "the header says 3 rows; there are 1"),
    "an svmlight value that is no number": (
        "a.svm",
        "1 1:1\n1 2:x\n",
        {},
        "line 2, column '2': a feature must be 'index:value'",
    ),
    "an svmlight feature twice": ("a.svm", "1 1:1 1:2\n", {}, "occur once per row"),
    "an ARFF value that is not declared": ("a.arff", MEKA + "0,z\n", {}, "line 6, column 'c': the value must be one of {a,b}"),
    "an ARFF row too short": ("a.arff", MEKA + "1\n", {}, "line"),
    "an ARFF label that is not 0 or 1": (
        "a.arff",
        MEKA.replace("{0,1}", "numeric") + "5,a\n",
        {},
        "line 6, column 'l': a label must be 0, 1 or a number between them",
    ),
    "an ARFF file without labels": ("a.arff", "@relation r\n@attribute f numeric\n@data\n1\n", {}, "Set `label_file`"),
    "an ARFF attribute twice": (
        "a.arff",
        "@relation r\n@attribute f numeric\n@attribute f numeric\n@data\n1\n",
        {},
        "line 3, column 'f'",
    ),
    "a name not among the label names": ("a.jsonl", GOOD["jsonl"], {"label_names": ["x", "z"]}, "got 'y'"),
    "a format that is unknown": ("a.dat", "hello world\nhow are you\n", {}, "format was not recognised"),
    "named entities in place of labels": (
        "a.json",
        '{"text": "a b", "label": {"name": {"a": [[0, 0]]}}}',
        {},
        "labels must be an object of names with numbers",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_message_names_place_and_remedy(put, case):
    name, content, options, message = CASES[case]
    path = put(name, content)
    with pytest.raises(DataError) as caught:
        read_examples(path, **options)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_missing_files_and_folders(tmp_path, put):
    put("train.csv", "text,tags\n")
    with pytest.raises(DataError, match=r"there is no such file. Did you mean 'train.csv'"):
        read_examples(tmp_path / "trian.csv")
    with pytest.raises(DataError, match=r"it is a folder. It holds train.csv"):
        read_examples(tmp_path)


def test_a_line_of_a_hundred_megabytes_is_refused(put):
    path = put("big.jsonl", b'{"text": "' + b"x" * 100_000_000 + b'", "labels": []}')
    with pytest.raises(DataError, match=r"line 1: the line must be at most 16777216 bytes long.*max_line_bytes"):
        read_examples(path)


def test_a_cut_gzip_says_after_which_line(put):
    rows = b"".join(json.dumps({"text": str(n) * 50, "labels": ["a"]}).encode() + b"\n" for n in range(5000))
    packed = gzip.compress(rows)
    with pytest.raises(DataError, match=r"is truncated or damaged: it cannot be decompressed as gz after line \d+"):
        read_examples(put("a.jsonl.gz", packed[: len(packed) // 2]))


def test_problems_can_be_collected(put):
    rows = ['{"text": "a", "labels": ["x"]}', "{", '{"text": 5, "labels": []}', '{"text": "b", "labels": 1}'] * 10
    examples = read_examples(put("a.jsonl", "\n".join(rows)), on_problem="collect")
    source = examples.source[0]
    assert len(examples) == 10
    assert source.num_problems == 30
    assert [(problem.line, problem.column) for problem in source.problems[:3]] == [(2, 2), (3, "text"), (4, "labels")]
    assert len(source.problems) == 10


def test_svmlight_lines_with_problems_are_left_out_and_the_rest_stays_aligned(put):
    lines = "a 1:1\nb 1:x\nc 2:3\n,, 1:1\nd 1:4\n"
    examples = read_examples(put("a.svm", lines), format="svmlight", on_problem="collect")
    assert examples.label_sets() == [["a"], ["c"], ["d"]]
    assert examples.features.toarray().tolist() == [[1, 0], [0, 3], [4, 0]]
    assert [problem.line for problem in examples.source[0].problems] == [2, 4]


@pytest.mark.parametrize(
    ("name", "content"), [("a.parquet", b"PAR1 and so on"), ("a.jsonl.zst", b"\x28\xb5\x2f\xfd and so on")]
)
def test_a_package_that_is_not_there_is_named(put, monkeypatch, name, content):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"needs the package pyarrow. Install it with: pip install manyhot\[data\]"):
        read_examples(put(name, content))


@pytest.mark.parametrize(
    "name",
    [
        "cluener2020/dev.json.gz",
        "germeval2014/germ.dev.iob2.gz",
        "wnut17/emerging.dev.conll.gz",
        "reuters21578/reut2-000.sgm.gz",
        "eurlex57k/EURLEX57K.json.gz",
        "cooking_stackexchange/cooking.stackexchange.id.gz",
        "enron/categories.txt",
    ],
)
def test_files_that_hold_no_labelled_examples_are_refused(data_folder, name):
    with pytest.raises(DataError):
        read_examples(data_folder / name)
