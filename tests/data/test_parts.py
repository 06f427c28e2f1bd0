"""Files read in parts: what several processes read together is what one reads, bit by bit, or they read the file whole."""

import json
import threading
from collections import namedtuple
from dataclasses import asdict

import numpy as np
import pytest
import torch

from manyhot.data import packed, parts
from manyhot.data.files.line_block import lines_between
from manyhot.data.files.problems import DataError
from manyhot.data.packed import from_messages, to_messages
from manyhot.data.parts import read_together
from manyhot.data.read import options_from, read_with
from manyhot.training.run.processes import Processes
from training.run.process_runs import in_processes

Row = namedtuple("Row", ("place", "text", "own", "numbers"))
WORDS = ("salt", "bread", "wässer", "knife", "oven", "apple")


def rows(count, seed=0):
    """Texts, their labels and some numbers."""
    draw = np.random.default_rng(seed)
    for place in range(count):
        own = [word for word in WORDS if draw.random() < 0.3]
        yield Row(place, " ".join([*own, f"noise{draw.integers(40)}"]), own, draw.normal(size=3).round(3).tolist())


def jsonl(path, make):
    path.write_text("".join(json.dumps(make(row), ensure_ascii=False) + "\n" for row in rows(900)), encoding="utf-8")


def lines(path, make):
    path.write_text("".join(make(row) + "\n" for row in rows(900)), encoding="utf-8")


def svm(first, high=50):
    """Lines whose features count from ``first``, which occurs once, up to ``high``."""

    def make(row):
        place = row.place
        columns = sorted({first if place == 899 else 3, 4 + place % 40, high - 1 if place % 300 == 7 else 5})
        labels = ",".join(str(WORDS.index(word)) for word in row.own)
        return f"{labels} " + " ".join(f"{column}:{place % 7}.5" for column in columns)

    return make


WRITERS = {
    "texts.jsonl": (jsonl, lambda row: {"text": row.text, "labels": row.own}),
    "ids.jsonl": (jsonl, lambda row: {"id": f"r{row.place}", "text": row.text, "labels": row.own}),
    "soft.jsonl": (
        jsonl,
        lambda row: {"text": row.text, "labels": dict.fromkeys(row.own, 0.5 if row.place > 700 else 1)},
    ),
    "strings.jsonl": (jsonl, lambda row: {"text": row.text, "labels": ";".join(row.own)}),
    "numbers.jsonl": (jsonl, lambda row: {**dict(zip("abc", row.numbers, strict=True)), "labels": row.own}),
    "columns.jsonl": (jsonl, lambda row: {"text": row.text, **{word: int(word in row.own) for word in WORDS}}),
    "fasttext.txt": (lines, lambda row: " ".join([*(f"__label__{word}" for word in row.own), row.text])),
    "lib.txt": (lines, lambda row: f"d{row.place}\t{' '.join(row.own)}\t{row.text} and more words here"),
    "ids.tsv.txt": (lines, lambda row: f"{row.text} and more\t{row.place % 9},{10 + row.place % 3}"),
    "one.svm": (lines, svm(1)),
    "zero.svm": (lines, svm(0)),
    "far.svm": (lines, svm(1, 90_000_000)),
}
# What only the whole file tells: then it is read whole.
WHOLE = {
    "unknown.jsonl": (jsonl, lambda row: {"text": row.text, "labels": row.own if row.place % 200 else None}),
    "late.jsonl": (jsonl, lambda row: {"text": row.text, "labels": "|".join(row.own) if row.place > 700 else "salt"}),
    "nominal.jsonl": (jsonl, lambda row: {"a": row.numbers[0], "b": "xyz"[row.place % 3], "labels": row.own}),
    "bad.jsonl": (jsonl, lambda row: {"text": row.text if row.place != 800 else 7, "labels": row.own}),
    "table.csv": (lines, lambda row: f"{row.text},{';'.join(row.own)}" if row.place else "text,labels"),
}


def together(paths, count, **given):
    """``(what each of count processes reads, the errors)``; threads stand for processes."""
    barrier, sent, found, errors = threading.Barrier(count), [[]] * count, [None] * count, [None] * count

    def work(rank):
        def gather(messages):
            sent[rank] = list(messages)
            barrier.wait(60)
            every = list(sent)
            barrier.wait(60)
            return every

        try:
            found[rank] = read_together(paths, options_from(**given), format=None, rank=rank, count=count, gather=gather)
        except DataError as error:
            errors[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found, errors


def same(one, two):
    """Everything is the same, types of numbers included."""
    assert one.label_names == two.label_names
    assert (one.texts, one.ids, one.feature_names, one.absent, one.unseen) == (
        two.texts, two.ids, two.feature_names, two.absent, two.unseen
    )  # fmt: skip
    assert [asdict(each) for each in one.source] == [asdict(each) for each in two.source]
    for mine, other in ((one.labels, two.labels), (one.unknown, two.unknown)):
        assert (mine is None) == (other is None)
        for name in ("indices", "offsets", "values") if mine is not None else ():
            left, right = getattr(mine, name), getattr(other, name)
            assert (left is None and right is None) or (left.dtype == right.dtype and torch.equal(left, right))
    assert type(one.features) is type(two.features)
    if isinstance(one.features, np.ndarray):
        assert one.features.dtype == two.features.dtype
        assert np.array_equal(one.features, two.features)
    elif one.features is not None:
        assert one.features.shape == two.features.shape
        for name in ("data", "indices", "indptr"):
            left, right = getattr(one.features, name), getattr(two.features, name)
            assert left.dtype == right.dtype
            assert np.array_equal(left, right)


@pytest.fixture
def counted(monkeypatch):
    """Small files are cut too; the list of files that were read whole."""
    monkeypatch.setattr(parts, "LEAST_BYTES", 100)
    read, whole = parts.read_path, []
    monkeypatch.setattr(parts, "read_path", lambda path, *rest: whole.append(str(path)) or read(path, *rest))
    return whole


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", list(WRITERS))
def test_parts_of_a_file_make_the_examples_of_the_whole(name, count, tmp_path, counted):
    write, make = WRITERS[name]
    write(tmp_path / name, make)
    found, _ = together([tmp_path / name], count)
    for each in found:
        same(each, read_with([tmp_path / name], options_from()))
    assert name == "zero.svm" or not counted, "no process read all of it"


@pytest.mark.parametrize("name", list(WHOLE))
def test_a_file_that_its_parts_do_not_tell_is_read_whole(name, tmp_path, counted):
    write, make = WHOLE[name]
    write(tmp_path / name, make)
    given = {"on_problem": "collect"}
    found, _ = together([tmp_path / name], 2, **given)
    for each in found:
        same(each, read_with([tmp_path / name], options_from(**given)))
    assert counted


def test_several_files_of_several_kinds_are_shared_out(tmp_path, counted):
    names = ["texts.jsonl", "fasttext.txt", "table.csv", "ids.jsonl", "lib.txt"]
    for name in names:
        write, make = (WRITERS | WHOLE)[name]
        write(tmp_path / name, make)
    paths = [tmp_path / name for name in names]
    found, _ = together(paths, 3)
    for each in found:
        same(each, read_with(paths, options_from()))
    assert counted == [str(tmp_path / "table.csv")], "one process read it, once"


def test_what_is_wrong_is_said_as_one_process_says_it(tmp_path, counted):
    write, make = WHOLE["bad.jsonl"]
    write(tmp_path / "bad.jsonl", make)
    _, errors = together([tmp_path / "bad.jsonl"], 2)
    with pytest.raises(DataError) as alone:
        read_with([tmp_path / "bad.jsonl"], options_from())
    assert [str(each) for each in errors] == [str(alone.value)] * 2
    assert "line 801" in str(alone.value)


@pytest.mark.parametrize("content", [b"a\nbb\n\nccc\nd", b"a", b"\n\n\n", b"a" * 50 + b"\nb\n"])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_line_is_in_one_part(content, count, tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(content)
    found = [lines_between(path, place, count) for place in range(count)]
    assert b"".join(found) == content
    assert all(not each or each.endswith(b"\n") for each in found[:-1] if each != content[-len(each) :])


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_messages_give_the_examples_back(size, tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "MESSAGE_BYTES", size)
    for name in ("texts.jsonl", "ids.jsonl", "far.svm", "soft.jsonl", "unknown.jsonl", "numbers.jsonl"):
        write, make = (WRITERS | WHOLE)[name]
        write(tmp_path / name, make)
        examples = read_with([tmp_path / name], options_from())
        parts_of = [examples, examples[:3], examples[:0]]
        for found, wanted in zip(from_messages(to_messages(parts_of)), parts_of, strict=True):
            same(found, wanted)


def test_no_message_is_long(tmp_path, monkeypatch):
    """A process holds the rows once, and one message."""
    monkeypatch.setattr(packed, "MESSAGE_BYTES", 2000)
    for name in ("ids.jsonl", "far.svm"):
        write, make = WRITERS[name]
        write(tmp_path / name, make)
        _, *rest = to_messages([read_with([tmp_path / name], options_from())])
        assert len(rest) > 10
        assert max(map(len, rest)) < 2200


def check_together(rank, path, folder):
    """In a real process: what all read together is what one reads; how many bytes of the file this one parsed."""
    processes, parsed, between = Processes.current(), [], parts.lines_between
    parts.lines_between = lambda *rest: parsed.append(between(*rest)) or parsed[-1]
    place = {"rank": rank, "count": processes.count, "gather": processes.in_turn}
    same(read_together([path], options_from(), format=None, **place), read_with([path], options_from()))
    (folder / f"rank{rank}.txt").write_text(str(sum(map(len, parsed))))
    # A process that leaves at once could take the store away from one that is still joining.
    torch.distributed.barrier()


def test_real_processes_read_a_share_each(tmp_path):
    path = tmp_path / "texts.jsonl"
    jsonl(path, lambda row: {"text": row.text * 3, "labels": row.own})
    assert path.stat().st_size > parts.LEAST_BYTES
    assert in_processes(check_together, path, tmp_path, count=3) == [0] * 3
    shares = [int((tmp_path / f"rank{rank}.txt").read_text()) for rank in range(3)]
    assert sum(shares) == path.stat().st_size
    assert max(shares) < 0.4 * path.stat().st_size
