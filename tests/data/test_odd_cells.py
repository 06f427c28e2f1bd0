"""One odd cell is a problem of its row; it does not change what a column is."""

import numpy as np
import pytest

from manyhot.data.files.problems import DataError
from manyhot.data.read import read_examples


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


LABELS = "text,toxic,mild\n" + "some words here,1,0\nother words there,0,1\n" * 100


@pytest.mark.parametrize("cell", ["2", "maybe", "-1"])
def test_an_odd_cell_among_labels_is_told_and_does_not_drop_the_label(put, cell):
    path = put("a.csv", LABELS + f"odd words here,{cell},0\n")
    with pytest.raises(DataError, match=rf"line 202, column 'toxic': a label must be 0, 1 or .*got '{cell}'"):
        read_examples(path)
    skipped = read_examples(path, on_problem="collect")
    assert skipped.label_names == ("toxic", "mild")
    assert len(skipped) == 200
    assert skipped.source[0].num_problems == 1


def test_an_odd_cell_among_numbers_does_not_make_them_names(put):
    path = put("a.csv", "size,label_a\n" + "1.5,0\n2.5,1\n" * 50 + "big,1\n")
    with pytest.raises(DataError, match="line 102, column 'size': a feature must be a number; got 'big'"):
        read_examples(path)
    assert read_examples(path, on_problem="collect").feature_names == ("size",)


def test_categories_that_may_be_numbers_are_remarked_on(put):
    path = put("a.csv", "size;place;label_a\n" + "1,500;x;0\n2,500;y;1\n" * 50)
    remarks = read_examples(path, labels=["label_a"], features=["size", "place"]).source[0].remarks
    assert [remark for remark in remarks if "decimal comma" in remark and "'size'" in remark and "'place'" not in remark]


@pytest.mark.parametrize("cell", ["1e39", "inf", "1e400", "-Infinity"])
def test_infinite_features_are_refused_with_their_line(put, cell):
    path = put("a.csv", "size,label_a\n1,0\n2,1\n" + f"{cell},0\n")
    with pytest.raises(DataError, match="line 4, column 'size': a feature must be a finite number"):
        read_examples(path)
    assert read_examples(path, on_problem="collect").features.tolist() == [[1], [2]]


@pytest.mark.parametrize("features", ['{"x": 1e400}', "[1e400]", '{"indices": [0], "values": [1e39]}'])
def test_infinite_features_of_json_lines_are_refused_with_their_line(put, features):
    good = features.replace("1e400", "1").replace("1e39", "1")
    rows = "".join(f'{{"features": {each}, "labels": ["a"]}}\n' for each in (good, features))
    with pytest.raises(DataError, match="line 2, column 'features': the features must be finite numbers"):
        read_examples(put("a.jsonl", rows))


def test_infinite_features_of_arff_and_npz_are_refused_and_can_be_skipped(put, tmp_path):
    arff = "@relation 'r -C 1'\n@attribute l {0,1}\n@attribute f numeric\n@data\n1,2\n0,1e39\n"
    np.savez(tmp_path / "a.npz", X=[[1.0], [1e300]], Y=[[1.0], [0.0]])
    for path, line in ((put("a.arff", arff), "line 6, column 'f'"), (tmp_path / "a.npz", "line 2")):
        with pytest.raises(DataError, match=line):
            read_examples(path)
        assert len(read_examples(path, on_problem="collect")) == 1


def test_infinite_features_of_parquet_are_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"f": [float("inf"), 1.0] * 12, "label_a": [0, 1] * 12}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="line 1, column 'f': a feature must be a finite number"):
        read_examples(tmp_path / "a.parquet")


def test_a_list_that_does_not_close_is_told_and_makes_no_odd_labels(put):
    path = put("a.csv", "text,tags\n" + "some words,\"['x', 'y']\"\n" * 5 + "more words,['x'\n")
    with pytest.raises(DataError, match="line 7, column 'tags': must be a list of names"):
        read_examples(path)
    skipped = read_examples(path, on_problem="collect")
    assert skipped.label_names == ("x", "y")
    assert len(skipped) == len(skipped.texts) == 5


@pytest.mark.parametrize("unknown", ["[null]", "[1.5]", '"a"', '[""]'])
def test_unknown_labels_must_be_names(put, unknown):
    row = f'{{"text": "a b", "labels": ["x"], "unknown": {unknown}}}\n'
    with pytest.raises(DataError, match="line 2, column 'unknown'"):
        read_examples(put("a.jsonl", '{"text": "a b", "labels": ["x"], "unknown": ["y"]}\n' + row))


@pytest.mark.parametrize("index", ["1.7", "true", '"2"', "null"])
def test_an_index_must_be_a_whole_number(put, index):
    row = f'{{"features": {{"indices": [0, {index}], "values": [1, 2]}}, "labels": ["x"]}}\n'
    with pytest.raises(DataError, match="increasing whole numbers as indices"):
        read_examples(put("a.jsonl", row))


def test_a_high_index_costs_no_more_than_a_low_one(put):
    rows = "a 1:1 2147483000:2\nb 3:1\n"
    examples = read_examples(put("a.svm", rows))
    assert examples.feature_names == ("0", "2", "2147482999")
    assert examples.features.toarray().tolist() == [[1, 0, 2], [0, 1, 0]]
    low = read_examples(put("b.svm", "b 3:5\n"), index_base=1)
    assert low.with_features(examples.feature_names).features.toarray().tolist() == [[0, 5, 0]]
    assert examples.with_features(4).features.toarray().tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]


def test_a_tag_that_is_none_is_told_with_its_line(put):
    from manyhot import read_span_examples

    path = put("a.conll", "Ada B-PER\nmet O\nBob B-PER\n\n" * 9 + "Eve X-PER\nran O\n\n")
    with pytest.raises(DataError, match="line 37: a tag must be O"):
        read_span_examples(path)
    assert len(read_span_examples(path, on_problem="collect")) == 9


def test_bad_pairs_of_brat_are_left_out_on_request(tmp_path):
    from manyhot import read_span_examples

    for name, marks, text in (("a", "T1\tPER 0 3\tAda\n", b"Ada"), ("b", "T1\tPER 0 9\tAda\n", b"Ada"), ("c", "", b"\xff\xfe")):
        (tmp_path / f"{name}.txt").write_bytes(text)
        (tmp_path / f"{name}.ann").write_text(marks)
    (tmp_path / "d.txt").write_text("alone")
    with pytest.raises(DataError):
        read_span_examples(tmp_path)
    examples = read_span_examples(tmp_path, on_problem="collect")
    assert examples.ids == ["a", "b"]
    assert [len(row) for row in examples.spans] == [1, 0]
    assert examples.source[0].num_problems == 3
