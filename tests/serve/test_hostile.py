"""A thousand hostile requests: each is refused or cut off, none is a 500, and the server does not grow."""

import json
import random
import re
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serve.servers import PATIENCE, Server

pytest.importorskip("fastapi", reason="the extra `serve` is not installed; make test-production installs it")

COUNT = 1000
# Megabytes that a server may grow by after the first quarter of the requests, which fills its buffers.
GROWTH = 20


def post(body):
    return b"POST /predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body


HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\n"
# What is sent, and the statuses that may come back; "closed" is a connection that ended without an answer.
KINDS = {
    "broken JSON": (post(b'{"inputs": ["a"\xff\x00'), {"422"}),
    "deep nesting": (post(b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), {"422"}),
    "very many mistakes": (post(b'{"inputs": [' + b"1," * 900_000 + b"1]}"), {"413"}),
    "very many names": (post(b'{"inputs": ["a"]' + b"".join(b',"%d":1' % name for name in range(100_000)) + b"}"), {"422"}),
    "wrong types": (post(b'{"inputs": [[1], null, {}, 2]}'), {"422"}),
    "unknown names": (post(b'{"inputs": ["a"], "__class__": 1}'), {"422"}),
    "too many rows": (post(json.dumps({"inputs": ["a"] * 5000}).encode()), {"413"}),
    "a long text": (post(json.dumps({"inputs": ["a" * 300_000]}).encode()), {"413"}),
    "a large number": (post(b'{"inputs": ["a"], "top": ' + b"9" * 5000 + b"}"), {"422"}),
    "not HTTP": (bytes(random.Random(0).randrange(256) for _ in range(200)), {"400", "closed"}),
    "header flood": (HEAD + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 50) for n in range(1500)) + b"\r\n", {"400", "closed"}),
    "other addresses": (b"GET /../../%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", {"404"}),
    "cut off": (post(b'{"inputs": ["a"]}')[:-5], {"400", "408", "closed"}),
    "slow headers": (HEAD + b"Content-Le", {"closed"}),
    "slow body": (HEAD + b"Content-Length: 50\r\nConnection: close\r\n\r\n{", {"408"}),
    "a length and chunks": (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {"400"}),
    "another site": (post(b'{"inputs": ["a"]}').replace(b"Host", b"Sec-Fetch-Site: cross-site\r\nHost"), {"403"}),
    "another name": (post(b'{"inputs": ["a"]}').replace(b"localhost", b"evil.example"), {"421"}),
    "a long address": (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", {"400"}),
    "two lengths": (HEAD + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}", {"400"}),
    "100 MB announced": (HEAD + b"Content-Length: 104857600\r\n\r\n" + b" " * 100_000, {"413", "closed"}),
    "100 MB in chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", {"408", "413", "closed"}),
}


def attack(port, kind):
    """The status that came back, or ``"closed"``."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        try:
            client.sendall(KINDS[kind][0])
            if kind == "100 MB in chunks":
                for _ in range(100):
                    client.sendall(b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n")
            answer = client.recv(4096)
        except ConnectionError:
            return "closed"
    return answer[9:12].decode() if answer.startswith(b"HTTP/1.1 ") else "closed"


def megabytes(server):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_thousand_hostile_requests_are_refused_and_leave_no_memory_behind(folders):
    server = Server(folders["texts"], "--receive-timeout", 1)
    kinds = [list(KINDS)[place % len(KINDS)] for place in range(COUNT)]
    memory, got = [], Counter()
    with ThreadPoolExecutor(16) as pool:
        for quarter in range(4):
            part = kinds[quarter * COUNT // 4 : (quarter + 1) * COUNT // 4]
            got.update(zip(part, pool.map(lambda kind: attack(server.port, kind), part), strict=True))
            memory.append(megabytes(server))
    assert server.predict(["salt"])[0] == 200
    code, said = server.stop()
    assert sum(got.values()) == COUNT
    for kind, status in got:
        assert status in KINDS[kind][1], (kind, status)
    assert max(memory) - memory[0] < GROWTH, memory
    assert code == 0
    assert "Traceback" not in said
