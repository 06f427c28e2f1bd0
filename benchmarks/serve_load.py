"""``manyhot serve`` on loopback: speed, reloads, stops, hostile requests; beside a plain FastAPI round scikit-learn.

    python -m benchmarks.serve_load --data FOLDER --model FOLDER [--parts PART ...] [--store FILE] [--page PAGE]

The model is one of goemotions. What a part (speed, reloads, stops, hostile) finds is kept in the store, and the page shows all
parts that are there. Needs the extra ``serve``. Takes about eight minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.text_sets import SETS
from benchmarks.tuning import processor
from manyhot import load_model
from manyhot._cores import available_cores

SECONDS = 5.0
WORKERS = (1, 2)
PARTS = ("speed", "reloads", "stops", "hostile")
PLAIN = """
import pickle, sys, uvicorn
from fastapi import FastAPI
pipeline, names = pickle.load(open(sys.argv[1], "rb"))
app = FastAPI()

@app.post("/predict")
def predict(body: dict):
    found = pipeline.predict(body["inputs"])
    return {"predictions": [{"labels": [n for n, yes in zip(names, row) if yes]} for row in found]}

@app.get("/health")
def health():
    return {"status": "ok"}

uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""


class Running:
    """A server in a process of its own."""

    def __init__(self, words: list[str], port: int | None = None) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
        if port is None:
            assert self.process.stderr is not None
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self.process.stderr.readline())
            assert found
            port = int(found[1])
        self.port = port
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
                    client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    if b" 200 " in client.recv(4096):
                        return
            except OSError:
                time.sleep(0.05)

    def memory(self) -> float:
        """Resident megabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def stop(self) -> int:
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=90)
        return self.process.returncode


def manyhot_server(model: Path, *flags: str) -> Running:
    return Running([sys.executable, "-m", "manyhot.cli", "serve", str(model), "--port", "0", *flags])


async def post(reader: Any, writer: Any, body: bytes) -> tuple[int, bool, bytes]:
    """``(status, whether the connection stays, body)`` of one request on an open connection."""
    writer.write(
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    writer.write(body)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head.lower())[1])  # type: ignore[index]
    content = await reader.readexactly(length)
    return int(head[9:12]), b"connection: close" not in head.lower(), content


class Load:
    """Clients that keep their connection and ask one after the other."""

    def __init__(self, port: int, texts: list[str], *, clients: int) -> None:
        self.port, self.texts, self.clients = port, texts, clients
        self.times: list[float] = []
        self.statuses: dict[int, int] = {}
        self.models: set[str] = set()
        self.lost: list[str] = []
        self.ending = False

    async def run(self, seconds: float | None = None) -> None:
        """Until the time is over, or ``ending`` is set."""
        until = time.perf_counter() + (seconds or 1e9)
        await asyncio.gather(*(self._client(number, until) for number in range(self.clients)))

    async def _client(self, number: int, until: float) -> None:
        draw = random.Random(number)
        while time.perf_counter() < until and not self.ending:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                # Nobody listens: no request was sent.
                await asyncio.sleep(0.01)
                continue
            try:
                stays = True
                while stays and time.perf_counter() < until and not self.ending:
                    body = json.dumps({"inputs": [draw.choice(self.texts)]}).encode()
                    started = time.perf_counter()
                    status, stays, content = await post(reader, writer, body)
                    self.times.append(time.perf_counter() - started)
                    self.statuses[status] = self.statuses.get(status, 0) + 1
                    self.models.add(json.loads(content).get("model", ""))
            except (OSError, asyncio.IncompleteReadError) as error:
                self.lost.append(repr(error))
            finally:
                writer.close()

    def line(self, seconds: float) -> list[str]:
        taken = sorted(self.times)
        rank = [1000 * taken[min(len(taken) - 1, int(share * len(taken)))] for share in (0.5, 0.99)]
        return [f"{len(taken) / seconds:,.0f}", *(f"{value:.2f}" for value in rank)]


def speed(server: Running, texts: list[str]) -> dict[int, list[str]]:
    """``{clients: [requests a second, p50, p99]}``."""
    found = {}
    for clients in (1, 32):
        asyncio.run(Load(server.port, texts, clients=clients).run(1.0))
        load = Load(server.port, texts, clients=clients)
        asyncio.run(load.run(SECONDS))
        assert load.statuses.keys() == {200}, load.statuses
        assert not load.lost, load.lost[:3]
        found[clients] = load.line(SECONDS)
    return found


def direct(model: Any, texts: list[str]) -> list[str]:
    """The same without a server: one row a call."""
    draw, taken, until = random.Random(0), [], time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        text, started = draw.choice(texts), time.perf_counter()
        model.predict([text])
        taken.append(time.perf_counter() - started)
    taken.sort()
    return [f"{len(taken) / SECONDS:,.0f}", *(f"{1000 * taken[int(share * len(taken))]:.2f}" for share in (0.5, 0.99))]


def plain_server(folder: Path, rows: Any) -> Running:
    """What people write themselves: FastAPI round a scikit-learn pipeline."""
    import pickle

    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import SGDClassifier
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    classifier = OneVsRestClassifier(SGDClassifier(loss="log_loss", max_iter=5, tol=None))
    pipeline = make_pipeline(TfidfVectorizer(min_df=2), classifier)
    pipeline.fit(rows.texts, rows.labels.dense().numpy())
    (folder / "plain.pickle").write_bytes(pickle.dumps((pipeline, list(rows.label_names))))
    (folder / "plain.py").write_text(PLAIN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return Running([sys.executable, str(folder / "plain.py"), str(folder / "plain.pickle"), str(port)], port)


def reloads(model: Path, folder: Path, texts: list[str], workers: int, count: int = 10) -> dict[str, Any]:
    """New models under load."""
    place = folder / f"reloaded-{workers}"
    shutil.copytree(model, place)
    server = manyhot_server(place, "--reload-every", "0.1", "--workers", str(workers))

    async def work() -> Load:
        load = Load(server.port, texts, clients=8)
        running = asyncio.ensure_future(load.run())
        await asyncio.sleep(1)
        for turn in range(count):
            fresh = await asyncio.to_thread(load_model, model)
            fresh.about["turn"] = turn
            before = len(load.models)
            await asyncio.to_thread(fresh.save, place)
            while len(load.models) == before:
                await asyncio.sleep(0.02)
        load.ending = True
        await running
        return load

    load = asyncio.run(work())
    code = server.stop()
    return {"reloads": count, "models": len(load.models), "statuses": load.statuses, "lost": len(load.lost), "exit": code}


def stops(model: Path, texts: list[str], workers: int, count: int = 20) -> dict[str, Any]:
    """SIGTERM under load, each time to a fresh server."""
    statuses: dict[int, int] = {}
    lost, codes = 0, set()
    for _ in range(count):
        server = manyhot_server(model, "--workers", str(workers))

        async def work(server: Running = server) -> Load:
            load = Load(server.port, texts, clients=16)
            running = asyncio.ensure_future(load.run())
            await asyncio.sleep(0.7)
            code = await asyncio.to_thread(server.stop)
            codes.add(code)
            load.ending = True
            await running
            return load

        load = asyncio.run(work())
        lost += len(load.lost)
        for status, number in load.statuses.items():
            statuses[status] = statuses.get(status, 0) + number
    return {"stops": count, "exit codes": sorted(codes), "statuses": statuses, "lost": lost}


def hostile_requests(draw: random.Random) -> list[tuple[str, bytes]]:
    """Kinds of requests that nobody should send."""

    def request(body: bytes) -> bytes:
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    junk = bytes(draw.randrange(256) for _ in range(200))
    lies = request(b"{}").replace(b"Content-Length: 2", b"Content-Length: 2\r\nContent-Length: 5")
    deep = b"[" * 100_000 + b"]" * 100_000
    return [
        ("broken JSON", request(b'{"inputs": ["a"' + junk[:20])),
        ("deep nesting", request(b'{"inputs": ' + deep + b"}")),
        ("a million mistakes", request(b'{"inputs": [' + b"1," * 900_000 + b"1]}")),
        ("wrong types", request(json.dumps({"inputs": draw.choice([1, None, {}, [[1]], [None], "a"])}).encode())),
        ("unknown names", request(b'{"inputs": ["a"], "__class__": 1}')),
        ("too many rows", request(json.dumps({"inputs": ["a"] * 5000}).encode())),
        ("long text", request(json.dumps({"inputs": ["a" * 300_000]}).encode())),
        ("a large number", request(b'{"inputs": ["a"], "top": ' + b"9" * 5000 + b"}")),
        ("not HTTP", junk),
        ("header flood", b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 50) for n in range(1500)) + b"\r\n"),
        ("other addresses", b"GET /../../%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        ("other methods", b"DELETE /predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        ("cut off", request(b'{"inputs": ["a"]}')[:-5]),
        ("slow sender", b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Le"),
        ("a length that lies", lies),
        ("a length and chunks", lies.replace(b"Length: 5", b"Length: 5\r\nTransfer-Encoding: chunked")),
        ("another site", request(b'{"inputs": ["a"]}').replace(b"Host", b"Sec-Fetch-Site: cross-site\r\nHost")),
        ("another name", request(b'{"inputs": ["a"]}').replace(b"localhost", b"evil.example")),
        (
            "100 MB announced",
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n" + b" " * 100_000,
        ),
        ("100 MB in chunks", b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ]


def attack(port: int, kind: str, content: bytes) -> str:
    """What came back: a status, or how the connection ended."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        try:
            client.sendall(content)
            if kind == "100 MB in chunks":
                piece = b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
                for _ in range(100):
                    client.sendall(piece)
            if kind == "cut off":
                client.shutdown(socket.SHUT_WR)
            answer = client.recv(4096)
        except OSError:
            return "closed"
    return answer[9:12].decode() if answer.startswith(b"HTTP/1.1 ") else "closed"


def hostile(model: Path, texts: list[str], count: int = 1000) -> dict[str, Any]:
    """Hostile requests, a few at a time; afterwards the server answers and has not grown."""
    from concurrent.futures import ThreadPoolExecutor

    server = manyhot_server(model, "--receive-timeout", "1")
    draw = random.Random(0)
    asyncio.run(Load(server.port, texts, clients=8).run(2.0))
    results: dict[str, dict[str, int]] = {}
    memory = []
    with ThreadPoolExecutor(8) as pool:
        # The first round makes the server allocate its buffers; growth counts from there.
        for part in range(4):
            kinds = [each for _ in range(count // 4 // 20 + 1) for each in hostile_requests(draw)][: count // 4]
            for (kind, _), got in zip(kinds, pool.map(lambda each: attack(server.port, *each), kinds), strict=True):
                results.setdefault(kind, {})[got] = results.setdefault(kind, {}).get(got, 0) + 1
            memory.append(server.memory())
            del part
    load = Load(server.port, texts, clients=4)
    asyncio.run(load.run(1.0))
    return {"answers": results, "memory": memory, "afterwards": load.statuses, "lost": len(load.lost), "exit": server.stop()}


def speeds(model: Path, folder: Path, rows: Any, texts: list[str]) -> dict[str, Any]:
    """``{who: {clients: [requests a second, p50, p99]}}``."""
    found: dict[str, Any] = {"the model, called directly": {1: direct(load_model(model), texts)}}
    for workers in WORKERS:
        server = manyhot_server(model, "--workers", str(workers))
        found[f"manyhot serve, {workers} worker{'s'[: workers - 1]}"] = speed(server, texts)
        server.stop()
    server = plain_server(folder, rows)
    found["plain FastAPI, scikit-learn"] = speed(server, texts)
    server.stop()
    return found


def measure(part: str, model: Path, folder: Path, rows: Any, texts: list[str]) -> Any:
    """What one part finds, by the number of workers where that matters."""
    if part == "speed":
        return speeds(model, folder, rows, texts)
    if part == "reloads":
        return {workers: reloads(model, folder, texts, workers) for workers in WORKERS}
    if part == "stops":
        return {workers: stops(model, texts, workers) for workers in WORKERS}
    return hostile(model, texts)


def page(found: dict[str, Any], command: str) -> str:
    """The result page of all parts that were measured."""
    lines = [
        "# `manyhot serve` on loopback",
        "",
        "Comments of goemotions, one row a request; server and clients share the cores that a part names. `load` is the",
        "machine's load when a part began: other work on all of its cores.",
        "",
    ]
    for part, written in (("speed", speed_lines), ("reloads", reload_lines), ("stops", stop_lines), ("hostile", hostile_lines)):
        if part in found:
            lines += [
                *written(found[part]["found"]),
                "",
                f"{found[part]['date']}, {found[part]['where']}, load {found[part]['load']:.1f}.",
                "",
            ]
    lines += [
        "The plain server is FastAPI (sync endpoint) and uvicorn round scikit-learn's TfidfVectorizer and one SGDClassifier",
        "for each label: about the same arithmetic, other weights.",
    ]
    return "\n".join([*lines, "", f"    {command}", ""])


def machine() -> str:
    """Where a part was measured."""
    cores = f"{available_cores()} of {os.cpu_count()} cores of {processor()}"
    return f"{cores}, Python {platform.python_version()}, torch {torch.__version__}"


def speed_lines(found: dict[str, Any]) -> list[str]:
    """The table of times."""
    lines = ["## Speed", "", "Clients keep their connection and ask one request after the other.", ""]
    lines += ["| who | clients | requests a second | p50 ms | p99 ms |", "|---|---:|---:|---:|---:|"]
    for who, own in found.items():
        lines += [f"| {who} | {clients} | " + " | ".join(values) + " |" for clients, values in own.items()]
    return lines


def reload_lines(found: dict[str, Any]) -> list[str]:
    """Answers while new models were taken in."""
    lines = ["## Reloads", "", "New models are saved to the folder under the load of 8 clients.", ""]
    lines += ["| workers | reloads | models that answered | answers | lost | exit code |", "|---:|---:|---:|---|---:|---:|"]
    for workers, own in found.items():
        cells = [workers, own["reloads"], own["models"], counted(own["statuses"]), own["lost"], own["exit"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def stop_lines(found: dict[str, Any]) -> list[str]:
    """Answers while servers were stopped."""
    lines = [
        "## Stops",
        "",
        "SIGTERM under the load of 16 clients, each time to a fresh server. Lost is a request that was sent",
    ]
    lines += ["and not answered.", "", "| workers | stops | answers | lost | exit codes |", "|---:|---:|---|---:|---|"]
    for workers, own in found.items():
        cells = [workers, own["stops"], counted(own["statuses"]), own["lost"], ", ".join(map(str, own["exit codes"]))]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def hostile_lines(found: dict[str, Any]) -> list[str]:
    """What hostile requests got."""
    total = sum(sum(own.values()) for own in found["answers"].values())
    lines = [
        "## Hostile requests",
        "",
        f"{total:,} of {len(found['answers'])} kinds, 8 at a time; `closed` is a connection that",
    ]
    lines += ["ended without an answer.", "", "| kind | answers |", "|---|---|"]
    lines += [f"| {kind} | {counted(own)} |" for kind, own in found["answers"].items()]
    memory = ", ".join(f"{value:.0f}" for value in found["memory"])
    lines += ["", f"Resident memory after each quarter, MB: {memory}. Afterwards answers {counted(found['afterwards'])}, lost"]
    return [*lines, f"{found['lost']}, exit code {found['exit']}."]


def counted(answers: dict[Any, int]) -> str:
    """Statuses and how often each came."""
    return ", ".join(f"{status}: {number:,}" for status, number in sorted(answers.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="a model of goemotions")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows, test = SETS["goemotions"](given.data)
    texts = list(test.texts or [])[:2000]
    found: dict[str, Any] = json.loads(given.store.read_text()) if given.store and given.store.exists() else {}
    for part in given.parts:
        about = {"date": time.strftime("%Y-%m-%d"), "where": machine(), "load": os.getloadavg()[0]}
        with tempfile.TemporaryDirectory() as draft:
            # Keys as the store gives them back.
            found[part] = json.loads(json.dumps({**about, "found": measure(part, given.model, Path(draft), rows, texts)}))
        sys.stderr.write(json.dumps({part: found[part]}) + "\n")
        if given.store:
            given.store.write_text(json.dumps(found))
    text = page(found, "python -m benchmarks.serve_load --data DATA --model MODEL --page PAGE")
    if given.page:
        given.page.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
