"""Rows to predict are read as the training rows were, or refused with the names."""

import json

import numpy as np
import pytest

from manyhot.data.files.problems import DataError
from manyhot.data.read import options_from, read_examples, read_with
from manyhot.data.reading import Reading

TABLE = "size,colour,labels\n" + "".join(
    f"{size},{colour},{label}\n" for size, colour, label in [(1, "red", "a"), (2, "blue", "b"), (3, "red", "a")] * 10
)


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


def read_like(reading, path, **more):
    return read_with([path], options_from(**reading.options(), need_labels=False, **more))


def test_a_reading_survives_json(put):
    reading = Reading.of(read_examples(put("a.csv", TABLE)))
    assert reading.features == ("size", "colour")
    assert reading.nominal == {"colour": ("blue", "red")}
    assert reading.labels == "labels"
    assert Reading.from_json(json.loads(json.dumps(reading.to_json()))) == reading


@pytest.mark.parametrize(
    "data", [[], {"texts": []}, {"text": "a"}, {"nominal": {"a": [1]}}, {"first_index": 2}, {"labels": 3}, {"separator": 1}]
)
def test_a_reading_that_was_changed_is_refused(data):
    with pytest.raises(ValueError, match="reading"):
        Reading.from_json(data)


def test_the_first_rows_of_the_same_file_are_read_alike(put):
    whole = read_examples(put("a.csv", TABLE))
    reading = Reading.of(whole)
    for lines in (2, 3, 4):
        part = read_like(reading, put("b.csv", "\n".join(TABLE.split("\n")[:lines]) + "\n"))
        assert part.feature_names == whole.feature_names
        np.testing.assert_array_equal(part.features, whole.features[: lines - 1])


def test_a_value_that_training_did_not_have_counts_as_none_and_is_said(put):
    reading = Reading.of(read_examples(put("a.csv", TABLE)))
    found = read_like(reading, put("b.csv", "size,colour\n1,green\n"))
    assert found.features.tolist() == [[1, 0, 0]]
    assert "'green'" in found.source[0].remarks[0]


def test_a_column_that_is_not_there_is_refused_with_its_name(put):
    reading = Reading.of(read_examples(put("a.csv", TABLE)))
    with pytest.raises(DataError, match=r"there is no 'colour'.*Did you mean 'color'"):
        read_like(reading, put("b.csv", "size,color\n1,red\n"))


def test_a_number_in_training_must_be_a_number(put):
    reading = Reading.of(read_examples(put("a.csv", TABLE)))
    with pytest.raises(DataError, match=r"line 2, column 'size': a feature must be a number; got 'big'"):
        read_like(reading, put("b.csv", "size,colour\nbig,red\n"))


def test_features_by_name_that_the_model_does_not_know_are_refused(put):
    rows = '{"features": {"size": 1, "weight": 2}, "labels": ["a"]}\n{"features": {"size": 2, "weight": 1}, "labels": ["b"]}\n'
    trained = read_examples(put("a.jsonl", rows))
    reading = Reading.of(trained)
    reading.check_features(trained, trained.feature_names, sparse=False)
    other = read_like(reading, put("b.jsonl", '{"features": {"size": 1, "wieght": 2}}\n'))
    with pytest.raises(DataError, match=r"missing: 'weight'.*Did you mean 'wieght'"):
        reading.check_features(other, trained.feature_names, sparse=False)
    reading.check_features(other, trained.feature_names, sparse=True)
    strange = read_like(reading, put("c.jsonl", '{"features": {"x": 1}}\n'))
    with pytest.raises(DataError, match="missing: 'size', 'weight'"):
        reading.check_features(strange, trained.feature_names, sparse=True)


def test_the_base_of_numbered_features_is_kept(put):
    zero = read_examples(put("a.svm", "a 0:1 2:1\nb 1:1\n"))
    reading = Reading.of(zero)
    assert reading.first_index == 0
    assert read_like(reading, put("b.svm", "a 1:5\n")).features.toarray().tolist() == [[0, 5]]
    one = Reading.of(read_examples(put("c.svm", "a 1:1\n")))
    with pytest.raises(DataError, match="line 1, column '0': a feature must have an index of 1 or more"):
        read_like(one, put("d.svm", "a 0:5\n"))


def test_a_guessed_base_is_said_and_a_given_one_is_not(put):
    path = put("a.svm", "a 1:1 3:1\n")
    assert "counted from 1" in read_examples(path).source[0].remarks[0]
    given = read_examples(path, index_base=0)
    assert given.source[0].remarks == ()
    assert given.features.toarray().tolist() == [[0, 1, 0, 1]]


def test_several_files_have_one_base(put):
    one, two = put("a.svm", "a 0:1 2:3\n"), put("b.svm", "b 1:7\n")
    for paths, rows in (([one, two], [[1, 0, 3], [0, 7, 0]]), ([two, one], [[0, 7, 0], [1, 0, 3]])):
        examples = read_examples(paths)
        assert examples.features.toarray().tolist() == rows
        assert Reading.of(examples).first_index == 0


def test_a_column_of_names_in_one_file_and_numbers_in_another_is_refused(put):
    other = "size,colour,labels\n" + "1,2,a\n3,4,b\n" * 10
    with pytest.raises(DataError, match="column 'colour' must hold names in every file"):
        read_examples([put("a.csv", TABLE), put("b.csv", other)])
