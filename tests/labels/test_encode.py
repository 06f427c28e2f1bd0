import pytest
import torch

from manyhot import decode_label_sets, encode_label_sets, label_names


def test_sets_come_back_as_they_were():
    sets = [["rock", "jazz"], [], ["pop"]]
    names = label_names(sets)
    assert names == ["jazz", "pop", "rock"]
    labels = encode_label_sets(sets, names=names)
    assert decode_label_sets(labels, names=names) == [["jazz", "rock"], [], ["pop"]]
    assert decode_label_sets(labels.dense(), names=names) == [["jazz", "rock"], [], ["pop"]]


def test_a_name_that_comes_twice_counts_once():
    assert encode_label_sets([["a", "a"]], names=["a"]).lists() == [[0]]


def test_an_unknown_name_is_named_with_its_row_and_the_nearest():
    with pytest.raises(ValueError, match=r"row 1 has the label 'jaz', which is not in `names`. Did you mean 'jazz'\?"):
        encode_label_sets([["rock"], ["jaz"]], names=["jazz", "rock"])


def test_a_string_is_not_a_set_of_names():
    with pytest.raises(TypeError, match="row 0 must be a collection of names; got the string 'rock,jazz'"):
        encode_label_sets(["rock,jazz"], names=["rock"])


def test_names_must_be_unique_and_fit():
    with pytest.raises(ValueError, match="each name once"):
        encode_label_sets([], names=["a", "a"])
    with pytest.raises(ValueError, match="one name per label, 3; got 1"):
        decode_label_sets(torch.zeros(1, 3, dtype=torch.bool), names=["a"])
    with pytest.raises(TypeError, match="must be labels or predictions, bool or integer"):
        decode_label_sets(torch.zeros(1, 1), names=["a"])
