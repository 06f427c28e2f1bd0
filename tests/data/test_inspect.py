"""Inspection says what is there and what is odd, in numbers that can be counted by hand."""

import json

import numpy as np
import pytest
import torch

from manyhot import SparseLabels, digit_scenes
from manyhot.data.examples import Examples
from manyhot.data.files.problems import DataError
from manyhot.data.inspect import inspect_examples
from manyhot.data.tables.missing import fill_missing

ROWS = [
    {"text": "a b", "labels": ["x", "y"]},
    {"text": "a b", "labels": ["x"]},
    {"text": " ", "labels": []},
    {"text": "c d e", "labels": None},
    {"text": 7, "labels": ["x"]},
]


@pytest.fixture
def file(tmp_path):
    def write(rows, name="a.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(map(json.dumps, rows)))
        return path

    return write


def test_everything_is_counted(file):
    found = inspect_examples(file(ROWS))
    assert (found.kind, found.rows, found.label_names) == ("texts", 4, ("x", "y"))
    assert found.labels.counts == (2, 1)
    assert found.labels.cardinality == 3 / 4
    assert found.labels.density == 3 / 6
    assert (found.unknown_labels, found.unknown_rows) == (2, 1)
    assert (found.empty_inputs, found.repeated_inputs, found.contradictions) == (1, 1, 1)
    assert found.num_problems == 1
    assert (found.problems[0].line, found.problems[0].column) == (5, "text")
    assert found.inputs["words_most"] == 3
    assert "1 row repeats the input of an earlier row." in found.remarks()


def test_it_is_json(file):
    found = inspect_examples(file(ROWS), test=file(ROWS[:2], "test.jsonl"))
    again = json.loads(json.dumps(found.to_dict()))
    assert again["labels"]["counts"] == {"x": 2, "y": 1}
    assert again["files"][0]["format"] == "jsonl"
    assert again["problems"][0]["line"] == 5
    assert again["test"]["rows"] == 2


def test_leaks_and_unseen_labels_are_found(file):
    test = [{"text": "a b", "labels": ["z"]}, {"text": "new words", "labels": ["z", "x"]}]
    found = inspect_examples(file(ROWS[:4]), test=file(test, "test.jsonl"))
    assert found.leaks == 1
    assert found.unseen_labels == {"z": 2}


def test_features_are_compared_by_name(tmp_path):
    (tmp_path / "train.csv").write_text("f,g,label_a\n1,2,1\n3,?,0\n0,0,1\n")
    (tmp_path / "test.csv").write_text("g,f,label_a\n2,1,0\n1,2,0\n")
    found = inspect_examples(tmp_path / "train.csv", test=tmp_path / "test.csv", options={"labels": ["label_a"]})
    assert found.leaks == 1
    assert found.inputs["missing"] == 1
    assert found.empty_inputs == 1


def test_images_can_be_inspected():
    scenes = digit_scenes(20, seed=0)
    images = torch.cat([scenes.images, scenes.images[:3]])
    labels = SparseLabels.from_dense(torch.cat([scenes.labels, scenes.labels[:3]]))
    found = inspect_examples(Examples(labels, tuple("0123456789"), images=images))
    assert (found.kind, found.rows, found.repeated_inputs, found.contradictions) == ("images", 23, 3, 0)


def test_a_typo_among_the_options_is_an_error(file):
    with pytest.raises(TypeError, match="labls"):
        inspect_examples(file(ROWS), options={"labls": "x"})


def test_a_file_that_cannot_be_read_raises(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        inspect_examples(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("name", "train", "test", "leaks"),
    [
        ("scene", "scene-train", "scene-test", 6),
        ("medical", "medical-train", "medical-test", 6),
        ("enron", "enron-train", "enron-test", 62),
    ],
)
def test_repeated_inputs_of_real_sets_are_found(data_folder, name, train, test, leaks):
    folder = data_folder / name
    assert inspect_examples(folder / f"{train}.arff.gz", test=folder / f"{test}.arff.gz").leaks == leaks


def test_goemotions_has_37_test_texts_in_train(data_folder):
    found = inspect_examples(data_folder / "goemotions" / "train.tsv.gz", test=data_folder / "goemotions" / "test.tsv.gz")
    assert found.leaks == 37
    assert found.unseen_labels == {}


@pytest.mark.parametrize("sparse", [False, True])
def test_missing_values_take_the_training_mean(sparse):
    from scipy.sparse import csr_matrix

    values = np.float32([[1, 0, np.nan], [np.nan, 4, np.nan], [2, 2, np.nan]])
    none = SparseLabels.from_lists([[], [], []], num_labels=0)
    examples = Examples(none, (), features=csr_matrix(values) if sparse else values)
    filled, means = fill_missing(examples)
    assert means.tolist() == [1.5, 2.0, 0.0]
    result = filled.features.toarray() if sparse else filled.features
    assert result.tolist() == [[1, 0, 0], [1.5, 4, 0], [2, 2, 0]]
    other, same = fill_missing(examples, means=np.float32([9, 9, 9]))
    assert same.tolist() == [9, 9, 9]
    assert (other.features.toarray() if sparse else other.features)[1, 0] == 9
    with pytest.raises(ValueError, match="`means` must be"):
        fill_missing(examples, means=np.float32([9]))


def test_labels_that_differ_only_in_case_or_blanks_are_named(file):
    rows = [{"text": "a b", "labels": ["Hot Food", "milk"]}, {"text": "c d", "labels": ["hotfood", "hot food", "Milk", "egg"]}]
    found = inspect_examples(file(rows))
    assert sorted(map(sorted, found.alike_labels)) == [["Hot Food", "hot food"], ["Hot Food", "hotfood"], ["Milk", "milk"]]
    assert any("3 labels differ from another one only in case, spaces or Unicode" in remark for remark in found.remarks())


def test_labels_that_unicode_spells_in_two_ways_are_named(file):
    found = inspect_examples(file([{"text": "a b", "labels": ["caf\u00e9"]}, {"text": "c d", "labels": ["cafe\u0301", "egg"]}]))
    assert [sorted(pair) for pair in found.alike_labels] == [["cafe\u0301", "caf\u00e9"]]


def test_dates_and_names_beside_a_text_are_not_read_as_text(tmp_path):
    path = tmp_path / "tickets.csv"
    people = ["Ana Brown", "Bo Chen"]
    rows = [f"{day:02d}.03.2025 14:{day:02d};Question number {day} please;a, b;{people[day % 2]}" for day in range(1, 21)]
    path.write_text("\n".join(["Created;Question;Topics;Agent", *rows]))
    chosen = inspect_examples(path).sources[0].chosen
    assert (chosen["text"], chosen["labels"], chosen["left_out"]) == (["Question"], "Topics", ["Created", "Agent"])
