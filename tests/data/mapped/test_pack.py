"""Packed rows: those of the files themselves, whatever is killed or damaged on the way."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manyhot.data.files.problems import DataError
from manyhot.data.mapped import pack as packing
from manyhot.data.mapped.pack import pack
from manyhot.data.mapped.rows import MappedMatrix, MappedTexts
from manyhot.data.options import ReadOptions
from manyhot.data.read import read_examples

KINDS = ("boil the egg", "an iron pan", "tea ☕ \u2028 rust")
TEXTS = [f"{KINDS[row % 3]} number {row}" for row in range(500)]
LABELS = [sorted({f"l{row % 7}", f"l{row * row % 11}", "ä"} if row % 5 else set()) for row in range(500)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(packing, "ROWS", 64)


def write_jsonl(path, rows=range(500)):
    path.write_text("".join(json.dumps({"text": TEXTS[row], "labels": LABELS[row]}) + "\n" for row in rows))
    return path


def write_svmlight(path, last=900):
    draw = np.random.default_rng(0)
    rows = []
    for row in range(500):
        columns = sorted({*draw.integers(1, last, 9).tolist(), 3})
        rows.append(f"{row % 7},{7 + row % 4} " + " ".join(f"{column}:{draw.random():.3f}" for column in columns) + "\n")
    path.write_text("".join(rows))
    return path


def write_fasttext(path):
    path.write_text(
        "".join(f"{' '.join('__label__' + name for name in LABELS[row])} {TEXTS[row].split()[0]}\n" for row in range(500))
    )
    return path


def same(packed, read):
    assert packed.label_names == read.label_names
    assert packed.kind == read.kind
    assert torch.equal(packed.labels.indices, read.labels.indices)
    assert torch.equal(packed.labels.offsets, read.labels.offsets)
    if read.texts is not None:
        assert isinstance(packed.texts, MappedTexts)
        assert list(packed.texts) == read.texts
        assert packed.texts[-1] == read.texts[-1]
        assert packed[7:9].texts == read[7:9].texts
        return
    assert isinstance(packed.features, MappedMatrix)
    assert packed.feature_names == read.feature_names
    whole, own = packed.features[:], read.features
    assert whole.shape == own.shape
    assert (whole != own).nnz == 0
    assert (packed.features.view(np.array([9, 3, 4]))[:] != own[[9, 3, 4]]).nnz == 0


@pytest.mark.parametrize("write", [write_jsonl, write_svmlight, lambda path: write_svmlight(path, 2**30), write_fasttext])
def test_packed_rows_are_those_of_the_file(write, tmp_path):
    file = write(tmp_path / "rows")
    assert pack([file], tmp_path / "packed", ReadOptions()) == 500
    same(read_examples(tmp_path / "packed"), read_examples(file))
    assert not [each.name for each in (tmp_path / "packed").iterdir() if each.name.startswith(".")]


def test_several_files_are_one_set(tmp_path):
    files = [write_jsonl(tmp_path / "a.jsonl", range(300)), write_jsonl(tmp_path / "b.jsonl", range(300, 500))]
    pack(files, tmp_path / "packed", ReadOptions())
    whole = read_examples(files)
    same(read_examples(tmp_path / "packed"), whole.with_labels(sorted(whole.label_names)))


KILLED = """
import os, signal, sys
from pathlib import Path
from manyhot.data.mapped import log, pack
from manyhot.data.options import ReadOptions
pack.ROWS = 64
at, where = int(sys.argv[3]), sys.argv[4]
written = log._write
def write(file, content):
    global at
    at -= 1
    if at < 0:
        os.write(file.fileno(), bytes(content)[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    written(file, content)
def renamed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if where == "block":
    log._write = write
else:
    log.write_about = renamed
pack.pack([Path(sys.argv[1])], Path(sys.argv[2]), ReadOptions())
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(("at", "where"), [(0, "block"), (4, "block"), (7, "block"), (19, "block"), (31, "block"), (0, "end")])
def test_a_killed_pack_goes_on_and_ends_with_the_same_bytes(at, where, tmp_path):
    file = write_jsonl(tmp_path / "rows.jsonl")
    pack([file], tmp_path / "whole", ReadOptions())
    arguments = [sys.executable, "-c", KILLED, str(file), str(tmp_path / "packed"), str(at), where]
    assert subprocess.run(arguments, check=False).returncode == -9
    with pytest.raises(DataError):
        read_examples(tmp_path / "packed")
    read = []
    pack([file], tmp_path / "packed", ReadOptions(), told=lambda rows, _: read.append(rows))
    # A block is five writes; the first is the empty one. Blocks that were whole are not read again.
    assert len(read) == (0 if where == "end" else 8 - max(at // 5 - 1, 0))
    for each in (tmp_path / "whole").iterdir():
        assert each.read_bytes() == (tmp_path / "packed" / each.name).read_bytes(), each.name


def test_a_folder_belongs_to_its_files(tmp_path):
    file = write_jsonl(tmp_path / "rows.jsonl")
    other = write_jsonl(tmp_path / "other.jsonl", range(100))
    assert pack([file], tmp_path / "packed", ReadOptions()) == pack([file], tmp_path / "packed", ReadOptions())
    with pytest.raises(ValueError, match="holds other rows"):
        pack([other], tmp_path / "packed", ReadOptions())
    arguments = [sys.executable, "-c", KILLED, str(file), str(tmp_path / "begun"), "19", "block"]
    subprocess.run(arguments, check=False)
    with pytest.raises(ValueError, match="was started with others"):
        pack([other], tmp_path / "begun", ReadOptions())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"text": "a", "labels": {"x": 0.5}}\n', "labels must be hard"),
        ('{"text": "a", "labels": null}\n{"text": "b", "labels": ["x"]}\n', "all labels must be known"),
        ('{"size": 1.5, "labels": ["x"]}\n{"size": 2.5, "labels": ["y"]}\n', "features must be sparse"),
        ("text,labels\na b,x\nc d,y\n", r"a file must have one row per line \(jsonl, svmlight, fasttext"),
    ],
)
def test_rows_that_cannot_be_packed_are_refused(content, why, tmp_path):
    (tmp_path / "rows").write_text(content)
    with pytest.raises(DataError, match=why):
        pack([tmp_path / "rows"], tmp_path / "packed", ReadOptions())


def test_a_packed_folder_is_the_only_input(tmp_path):
    file = write_jsonl(tmp_path / "rows.jsonl")
    pack([file], tmp_path / "packed", ReadOptions())
    with pytest.raises(DataError, match="must be the only input"):
        read_examples([tmp_path / "packed", file])
    with pytest.raises(DataError, match="must be a folder of rows"):
        read_examples(file, format="mapped")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    pack([write_svmlight(folder / "rows.svm")], folder / "packed", ReadOptions())
    return folder / "packed"


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_folder_is_a_data_error(packed, tmp_path, data):
    folder = tmp_path / "bent"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(packed, folder)
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place : place + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    path.write_bytes(content)
    try:
        same(read_examples(folder), read_examples(packed.parent / "rows.svm"))
    except DataError:
        return
    except AssertionError:
        # Names of labels and columns have no checksum; they are JSON that a person may edit.
        assert path.name == "about.json"


def test_numbers_out_of_range_are_refused_though_checksums_fit(packed, tmp_path):
    from manyhot.data.mapped.arrays import digests

    for name, dtype, value in (("columns", np.int32, 10**6), ("labels", np.int64, -1), ("feature.ends", np.int64, 10**9)):
        folder = tmp_path / name
        shutil.copytree(packed, folder)
        array = np.fromfile(folder / f"{name}.bin", dtype=dtype)
        array[5] = value
        array.tofile(folder / f"{name}.bin")
        about = json.loads((folder / "about.json").read_text())
        about["arrays"][name]["digests"] = digests(array)
        (folder / "about.json").write_text(json.dumps(about))
        with pytest.raises(DataError, match="is damaged"):
            read_examples(Path(folder))
