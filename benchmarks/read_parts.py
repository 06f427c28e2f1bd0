"""Files read by several processes together: seconds and memory of each process, beside reading all of it in each.

    python -m benchmarks.read_parts --rows 300000

Texts are drawn and written as JSON lines. Every process is fresh. Its memory is the most that it held at any time, less what
it held before it read.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import socket
import tempfile
import time
from pathlib import Path
from typing import Any


def write_rows(path: Path, rows: int) -> None:
    """Texts of 30 words with two of 5,000 labels each."""
    draw = random.Random(0)
    with path.open("w") as file:
        for _ in range(rows):
            text = " ".join(f"word{int(draw.paretovariate(0.8))}" for _ in range(30))
            labels = [f"label {draw.randrange(5000)}" for _ in range(2)]
            file.write(json.dumps({"text": text, "labels": labels}) + "\n")


def work(rank: int, count: int, port: int, path: Path, share: bool, queue: Any) -> None:
    """Read, and tell seconds and MB."""
    import torch

    from manyhot.data.parts import read_together
    from manyhot.data.read import options_from, read_with
    from manyhot.training.run.processes import several_processes

    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with several_processes() as processes:
        processes.agreed(0.0)
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        options = options_from()
        if share:
            place: dict[str, Any] = {"rank": rank, "count": count, "gather": processes.in_turn}
            examples = read_together([path], options, format=None, **place)
        else:
            examples = read_with([path], options)
        took, most = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        queue.put((rank, len(examples), took, most / 1024))
        processes.agreed(0.0)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.jsonl"
        write_rows(path, given.rows)
        print(f"{given.rows:,} rows, {path.stat().st_size / 1e6:.0f} MB of JSON lines, {os.cpu_count()} cores")
        print("| processes | each reads | slowest s | most MB a process |")
        print("|---|---|---|---|")
        for count, share in ((1, False), (2, False), (2, True), (4, False), (4, True)):
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                port = listener.getsockname()[1]
            queue = context.Queue()
            started = [context.Process(target=work, args=(rank, count, port, path, share, queue)) for rank in range(count)]
            for process in started:
                process.start()
            told = [queue.get(timeout=600) for _ in started]
            for process in started:
                process.join()
            assert {rows for _, rows, _, _ in told} == {given.rows}
            what = "a share" if share else "all"
            print(f"| {count} | {what} | {max(t for *_, t, _ in told):.1f} | {max(m for *_, m in told):.0f} |", flush=True)


if __name__ == "__main__":
    main()
