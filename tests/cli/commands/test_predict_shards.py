"""`manyhot predict` in parts: their union is one run's output byte for byte, also after kills."""

import gzip
import json
import random
import signal
import subprocess
import time

import pytest

from cli.processes import command, environment
from manyhot.cli.io.shards import Shard


@pytest.fixture(scope="module")
def many(posts, tmp_path_factory):
    """Files of texts: one of 9,000 rows, and six small ones, of which one has no rows' names and one is compressed."""
    folder = tmp_path_factory.mktemp("many")
    lines = (posts / "test.jsonl").read_text().splitlines()
    numbered = [json.dumps({"id": f"r{place}", "text": json.loads(lines[place % len(lines)])["text"]}) for place in range(9000)]
    (folder / "large.jsonl").write_text("\n".join(numbered) + "\n")
    for part in range(5):
        (folder / f"part{part}.jsonl").write_text("\n".join(numbered[part * 100 : part * 100 + 90 + part]) + "\n")
    (folder / "part5.jsonl.gz").write_bytes(gzip.compress("\n".join(numbered[:70]).encode()))
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*")}


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_rows_in_parts_are_the_rows_of_one_run(run, trained, many, tmp_path, format):
    flags = ["--output-format", format, "--scores"]
    run("predict", trained, many / "large.jsonl", many / "part0.jsonl", *flags, "--to", tmp_path / "whole")
    for part in (3, 1, 2, 4):
        to = tmp_path / f"part{part}"
        run("predict", trained, many / "large.jsonl", many / "part0.jsonl", *flags, "--shard", f"{part}/4", "--to", to)
    parts = [(tmp_path / f"part{part}").read_bytes() for part in (1, 2, 3, 4)]
    assert b"".join(parts) == (tmp_path / "whole").read_bytes()
    assert sum(map(bool, parts)) == 3


@pytest.mark.parametrize("sizes", [[], [4], [4096] * 7 + [3], [1, 1, 5000]])
@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_every_block_is_in_one_part_and_parts_follow_each_other(sizes, count):
    parts = [list(Shard(place, count).blocks(sizes)) for place in range(count)]
    assert [block for part in parts for block in part] == list(range(len(sizes)))


def test_files_in_parts_are_skipped_where_they_are_there_and_fill_one_folder(run, trained, many, tmp_path):
    files = [many / f"part{part}.jsonl" for part in range(5)] + [many / "part5.jsonl.gz"]
    done = run("predict", trained, *files, "--to-folder", tmp_path / "whole")
    assert "70 rows" in done.err
    run("predict", trained, *files, "--to-folder", tmp_path / "parts", "--shard", "2/4")
    assert set(contents(tmp_path / "parts")) == {"part1.jsonl", "part5.jsonl"}
    before = (tmp_path / "parts" / "part1.jsonl").stat().st_mtime_ns
    done = run("predict", trained, *files, "--to-folder", tmp_path / "parts")
    assert "2 of 6 files exist already" in done.err
    assert (tmp_path / "parts" / "part1.jsonl").stat().st_mtime_ns == before
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--shard", "0/4", "ROWS"], "--shard must be i/n with i from 1 to n"),
        (["--shard", "5/4", "ROWS"], "--shard must be i/n"),
        (["--shard", "1/2"], "need files that can be read more than once"),
        (["--to-folder", "OUT"], "need files that can be read more than once"),
        (["--to-folder", "OUT", "--to", "x.jsonl", "ROWS"], "Leave one of them out"),
        (["--to-folder", "OUT", "ROWS", "ROWS"], "would both be written to"),
    ],
)
def test_parts_that_cannot_be_are_refused(run, trained, many, tmp_path, monkeypatch, flags, words):
    monkeypatch.chdir(tmp_path)
    given = [str(many / "part0.jsonl") if flag == "ROWS" else flag for flag in flags]
    done = run("predict", trained, *given)
    assert done.code == 2
    assert words in " ".join(done.err.split())
    assert not contents(tmp_path)


def test_a_folder_of_other_predictions_is_refused(run, trained, many, tmp_path):
    run("predict", trained, many / "part0.jsonl", "--to-folder", tmp_path / "out")
    done = run("predict", trained, many / "part1.jsonl", "--to-folder", tmp_path / "out", "--scores")
    assert done.code == 2
    assert "with other flags" in " ".join(done.err.split())


@pytest.mark.slow
def test_killed_parts_are_started_again_and_give_the_folder_of_one_run(run, trained, many, tmp_path):
    """Three processes, two of them killed on the way; what they left half-written has no output's name."""
    files = [many / f"part{part}.jsonl" for part in range(5)] + [many / "large.jsonl"]
    run("predict", trained, *files, "--to-folder", tmp_path / "whole")
    draw = random.Random(0)
    killed = {1, 2}
    while killed:
        killed = _start(trained, files, tmp_path / "out", killed, draw)
    assert _start(trained, files, tmp_path / "out", set(), draw) == set()
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert not list((tmp_path / "out").glob(".*.part"))


def _start(trained, files, out, kill, draw):
    """One process for each of three parts; those of ``kill`` are killed, once in four attempts after they ended."""
    lines = [command("predict", trained, *files, "--to-folder", out, "--shard", f"{part}/3") for part in (1, 2, 3)]
    started = [subprocess.Popen(line, env=environment(), stderr=subprocess.DEVNULL) for line in lines]
    began = time.monotonic()
    for place in sorted(kill):
        time.sleep(max(0.0, 4 * draw.random() - (time.monotonic() - began)))
        started[place].send_signal(signal.SIGKILL)
    codes = [process.wait(120) for process in started]
    assert all(code in (0, -signal.SIGKILL) for code in codes)
    return {place for place, code in enumerate(codes) if code and draw.random() < 0.5}
