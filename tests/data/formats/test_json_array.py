"""One JSON array over a whole file: the same rows as JSON lines, and errors with the line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhot.data.files import json_array
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.json_array import array_objects
from manyhot.data.files.problems import DataError, ProblemLog
from manyhot.data.read import read_examples
from manyhot.data.spans.read import read_span_examples

ROWS = [{"text": f"some ] words, {{ number {n}", "labels": ["a", "b"][: 1 + n % 2]} for n in range(30)]


@pytest.fixture
def put(tmp_path):
    def write(content):
        path = tmp_path / "rows.json"
        path.write_text(content)
        return path

    return write


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("ahead", [1, 7, 1 << 16])
def test_an_array_has_the_rows_of_json_lines(put, monkeypatch, indent, ahead):
    monkeypatch.setattr(json_array, "AHEAD", ahead)
    examples = read_examples(put(json.dumps(ROWS, indent=indent)))
    assert examples.source[0].format == "json"
    assert examples.texts == [row["text"] for row in ROWS]
    assert examples.label_sets() == [row["labels"] for row in ROWS]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ('[{"text": "a", "labels": ["x"]}', 1, "']' must be here|',' must be here"),
        ('[{"text": "a", "labels": ["x"]},\n', 2, "the file ends here"),
        ('[\n{"text": "a", "labels": ["x"]}\n{"text"', 3, "',' must be here"),
        ('[\n{"text": "a", "labels": ["x"]},\n]', 3, "an element must follow the comma"),
        ('[\n{"text": "a", "labels": ["x"]}]\n[]', 3, "nothing may follow the array"),
        ('[\n{"text": "a", "labels": ["x"]},\n{"text": nothing}]', 3, "Expecting value"),
        ('[\n{"text": "a", "labels": ["x"]},\n{"text": "a", "text": "b"}]', 3, "keys of an object must differ; 'text' occurs"),
        ('[\n{"text": "a", "labels": ["x"]},\n7]', 3, "an element of the array must be a JSON object; got '?7"),
        ('[{"text": "a", "labels": ["x"]},\n{"text": "\\ud800", "labels": []}]', 2, "half a surrogate pair"),
        ("[" * 100_000, 1, "parsed as JSON|the file ends here"),
    ],
)
def test_what_is_no_array_of_objects_is_told_with_its_line(put, content, line, words):
    with pytest.raises(DataError, match=rf"rows\.json, line {line}: .*({words})"):
        read_examples(put(content), format="json")


def test_elements_that_are_no_objects_are_skipped_on_request(put):
    content = json.dumps([*ROWS[:3], 7, None, [1], *ROWS[3:]])
    skipped = read_examples(put(content), on_problem="collect")
    assert len(skipped) == len(ROWS)
    assert skipped.source[0].num_problems == 3


def test_an_empty_array_holds_nothing(put):
    with pytest.raises(DataError, match="must hold at least one JSON object; it holds none"):
        read_examples(put("[]"))


VALUES = st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(st.lists(st.dictionaries(st.text(), VALUES)), st.sampled_from([None, 1]), st.integers(1, 40))
def test_any_array_comes_back(tmp_path_factory, rows, indent, ahead):
    path = tmp_path_factory.mktemp("array") / "rows.json"
    path.write_text(json.dumps(rows, indent=indent))
    with InputFile(path) as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "AHEAD", ahead)
        found = list(array_objects(file, ProblemLog("raise", str(path))))
    assert [record for _, record in found] == rows
    assert [line for line, _ in found] == sorted(line for line, _ in found)


def test_spans_in_an_array_are_those_of_json_lines(tmp_path):
    rows = [{"text": "Ada met Bob", "entities": [[0, 3, "PER"]]}, ["Eve left", {"entities": [[0, 3, "PER"]]}]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rows.json").write_text(json.dumps(rows, indent=1))
    lines, whole = (read_span_examples(tmp_path / name) for name in ("rows.jsonl", "rows.json"))
    assert whole.source[0].format == "span-json"
    assert (whole.texts, whole.spans) == (lines.texts, lines.spans)
