"""Soft labels of spans: a number beside each span in JSON lines, and how they are counted."""

import json

import pytest

from manyhot.data.files.problems import DataError
from manyhot.data.spans.examples import SpanExamples, TextSpan, concatenate_span_examples
from manyhot.data.spans.read import read_span_examples
from manyhot.data.spans.write import write_span_examples

ADA, WHOLE = TextSpan("PER", 0, 3), TextSpan("PER", 0, 12)
TEXT = "Ada Lovelace wrote"


def written(tmp_path, *rows):
    path = tmp_path / "soft.jsonl"
    path.write_text("".join(json.dumps({"text": TEXT, "spans": row}) + "\n" for row in rows))
    return path


def test_a_number_beside_a_span_is_its_soft_label(tmp_path):
    rows = [{"start": 0, "end": 12, "type": "PER", "value": 0.75}, {"start": 0, "end": 3, "type": "PER", "value": 0.25}]
    found = read_span_examples(written(tmp_path, rows, [[0, 3, "PER", 0.5]], [[0, 3, "PER"]]))
    assert found.spans == [[WHOLE, ADA], [ADA], [ADA]]
    assert found.values == [[0.75, 0.25], [0.5], [1.0]]
    assert found.source[0].chosen["soft_labels"] == 3


def test_labels_of_one_and_nought_are_hard(tmp_path):
    found = read_span_examples(written(tmp_path, [[0, 12, "PER", 1], [0, 3, "PER", 0]]))
    assert (found.spans, found.values, found.soft) == ([[WHOLE]], None, False)


@pytest.mark.parametrize("value", [1.5, -0.1, True, "0.5", None, [0.5]])
def test_what_is_no_soft_label_is_an_error_with_its_line(tmp_path, value):
    with pytest.raises(DataError, match=r"line 1.*number from 0 to 1"):
        read_span_examples(written(tmp_path, [{"start": 0, "end": 3, "type": "PER", "value": value}]))


def test_a_span_with_two_different_labels_is_an_error_and_a_repeated_one_counts_once(tmp_path):
    with pytest.raises(DataError, match=r"has 0.5 and 0.7"):
        read_span_examples(written(tmp_path, [[0, 3, "PER", 0.5], [0, 3, "PER", 0.7]]))
    found = read_span_examples(written(tmp_path, [[0, 3, "PER", 0.5], [0, 3, "PER", 0.5]]))
    assert (found.values, found.source[0].chosen["repeated_spans"]) == ([[0.5]], 1)


def test_soft_labels_are_written_and_read_back(tmp_path):
    examples = SpanExamples([TEXT, TEXT], [[WHOLE, ADA], []], values=[[0.75, 0.25], []])
    write_span_examples(examples, tmp_path / "out.jsonl")
    found = read_span_examples(tmp_path / "out.jsonl")
    assert (found.spans, found.values) == (examples.spans, examples.values)


def test_rows_parts_and_digests_carry_soft_labels():
    hard = SpanExamples([TEXT], [[ADA]])
    soft = SpanExamples([TEXT], [[WHOLE, ADA]], values=[[0.75, 0.25]])
    both = concatenate_span_examples([hard, soft])
    assert both.values == [[1.0], [0.75, 0.25]]
    assert both[1:].values == [[0.75, 0.25]]
    assert both[[0]].hardened().spans == [[ADA]]
    assert both.hardened().spans == [[ADA], [WHOLE]]
    other = SpanExamples([TEXT], [[WHOLE, ADA]], values=[[0.75, 0.5]])
    assert (
        len({hard.fingerprint(), soft.fingerprint(), other.fingerprint(), SpanExamples([TEXT], [[WHOLE, ADA]]).fingerprint()})
        == 4
    )


@pytest.mark.parametrize("values", [[[0.5]], [[0.5, 1.5]], [[0.5, 0.5], []]])
def test_values_must_be_one_number_in_the_unit_interval_for_each_span(values):
    with pytest.raises(ValueError, match="`values` must have"):
        SpanExamples([TEXT], [[WHOLE, ADA]], values=values)
