"""Every format reads what was written by hand, and says what it chose."""

import bz2
import gzip
import json
import lzma

import numpy as np
import pytest
import torch

from manyhot.data.examples import concatenate_examples
from manyhot.data.read import read_examples

pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


JSONL = '{"id": 7, "text": "a red fish", "labels": ["fish", "red"]}\n\n{"id": 8, "text": "no one", "labels": []}\n'


def test_json_lines_with_lists_of_labels(put):
    examples = read_examples(put("a.jsonl", JSONL))
    assert examples.texts == ["a red fish", "no one"]
    assert examples.ids == ["7", "8"]
    assert examples.label_names == ("fish", "red")
    assert examples.label_sets() == [["fish", "red"], []]
    assert examples.unknown is None
    assert examples.source[0].format == "jsonl"
    assert examples.source[0].chosen == {"text": ["text"], "labels": "labels", "ids": "id"}


def test_json_null_labels_are_unknown_and_an_empty_list_is_not(put):
    rows = [{"text": "one", "labels": None}, {"text": "two", "labels": ["b", "a"]}, {"text": "three", "labels": []}]
    examples = read_examples(put("a.jsonl", "\n".join(map(json.dumps, rows))))
    assert examples.unknown.lists() == [[0, 1], [], []]
    assert examples.where().tolist() == [[False, False], [True, True], [True, True]]
    assert examples.labels.lists() == [[], [0, 1], []]


def test_null_before_delimited_strings_stays_unknown(put):
    rows = [{"text": "one", "labels": None}, {"text": "two", "labels": "b;a"}, {"text": "x", "labels": None}]
    examples = read_examples(put("a.jsonl", "\n".join(map(json.dumps, rows))))
    assert examples.unknown.lists() == [[0, 1], [], [0, 1]]
    assert examples.label_sets() == [[], ["a", "b"], []]


def test_json_integer_labels_sort_by_value(put):
    examples = read_examples(put("a.jsonl", '{"text": "a", "labels": [10, 2]}\n{"text": "b", "labels": [2]}'))
    assert examples.label_names == ("2", "10")


def test_text_is_every_column_of_running_words_where_none_is_called_text(put):
    rows = [{"key": "k1", "kind": "Rule", "concepts": ["1"], "title": "On the fish\n", "body": "All fish are wet"}] * 3
    examples = read_examples(put("a.jsonl", "\n".join(map(json.dumps, rows))))
    assert examples.texts[0] == "On the fish\n\nAll fish are wet"
    assert examples.source[0].chosen["left_out"] == ["kind"]


def test_chinese_text_is_running_words(put):
    rows = [{"post": "今天天气很好我们去公园吧", "tags": ["天气"]}, {"post": "他不喜欢吃鱼", "tags": ["鱼"]}]
    examples = read_examples(put("a.jsonl", "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)))
    assert examples.texts[1] == "他不喜欢吃鱼"


def test_csv_with_quoted_line_ends_and_a_column_per_label(put):
    examples = read_examples(put("a.csv", 'id,comment,toxic,mild\n1,"two\nlines, here",1,0\n2,"say ""hi"" now",,1\n'))
    assert examples.texts == ["two\nlines, here", 'say "hi" now']
    assert examples.label_names == ("toxic", "mild")
    assert examples.labels.lists() == [[0], [1]]
    assert examples.unknown.lists() == [[], [0]]
    assert examples.absent == "unknown"


@pytest.mark.parametrize(
    ("cells", "separator"),
    [(["a;b", "c"], ";"), (["a|b", "c"], "|"), (['"a,b"', "c"], ","), (["""'a'"""], None), (["a b", "c"], None)],
)
def test_csv_finds_the_separator_of_labels(put, cells, separator):
    examples = read_examples(put("a.csv", "text,tags\n" + "".join(f"some words,{cell}\n" for cell in cells)))
    assert examples.source[0].chosen.get("separator") == separator
    assert len(examples.label_names) == (3 if separator else len(cells))


def test_csv_cells_may_hold_lists_as_json_or_python_writes_them(put):
    examples = read_examples(put("a.csv", 'text,tags\nsome words,"[\'a\', \'b\']"\nsome words,"[""c""]"\nsome words,[]\n'))
    assert examples.label_sets() == [["a", "b"], ["c"], []]


def test_an_empty_cell_of_delimited_labels_is_no_label_or_unknown_as_told(put):
    path = put("a.csv", "text,tags\nsome words,a;b\nmore words,\n")
    plain = read_examples(path)
    assert plain.unknown is None
    assert plain.source[0].chosen["empty_label_cells"] == 1
    assert read_examples(path, empty_labels="unknown").unknown.lists() == [[], [0, 1]]


def test_csv_features_numbers_and_nominals(put):
    content = "size,colour,label_a,label_b\n1.5,red,1,0\n?,blue,0,1\n2,red,0,0\n4,red,1,1\n"
    examples = read_examples(put("a.csv", content))
    assert examples.feature_names == ("size", "colour=blue", "colour=red")
    np.testing.assert_array_equal(examples.features, np.float32([[1.5, 0, 1], [np.nan, 1, 0], [2, 0, 1], [4, 0, 1]]))
    assert examples.features.dtype == np.float32
    assert examples.label_names == ("label_a", "label_b")


def test_csv_columns_can_be_named_by_pattern(put):
    path = put("a.csv", "f1,f2,is_a,is_b\n1,0,1,0\n0,1,1,1\n")
    examples = read_examples(path, labels="is_*", features="f*")
    assert examples.label_names == ("is_a", "is_b")
    assert examples.features.tolist() == [[1, 0], [0, 1]]
    assert read_examples(path, labels=["is_b"], features=["f2"]).label_names == ("is_b",)


def test_semicolons_between_columns_are_found(put):
    examples = read_examples(put("a.csv", "text;tags\nsome words, here;a|b\n"))
    assert examples.texts == ["some words, here"]
    assert examples.source[0].chosen["delimiter"] == ";"


def test_tsv_with_a_header_takes_quotation_marks_as_characters(put):
    examples = read_examples(put("a.tsv", 'text\tlabels\n"Hello" she said\ta,b\nhe said "no\tb\n'))
    assert examples.texts == ['"Hello" she said', 'he said "no']


def test_tsv_whose_fields_are_quoted_is_read_so(put):
    examples = read_examples(put("a.tsv", 'text\tlabels\n"a\ttab in it"\ta\nplain words\tb\nend\tb\n'))
    assert examples.texts == ["a\ttab in it", "plain words", "end"]


def test_text_with_label_numbers_takes_names_from_the_file_beside(put):
    put("labels.txt", "joy\nanger\nfear\n")
    examples = read_examples(put("train.tsv", 'I "like it\t0,2\tx1\nOh no, no\t1\tx2\n'))
    assert examples.source[0].format == "text-ids"
    assert examples.label_names == ("joy", "anger", "fear")
    assert examples.label_sets() == [["joy", "fear"], ["anger"]]
    assert examples.ids == ["x1", "x2"]
    assert examples.texts[0] == 'I "like it'


def test_label_numbers_beyond_the_names_beside_keep_their_numbers(put):
    put("labels.txt", "joy\nanger\n")
    examples = read_examples(put("train.tsv", "I like it\t0,7\nOh no\t1\n"))
    assert examples.label_names == ("0", "1", "7")
    assert "label_file" not in examples.source[0].chosen


@pytest.mark.parametrize(
    "lines", ["d1\tECAT GDIA\tthe rate rose again\nd2\t\tnothing to see here\n", "a b\tthe rate rose again\nb\tmore\n"]
)
def test_libmultilabel_with_and_without_ids(put, lines):
    examples = read_examples(put("train.txt", lines))
    assert examples.source[0].format == "libmultilabel"
    assert examples.label_names in (("ECAT", "GDIA"), ("a", "b"))
    assert examples.texts[0] == "the rate rose again"
    assert (examples.ids is None) == (examples.label_names == ("a", "b"))


def test_fasttext_labels_stand_anywhere_and_a_line_may_have_none(put):
    examples = read_examples(put("a.txt", "__label__b __label__a how to fry\nnothing here\nfry __label__b it\n"))
    assert examples.source[0].format == "fasttext"
    assert examples.texts == ["how to fry", "nothing here", "fry it"]
    assert examples.label_sets() == [["a", "b"], [], ["b"]]


def test_svmlight_labels_may_be_names_numbers_or_none(put):
    examples = read_examples(put("a.svm", "3,10 1:0.5 4:2 # a comment\n 2:1\n3.0 4:1e-3\n"))
    assert examples.label_names == ("3", "10")
    assert examples.label_sets() == [["3", "10"], [], ["3"]]
    np.testing.assert_allclose(examples.features.toarray(), np.float32([[0.5, 0, 0, 2], [0, 1, 0, 0], [0, 0, 0, 1e-3]]))
    assert examples.source[0].chosen["first_index"] == 1
    assert read_examples(put("b.svm", "x,y 0:1\n"), format="svmlight").label_names == ("x", "y")


def test_xc_has_the_sizes_of_its_header_and_takes_columns_out_of_order(put):
    examples = read_examples(put("train.txt", "3 5 4\n0,3 4:1.5 1:2\n 0:1\n2 \n"))
    assert examples.source[0].format == "xc"
    assert examples.labels.shape == (3, 4)
    assert examples.label_names == ("0", "1", "2", "3")
    assert examples.labels.lists() == [[0, 3], [], [2]]
    np.testing.assert_array_equal(examples.features.toarray(), [[0, 2, 0, 0, 1.5], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]])


def test_svmlight_agrees_with_scikit_learn(put):
    from sklearn.datasets import dump_svmlight_file, load_svmlight_file

    random = np.random.default_rng(0)
    features = random.random((200, 30)).astype(np.float32) * (random.random((200, 30)) < 0.2)
    features[0, 29] = features[0, 0] = 1
    path = put("a.svm", b"")
    dump_svmlight_file(features, (random.random((200, 5)) < 0.3).astype(int), str(path), multilabel=True, zero_based=False)
    theirs, labels = load_svmlight_file(str(path), multilabel=True)
    ours = read_examples(path)
    np.testing.assert_allclose(ours.features.toarray(), theirs.toarray().astype(np.float32), rtol=1e-6)
    assert [tuple(map(float, names)) for names in ours.label_sets()] == labels


ARFF = """% a comment
@relation 'flowers'
@attribute 'the size' numeric
@ATTRIBUTE\tcolour\t{ red,  'dark blue' , green}
@attribute spotted {0,1}
@attribute m\\'usica {0,1}
@attribute "b" {1,0}

@data
1.5, red, 0, 1, 0
?, 'dark blue', 1, ?, 1
2,?,?,0,?
"""
NAMESPACE = 'xmlns="http://mulan.sourceforge.net/labels"'
XML = f"""<?xml version="1.0"?><labels {NAMESPACE}><label name="b"/><label name="m\\'usica"/></labels>"""


def test_dense_arff_with_nominals_missing_values_and_escapes(put):
    put("Flowers.XML", XML)
    examples = read_examples(put("flowers-train.arff", ARFF))
    assert examples.label_names == ("m'usica", "b")
    assert examples.labels.lists() == [[0], [1], []]
    assert examples.unknown.lists() == [[], [0], [1]]
    assert examples.feature_names == ("the size", "spotted", "colour=red", "colour=dark blue", "colour=green")
    nan = np.nan
    np.testing.assert_array_equal(examples.features, np.float32([[1.5, 0, 1, 0, 0], [nan, 1, 0, 1, 0], [2, nan, 0, 0, 0]]))
    assert examples.source[0].chosen["label_file"].endswith("Flowers.XML")


def test_sparse_arff_leaves_out_zeros_and_first_values(put):
    content = """@relation x
@attribute a numeric
@attribute c {low,high,'very, high'}
@attribute l1 {0,1}
@attribute l2 {false,true}
@data
{0 2.5, 2 1}
{1 'very, high', 3 true}
{}
{0 ?,2 ?}
"""
    examples = read_examples(put("s.arff", content), labels=["l1", "l2"])
    np.testing.assert_array_equal(
        examples.features.toarray(), np.float32([[2.5, 1, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0], [np.nan, 1, 0, 0]])
    )
    assert examples.labels.lists() == [[0], [1], [], []]
    assert examples.unknown.lists() == [[], [], [], [0]]


def test_arff_takes_labels_from_meka_and_text_from_string_attributes(put):
    head = "@relation 'x: -C 2'\n@attribute a {0,1}\n@attribute b {0,1}\n@attribute t string\n@data\n"
    content = head + "1,0,'some, words'\n0,1,more\n"
    examples = read_examples(put("a.arff", content))
    assert examples.label_names == ("a", "b")
    assert examples.texts == ["some, words", "more"]


def table(columns):
    return pyarrow.table(columns)


def test_parquet_with_lists_and_nulls(tmp_path):
    import pyarrow.parquet

    pyarrow.parquet.write_table(
        table({"id": [1, 2, 3], "text": ["a b", None, "c d"], "labels": [["x", "y"], [], None], "other": [1.0, 2.0, 3.0]}),
        tmp_path / "a.parquet",
    )
    examples = read_examples(tmp_path / "a.parquet")
    assert examples.texts == ["a b", "", "c d"]
    assert examples.label_sets() == [["x", "y"], [], []]
    assert examples.unknown.lists() == [[], [], [0, 1]]
    assert examples.ids == ["1", "2", "3"]


def test_parquet_features_with_a_column_per_label(tmp_path):
    import pyarrow.parquet

    columns = {"f1": [0.5, None], "f2": [1, 2], "label_a": [True, None], "label_b": [0.0, float("nan")]}
    pyarrow.parquet.write_table(table(columns), tmp_path / "a.pq")
    examples = read_examples(tmp_path / "a.pq")
    np.testing.assert_array_equal(examples.features, np.float32([[0.5, 1], [np.nan, 2]]))
    assert examples.labels.lists() == [[0], []]
    assert examples.unknown.lists() == [[], [0, 1]]


def test_npz_pairs_of_sparse_matrices_and_one_file_with_both(tmp_path):
    from scipy import sparse

    features, labels = sparse.random(5, 7, 0.4, "csr", random_state=0), np.eye(5, 3)
    sparse.save_npz(tmp_path / "X_train.npz", features)
    sparse.save_npz(tmp_path / "Y_train.npz", sparse.csr_matrix(labels))
    examples = read_examples(tmp_path / "X_train.npz")
    np.testing.assert_allclose(examples.features.toarray(), features.toarray(), rtol=1e-6)
    assert examples.labels.dense().tolist() == (labels > 0).tolist()
    labels[4, 0] = np.nan
    np.savez(tmp_path / "both.npz", X=features.toarray(), Y=labels)
    both = read_examples(tmp_path / "both.npz", label_names=["a", "b", "c"])
    assert both.label_names == ("a", "b", "c")
    assert both.unknown.lists() == [[], [], [], [], [0]]


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_compression_is_undone(put, suffix):
    pack = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
        "zst": lambda raw: bytes(pyarrow.compress(raw, "zstd")),
    }
    if suffix == "zst":
        sink = pyarrow.BufferOutputStream()
        with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(JSONL.encode())
        content = sink.getvalue().to_pybytes()
    else:
        content = pack[suffix](JSONL.encode())
    examples = read_examples(put(f"a.jsonl.{suffix}", content))
    assert examples.texts == ["a red fish", "no one"]
    assert examples.source[0].chosen["compression"] == suffix


def test_standard_input_is_a_file(put, monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(JSONL.encode()))))
    assert read_examples("-").texts == ["a red fish", "no one"]
    assert not sys.stdin.closed


def test_a_byte_order_mark_and_windows_line_ends_are_dropped(put):
    examples = read_examples(put("a.csv", b"\xef\xbb\xbftext,tags\r\nsome words,a\r\n"))
    assert examples.texts == ["some words"]
    assert examples.label_names == ("a",)


def test_several_files_share_one_vocabulary(put):
    one = put("a.jsonl", '{"text": "a", "labels": ["x"]}')
    two = put("b.csv", "text,tags\nsome words,y;x\n")
    examples = read_examples([one, two])
    assert examples.label_names == ("x", "y")
    assert examples.label_sets() == [["x"], ["x", "y"]]
    assert [source.format for source in examples.source] == ["jsonl", "csv"]


def test_rows_to_predict_need_no_labels(put):
    examples = read_examples(put("a.jsonl", '{"text": "a b"}\n{"text": "c"}'), need_labels=False)
    assert examples.labels.shape == (2, 0)


def test_label_names_can_be_names_or_what_numbers_stand_for(put):
    path = put("a.jsonl", '{"text": "a", "labels": [1, 0]}\n{"text": "b", "labels": [2]}')
    names = put("names.txt", "zero\none\ntwo\n")
    assert read_examples(path, label_names=names).label_sets() == [["zero", "one"], ["two"]]
    assert read_examples(path, label_names=["2", "1", "0"]).label_sets() == [["1", "0"], ["2"]]


def test_concatenation_fills_absent_label_columns_as_unknown(put):
    one = read_examples(put("a.csv", "text,x,y\nsome words,1,0\n"))
    two = read_examples(put("b.csv", "text,y,z\nmore words,1,1\n"))
    both = concatenate_examples([one, two])
    assert both.label_names == ("x", "y", "z")
    assert both.labels.lists() == [[0], [1, 2]]
    assert both.unknown.lists() == [[2], [0]]
    assert torch.equal(both.where(), torch.tensor([[True, True, False], [False, True, True]]))
