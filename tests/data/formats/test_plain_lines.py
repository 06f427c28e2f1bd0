"""JSON lines a block at a time give what line by line gives, or leave the file to that reader."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhot import read_examples
from manyhot.data.files.problems import DataError
from manyhot.data.formats import jsonl, plain_lines
from manyhot.data.options import ReadOptions
from manyhot.engines.native import lines as native

pytestmark = pytest.mark.skipif(not native.available()[0], reason="the native engine is not built")
NAMES = st.sampled_from(["a", "b", "ä ö", " a", "中", "x,y", "]", "{"])
TEXTS = st.text(alphabet='ab "\\/é\n\t{}[],:\u2028\U0001f600', max_size=12)
ROWS = st.lists(st.tuples(TEXTS, st.lists(NAMES, max_size=4), st.integers(0, 3)), min_size=1, max_size=12)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(plain_lines, "LEAST_BYTES", 0)
    monkeypatch.setattr(plain_lines, "BLOCK_BYTES", 97)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("plain") / "rows.jsonl"


def line_of(text, labels, kind):
    """One row, written in one of the ways JSON allows."""
    if kind == 0:
        return json.dumps({"text": text, "labels": labels}, ensure_ascii=False)
    if kind == 1:
        return json.dumps({"labels": labels, "text": text}, separators=(",", ":"))
    if kind == 2:
        return " " + json.dumps({"text": text, "labels": labels}, ensure_ascii=False, indent=1).replace("\n", " \t") + " \r"
    return "\n" + json.dumps({"text": text, "labels": labels, "more": None}, ensure_ascii=False)


def by_line(path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "read_plain", lambda *_: None)
        return read_examples(path)


def assert_same(found, wanted):
    assert found.texts == wanted.texts
    assert found.label_names == wanted.label_names
    assert found.labels.lists() == wanted.labels.lists()
    assert found.unknown is None
    assert found.source == wanted.source


@given(rows=ROWS)
def test_blocks_give_what_lines_give(rows, path):
    first = '{"text": "some words", "labels": ["a", "b"]}\n'
    path.write_bytes((first * 30 + "\n".join(line_of(*row) for row in rows)).encode())
    found = plain_lines.read_plain(str(path), ReadOptions())
    wanted = by_line(path)
    assert found is not None
    assert_same(found, wanted)


def test_the_first_thousand_rows_and_the_rest_follow_each_other(tmp_path):
    lines = [json.dumps({"text": f"row {number}", "labels": [f"l{number % 7}", "all"]}) for number in range(2500)]
    for name, opened in (("rows.jsonl", open), ("rows.jsonl.gz", gzip.open)):
        with opened(tmp_path / name, "wt") as file:
            file.write("\n".join(lines))
        found = read_examples(tmp_path / name)
        assert found.texts == [f"row {number}" for number in range(2500)]
        assert plain_lines.read_plain(str(tmp_path / name), ReadOptions()) is not None
        assert_same(found, by_line(tmp_path / name))


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"text": "x", "labels": [""]}',
        b'{"text": "x", "labels": ["a"], "labels": ["b"]}',
        b'{"text": "x", "labels": "a"}',
        b'{"text": "x", "labels": [1.5]}',
        b'{"text": 1, "labels": ["a"]}',
        b'{"text": "x", "labels": ["a"]} {}',
        b'{"text": "\xff", "labels": ["a"]}',
        b'{"text": "a\tb", "labels": ["a"]}',
        b'["a"]',
    ],
)
def test_what_is_out_of_the_ordinary_has_the_message_of_the_usual_reader(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": "some words", "labels": ["a"]}\n' * 1200 + line + b"\n")
    assert plain_lines.read_plain(str(path), ReadOptions()) is None
    with pytest.raises(DataError) as caught:
        read_examples(path)
    assert "1201" in str(caught.value)


def test_other_columns_are_left_to_the_usual_reader(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "1", "text": "some words", "labels": ["a"]}\n' * 40)
    assert plain_lines.read_plain(str(path), ReadOptions()) is None
    assert len(read_examples(path)) == 40


def test_a_line_beyond_the_limit_has_the_message_of_the_usual_reader(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "some words", "labels": ["a"]}\n' * 1200 + json.dumps({"text": "x" * 500, "labels": ["a"]}))
    with pytest.raises(DataError, match="at most 300 bytes"):
        read_examples(path, max_line_bytes=300)
    assert plain_lines.read_plain(str(path), ReadOptions(max_line_bytes=300)) is None


def test_a_damaged_file_has_the_message_of_the_usual_reader(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    whole = gzip.compress(b"".join(b'{"text": "some words %d", "labels": ["a"]}\n' % number for number in range(5000)))
    path.write_bytes(whole[: len(whole) // 2])
    messages = []
    for read in (read_examples, by_line):
        with pytest.raises(DataError, match="is truncated or damaged: it cannot be decompressed as gz") as caught:
            read(path)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
