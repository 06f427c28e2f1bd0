"""One registry: a new format is one file and one entry, and everything else asks the entry."""

import json

import pytest

from manyhot import SparseLabels, read_examples
from manyhot.cli.main import main
from manyhot.data.examples import Examples
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import DataError
from manyhot.data.formats import registry
from manyhot.data.formats.format import Format
from manyhot.data.tables.table import source_of


def read_toy(file, options, problems):
    """``label>text`` a line."""
    rows = [text.rpartition(">") for _, text in file.lines()]
    names = tuple(sorted({label for label, _, _ in rows if label}))
    labels = SparseLabels.from_lists([[names.index(label)] if label else [] for label, _, _ in rows], num_labels=len(names))
    return Examples(labels, names, texts=[text for _, _, text in rows], source=(source_of(problems, "toy", {}),))


TOY = Format(
    name="toy",
    about="label>text",
    read=read_toy,
    suffixes=(".toy",),
    looks=lambda start: ">" in start.lines[0],
    by_lines=True,
)


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(registry, "FORMATS", [TOY, *registry.FORMATS])


def test_a_toy_format_is_recognised_read_and_named(toy, tmp_path):
    (tmp_path / "a.toy").write_text("x>some words\ny>other words\n")
    (tmp_path / "unnamed").write_text("x>some words\ny>other words\n")
    for path in tmp_path.iterdir():
        examples = read_examples(path)
        assert examples.label_sets() == [["x"], ["y"]]
        assert examples.source[0].format == "toy"
        assert read_examples(path, format="toy").texts == ["some words", "other words"]


def test_a_toy_format_trains_and_streams_on_the_command_line(toy, capfd, tmp_path):
    (tmp_path / "a.toy").write_text("eggs>boil the yolk\npans>an iron pan\n" * 30)
    assert main(["train", str(tmp_path / "a.toy"), "--run", str(tmp_path / "run"), "--no-report", "--quiet"]) == 0
    (tmp_path / "b.toy").write_text(">boil the yolk\n" * 5000)
    capfd.readouterr()
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "b.toy"), "-q"]) == 0
    assert [json.loads(line)["labels"] for line in capfd.readouterr().out.splitlines()] == [["eggs"]] * 5000


def test_without_its_entry_the_format_is_unknown(tmp_path):
    (tmp_path / "a.toy").write_text("x>some words\ny>other words\n")
    with pytest.raises(DataError, match="its format was not recognised"):
        read_examples(tmp_path / "a.toy")
    with pytest.raises(ValueError, match="`format` must be one of 'jsonl'"):
        read_examples(tmp_path / "a.toy", format="toy")


def test_entries_are_whole_and_names_are_used_once():
    for holds in ("labels", "spans"):
        names = [entry.name for entry in registry.FORMATS if entry.holds == holds]
        assert len(set(names)) == len(names)
    suffixes = [(entry.holds, suffix) for entry in registry.FORMATS for suffix in entry.suffixes]
    assert len(set(suffixes)) == len(suffixes)
    assert all(entry.about and callable(entry.read) for entry in registry.FORMATS)


def test_a_file_of_no_format_lists_them(tmp_path):
    (tmp_path / "a.dat").write_text("hello world\n")
    with InputFile(tmp_path / "a.dat") as file, pytest.raises(DataError) as caught:
        registry.recognise_format(file)
    assert all(name in str(caught.value) for name in registry.formats("labels"))
