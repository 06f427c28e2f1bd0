import pytest
import torch

from integrations import tiny
from manyhot.integrations.huggingface import MultiLabelCollator

NAMES = ("cat", "dog", "fox")


def labels_of(*labels, **settings):
    rows = [{"x": [0.0], "labels": each} for each in labels]
    return MultiLabelCollator(None, label_names=NAMES, **settings)(rows)["labels"]


def test_names_numbers_and_mappings_give_the_same_labels():
    dense = labels_of(["fox", "cat"], [2, 0], {"fox": 1, 0: 1.0}, [])
    assert dense.dtype == torch.float32
    assert dense.tolist() == [[1, 0, 1]] * 3 + [[0, 0, 0]]


def test_unknown_labels_are_nan_and_soft_labels_keep_their_values():
    row = labels_of({"cat": None, "dog": 0.25})[0]
    assert row[0].isnan()
    assert row[1:].tolist() == [0.25, 0]


def test_lists_have_one_width():
    assert labels_of(["fox", "cat"], [], width=3).tolist() == [[0, 2, -1], [-1, -1, -1]]


def test_texts_are_padded_by_the_tokenizer():
    collate = MultiLabelCollator(tiny.make_tokenizer(), label_names=tiny.NAMES)
    batch = collate(tiny.tokenized(["apple", "bread jam fish"], [["meat"], []]))
    assert batch["input_ids"].shape == (2, 5)
    assert batch["attention_mask"].sum(dim=1).tolist() == [3, 5]
    assert batch["labels"].tolist() == [[0, 0, 0, 1], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("labels", "settings", "message"),
    [
        (["fax"], {}, "unknown label 'fax'. Did you mean 'fox'"),
        ([3], {}, r"whole number in \[0, 3\); got 3"),
        ([True, False, True], {}, "not one 0 or 1 for each label"),
        ("fox", {}, "must be a list or a mapping; got str"),
        ({"cat": -100}, {}, "None where unknown; got -100"),
        (["cat", "dog"], {"width": 1}, "`width` must be at least that"),
        ({"cat": 0.5}, {"width": 2}, "no soft or unknown labels"),
    ],
)
def test_wrong_labels_are_named(labels, settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        labels_of(labels, **settings)
