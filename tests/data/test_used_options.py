"""Options of reading: one that a file does not use is refused with the reason, so that none is ignored."""

import json
from contextlib import nullcontext
from dataclasses import fields

import pytest

from cli.conftest import run  # noqa: F401 - a fixture
from data.hostile.samples import sample, write_mapped
from manyhot.data.files.input_file import InputFile
from manyhot.data.files.problems import DataError, ProblemLog
from manyhot.data.formats.registry import formats
from manyhot.data.options import ReadOptions
from manyhot.data.read import read_examples
from manyhot.data.used_options import _FOR_ALL

OPTIONS = [each.name for each in fields(ReadOptions) if each.name not in _FOR_ALL]
GIVEN = {"header": False, "quoting": False, "index_base": 1, "decimal": ",", "empty_labels": "unknown", "label_names": ["a"]}
FORMATS = list(formats("labels"))


class Watched:
    """Options that remember who was asked for."""

    def __init__(self, **given):
        self.options, self.asked = ReadOptions(**given), set()

    def __getattr__(self, name):
        self.asked.add(name)
        return getattr(self.options, name)


def written(folder, name):
    if name == "mapped":
        return write_mapped(folder / "rows")
    suffix, content = sample(("labels", name))
    path = folder / f"rows{suffix}"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_an_entry_lists_the_options_that_its_reader_asks_for(name, tmp_path):
    entry, path = formats("labels")[name], written(tmp_path, name)
    paths = [path]
    if name in ("csv", "tsv"):
        # The sample has a column for each label; here is one with a column of label sets.
        paths.append(tmp_path / "sets")
        paths[1].write_text("text,labels\na b,x\nc d,y\n".replace(",", "," if name == "csv" else "\t"))
    asked = set()
    for path, more in ((path, more) for path in paths for more in ({}, {"need_labels": False})):
        options = Watched(**more)
        problems = ProblemLog("collect", str(path))
        with nullcontext(path) if entry.folder else InputFile(path) as file:
            if not entry.folder:
                file.problems = problems
            try:
                entry.read(file, options, problems)
            except DataError:
                assert entry.unlabelled
                assert not more
        asked |= options.asked
    # The labels of an .npz file may lie in the file itself.
    asked |= {"label_file"} if name == "npz" else set()
    assert asked & set(OPTIONS) == set(entry.takes)


@pytest.mark.parametrize("name", [name for name in FORMATS if not formats("labels")[name].unlabelled])
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_another_format_is_refused(name, option, tmp_path):
    entry = formats("labels")[name]
    if option in entry.takes:
        return
    path = written(tmp_path, name)
    with pytest.raises(DataError, match=rf"`{option}` must be left out: it is for .*{name}"):
        read_examples(path, format=name, **{option: GIVEN.get(option, "x")})


LISTS = '{"text": "a b", "labels": ["x"]}\n{"text": "c d", "labels": ["y"]}\n'


@pytest.mark.parametrize(
    ("content", "given", "why"),
    [
        (LISTS, {"separator": ";"}, "a row's labels are a list"),
        (LISTS, {"empty_labels": "unknown"}, "a row's labels are a list"),
        (LISTS.replace('["x"]', "\"['x']\"").replace('["y"]', "\"['y']\""), {"separator": ";"}, "a list in brackets"),
        ('{"text": "a b", "label_x": 1}\n{"text": "c d", "label_x": 0}\n', {"separator": ";"}, "a column of its own"),
        ('{"text": "a b", "label_x": 1}\n{"text": "c d", "label_x": 0}\n', {"empty_labels": "unknown"}, "a column of its own"),
    ],
)
def test_an_option_of_other_labels_is_refused(content, given, why, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=f"must be left out: .*{why}"):
        read_examples(path, **given)


def test_an_option_that_one_of_several_files_uses_is_taken(tmp_path):
    (tmp_path / "a.jsonl").write_text(LISTS)
    (tmp_path / "b.csv").write_text("text\tlabels\na b\tx\nc d\ty\n")
    read = read_examples([tmp_path / "a.jsonl", tmp_path / "b.csv"], delimiter="\t")
    assert len(read) == 4


def test_labels_without_an_empty_cell_are_told(tmp_path):
    (tmp_path / "a.csv").write_text("text,labels\na b,x\nc d,y|x\n")
    (source,) = read_examples(tmp_path / "a.csv", empty_labels="unknown").source
    assert "No cell of column 'labels' is empty" in source.remarks[0]


def test_a_run_on_one_format_judges_files_of_another(run, tmp_path):  # noqa: F811
    rows = [(f"{'egg' if n % 2 else 'pan'} number {n}", "e|x" if n % 2 else "p") for n in range(40)]
    (tmp_path / "rows.csv").write_text("text,labels\n" + "".join(f"{text},{labels}\n" for text, labels in rows))
    lines = [json.dumps({"text": text, "labels": labels.split("|")}) for text, labels in rows]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    assert run("train", tmp_path / "rows.csv", "--separator", "|", "--run", tmp_path / "run", "--no-report", "-q").code == 0
    done = run("evaluate", tmp_path / "run", tmp_path / "rows.jsonl", "--json")
    assert done.code == 0, done.err
    done = run("evaluate", tmp_path / "run", tmp_path / "rows.jsonl", "--separator", ";")
    assert done.code == 1
    assert "--separator must be left out" in done.err
    done = run("predict", tmp_path / "run", tmp_path / "rows.jsonl", "--delimiter", ";")
    assert done.code == 1
    assert "--delimiter must be left out" in done.err
