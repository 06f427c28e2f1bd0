"""Soft labels come from files, stay soft in Examples, and are written back."""

import json

import numpy as np
import pytest
import torch

from manyhot import SparseLabels, concatenate_examples, inspect_examples, read_examples, write_examples
from manyhot.data.examples import Examples
from manyhot.data.files.problems import DataError


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


def dense(examples):
    return examples.labels.dense(torch.float32).tolist()


def test_json_lines_take_a_number_beside_each_label(put):
    rows = [
        {"text": "one", "labels": {"a": 0.75, "b": 1, "c": 0}},
        {"text": "two", "labels": ["b"]},
        {"text": "three", "labels": {"a": None}},
    ]
    examples = read_examples(put("a.jsonl", "\n".join(map(json.dumps, rows))))
    assert examples.label_names == ("a", "b", "c")
    assert examples.soft
    assert dense(examples) == [[0.75, 1, 0], [0, 1, 0], [0, 0, 0]]
    assert examples.unknown.lists() == [[], [], [0]]
    assert examples.label_sets() == [["a", "b"], ["b"], []]


def test_columns_of_fractions_beside_a_text_are_soft_labels_and_said_so(put):
    examples = read_examples(put("a.csv", "text,x,y\nsome words,0.75,0\nmore words,,1\n"))
    assert dense(examples) == [[0.75, 0], [0, 1]]
    assert examples.unknown.lists() == [[], [0]]
    assert "soft labels: 'x'" in examples.source[0].remarks[0]


def test_columns_of_labels_may_be_fractions_beside_features(put):
    path = put("a.csv", "size,label_x,label_y\n1,0.5,0\n2,0.25,1\n")
    assert dense(read_examples(path)) == [[0.5, 0], [0.25, 1]]
    assert dense(read_examples(path, labels=["label_x"], features="size")) == [[0.5], [0.25]]


def test_labels_of_0_and_1_alone_stay_hard(put):
    assert not read_examples(put("a.jsonl", '{"text": "a", "labels": {"x": 1, "y": 0}}')).soft
    assert not read_examples(put("a.csv", "text,x\nsome words,1.0\nmore words,0\n")).soft


def test_npz_labels_may_be_fractions(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(2), Y=np.asarray([[0.5, 0], [1, np.nan]]))
    examples = read_examples(tmp_path / "a.npz")
    assert dense(examples) == [[0.5, 0], [1, 0]]
    assert examples.unknown.lists() == [[], [1]]


@pytest.mark.parametrize("value", ["1.5", "-0.1", '"high"', "[1]", "1e400", "NaN2"])
def test_a_number_outside_0_and_1_is_refused_with_its_line(put, value):
    with pytest.raises(DataError, match="line 2"):
        read_examples(put("a.jsonl", f'{{"text": "a", "labels": {{"x": 1}}}}\n{{"text": "b", "labels": {{"x": {value}}}}}'))


def test_rows_labels_and_files_keep_their_numbers(put):
    one = read_examples(put("a.jsonl", '{"text": "one", "labels": {"a": 0.25, "b": 1}}\n{"text": "two", "labels": ["a"]}'))
    two = read_examples(put("b.jsonl", '{"text": "three", "labels": ["c"]}'))
    both = concatenate_examples([one, two])
    assert dense(both) == [[0.25, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert dense(both.with_labels(["b", "a"])) == [[1, 0.25], [0, 1], [0, 0]]
    assert dense(both[[2, 0]]) == [[0, 0, 1], [0.25, 1, 0]]
    assert both[1:].hardened().labels.values is None


def test_a_soft_label_above_one_half_counts_as_positive():
    soft = SparseLabels.from_lists([[0, 1, 2]], num_labels=3, values=[[0.5, 0.51, 1]])
    examples = Examples(soft, ("a", "b", "c"), texts=["words"])
    assert examples.hardened().labels.lists() == [[1, 2]]
    assert examples.hardened().hardened().labels.lists() == [[1, 2]]


def test_soft_labels_survive_writing_and_reading(put, tmp_path):
    given = '{"text": "one", "labels": {"a": 0.7, "b": 1, "c": 0.1}}\n{"text": "two", "labels": {"c": 0.333333}}\n'
    examples = read_examples(put("a.jsonl", given))
    write_examples(examples, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == given
    assert dense(read_examples(tmp_path / "out.jsonl")) == dense(examples)


def test_inspect_says_how_many_labels_are_soft(put):
    found = inspect_examples(put("a.jsonl", '{"text": "one", "labels": {"a": 0.7, "b": 1}}\n{"text": "two", "labels": ["a"]}'))
    assert found.soft_labels == 1
    assert any("1 label is soft" in sentence for sentence in found.remarks())
    assert found.to_dict()["soft_labels"] == 1
