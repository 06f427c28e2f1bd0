"""Numbers with a decimal comma are numbers, in training and in later files; commas that may group thousands are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.conftest import run  # noqa: F401 - a fixture
from manyhot.data.files.problems import DataError, ProblemLog
from manyhot.data.read import read_examples
from manyhot.data.reading import Reading
from manyhot.data.tables.column_kinds import detect_decimal
from manyhot.data.tables.feature_rows import FeatureCells


@pytest.fixture
def put(tmp_path):
    def write(content, name="a.csv"):
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


SIZES = "size;place;label_a\n" + "1,5;x;0\n;y;1\n-2,25;y;1\n3;x;0\n" * 20


def test_a_column_of_decimal_commas_is_a_column_of_numbers(put):
    examples = read_examples(put(SIZES))
    assert examples.feature_names == ("size", "place=x", "place=y")
    assert examples.features[[0, 2, 3], 0].tolist() == [1.5, -2.25, 3]
    assert examples.source[0].chosen["decimal"] == ","
    assert not examples.source[0].remarks


def test_a_quoted_comma_in_a_file_of_commas_is_read_too(put):
    examples = read_examples(put('size,label_a\n"0,5",0\n"0,125",1\n"7,0",1\n'))
    assert examples.features.tolist() == [[0.5], [0.125], [7]]


def test_groups_of_three_are_no_decimals_unless_the_mark_is_named(put):
    path = put("people;place;label_a\n" + "".join(f"{n},{n % 7}50;{'xy'[n % 2]};{n % 2}\n" for n in range(100, 160)))
    examples = read_examples(path)
    assert examples.feature_names == ("place=x", "place=y")
    (remark,) = examples.source[0].remarks
    assert "left out, because they hold neither numbers nor categories that recur: 'people'." in remark
    assert read_examples(path, decimal=",").features[1, 0].item() == pytest.approx(101.35)


def test_the_mark_of_a_point_leaves_commas_alone(put):
    examples = read_examples(put(SIZES), decimal=".")
    assert "size=1,5" in examples.feature_names
    assert "use `decimal=','`" in examples.source[0].remarks[0]


def test_a_number_with_both_marks_is_a_problem_of_its_row(put):
    with pytest.raises(DataError, match=r"line 82, column 'size': a feature must be a number; got '1\.234,5'"):
        read_examples(put(SIZES + "1.234,5;x;0\n"))


def test_label_numbers_between_commas_are_no_decimals(put):
    rows = "".join(f"{n},5;{n % 3},{3 + n % 2}\n" for n in range(30))
    examples = read_examples(put("size;labels\n" + rows))
    assert examples.label_names == ("0", "1", "2", "3", "4")
    assert examples.features[:2, 0].tolist() == [0.5, 1.5]


def test_soft_labels_take_the_mark(put):
    examples = read_examples(put("size;label_a;label_b\n1,5;0,25;1\n2,5;0;0,75\n"))
    assert examples.labels.dense().tolist() == [[0.25, 1], [0, 0.75]]


def test_the_mark_is_kept_for_later_files(put):
    reading = Reading.of(read_examples(put(SIZES)))
    assert Reading.from_json(reading.to_json()) == reading
    options = {name: value for name, value in reading.options().items() if name in ("features", "decimal")}
    later = read_examples(put("size;place\n1,234;x\n5,678;y\n", "b.csv"), need_labels=False, **options)
    assert later.features[:, 0].tolist() == pytest.approx([1.234, 5.678])
    with pytest.raises(ValueError, match=r"`reading\.decimal` must be"):
        Reading.from_json({"decimal": ";"})


def test_a_mark_that_nothing_uses_is_refused(put):
    with pytest.raises(DataError, match="`decimal` must be left out: no column of numbers is read"):
        read_examples(put("text,labels\nsome words,x\nother words,y\n"), decimal=",")
    with pytest.raises(ValueError, match="`decimal` must be"):
        read_examples(put(SIZES), decimal=";")


def test_a_model_reads_later_files_with_the_mark(put, tmp_path, run):  # noqa: F811 - the fixture
    table = "size;tags\n" + "".join(f"{n % 9},{n % 10};{'small' if n % 9 < 4 else 'large'}\n" for n in range(200))
    trained = run("train", put(table), "--run", tmp_path / "run", "--no-report", "--quiet")
    assert trained.code == 0
    found = run("predict", tmp_path / "run", put("size\n1,234\n8,765\n", "new.csv"))
    assert [line for line in found.out.splitlines() if '"small"' in line or '"large"' in line] == [
        '{"row": 0, "labels": ["small"]}',
        '{"row": 1, "labels": ["large"]}',
    ]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_are_read_as_with_a_point(values):
    written = [repr(value).replace(".", ",") for value in values]
    cells = FeatureCells(["x"], (), ProblemLog("raise", "a file"), ",")
    for line, cell in enumerate(written):
        assert cells.add([cell], line=line)
    assert cells.finish()[0][:, 0].tolist() == values


@given(st.lists(st.text(max_size=6)))
def test_any_cells_are_told_apart(cells):
    assert detect_decimal([cells]) in (".", ",")
