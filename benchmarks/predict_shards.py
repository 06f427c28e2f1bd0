"""A million rows predicted in eight parts, half of them killed on the way: the folder is that of one call, byte for byte.

    python -m benchmarks.predict_shards --rows 1000000 --shards 8

Texts are drawn; a small linear model labels them. Some parts run at a time; those that were killed are called again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from manyhot import Examples, SparseLabels, train

WORDS = {"eggs": ("egg", "yolk", "boil"), "pans": ("pan", "iron", "steel"), "bread": ("dough", "flour", "yeast")}
FILES = 32


def texts(rows: int, seed: int) -> list[tuple[str, list[int]]]:
    """Drawn texts with their labels."""
    draw = random.Random(seed)
    found = []
    for _ in range(rows):
        labels = [place for place in range(3) if draw.random() < 0.4]
        words = [draw.choice(list(WORDS.values())[place]) for place in labels for _ in range(2)] + ["how", "to"]
        found.append((" ".join(words), labels))
    return found


def write_files(folder: Path, rows: int) -> list[str]:
    """``FILES`` files of rows."""
    names = []
    for part in range(FILES):
        path = folder / f"rows-{part:03}.jsonl"
        own = range(part * rows // FILES, (part + 1) * rows // FILES)
        found = zip(own, texts(len(own), part), strict=True)
        path.write_text("".join(json.dumps({"id": f"r{row}", "text": text}) + "\n" for row, (text, _) in found))
        names.append(str(path))
    return names


def start(model: Path, files: list[str], out: Path, part: str | None) -> subprocess.Popen[bytes]:
    """A call of the command."""
    shard = [] if part is None else ["--shard", part]
    line = [sys.executable, "-m", "manyhot.cli", "predict", str(model), *files, "--to-folder", str(out), "--scores", *shard]
    return subprocess.Popen(line, stderr=subprocess.DEVNULL)


def digest(folder: Path) -> tuple[int, str]:
    """Bytes and a digest of all outputs, by name."""
    total, found = 0, hashlib.blake2b()
    for path in sorted(folder.glob("[!.]*")):
        content = path.read_bytes()
        total += len(content)
        found.update(path.name.encode() + b"\0" + content)
    return total, found.hexdigest()[:16]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=2, help="parts that run at the same time")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        known = texts(240, 1000)
        labels = SparseLabels.from_lists([own for _, own in known], num_labels=3)
        train(Examples(labels, tuple(WORDS), texts=[text for text, _ in known])).save(folder / "model")
        files = write_files(folder, given.rows)
        began = time.monotonic()
        assert start(folder / "model", files, folder / "whole", None).wait() == 0
        alone = time.monotonic() - began
        draw, waiting, kills, unfinished = random.Random(0), list(range(1, given.shards + 1)), 0, 0
        to_kill = set(draw.sample(waiting, given.shards // 2))
        began = time.monotonic()
        while waiting:
            pair, waiting = waiting[: given.at_once], waiting[given.at_once :]
            running = [(part, start(folder / "model", files, folder / "parts", f"{part}/{given.shards}")) for part in pair]
            for part, process in running:
                if part in to_kill:
                    time.sleep(draw.uniform(0.1, 0.3) * alone / given.shards)
                    process.kill()
                    to_kill.discard(part)
                    kills += 1
            for part, process in running:
                if process.wait() != 0:
                    unfinished += 1
                    waiting.append(part)
        took = time.monotonic() - began
        drafts = len(list((folder / "parts").glob(".*.part")))
        whole, parts = digest(folder / "whole"), digest(folder / "parts")
    print(f"{given.rows:,} rows in {FILES} files; one call: {alone:.0f} s, {whole[0]:,} bytes, digest {whole[1]}")
    print(
        f"{given.shards} parts, {given.at_once} at a time, {kills} killed, {unfinished} of them before their end: {took:.0f} s"
    )
    print(f"{parts[0]:,} bytes, digest {parts[1]}, drafts left by killed parts: {drafts}")
    print("the same bytes" if whole == parts else "OTHER BYTES")
    sys.exit(whole != parts)


if __name__ == "__main__":
    main()
