"""Connections that want to be held: clients that read nothing, clients that come in crowds, and requests for other names."""

import contextlib
import json
import os
import re
import socket
import time
from pathlib import Path

import pytest

from serve.servers import PATIENCE, Server

pytest.importorskip("fastapi", reason="the extra `serve` is not installed; make test-production installs it")

from manyhot.serve.guard import PACE
from manyhot.serve.listening import OTHER_FILES, connection_limit
from manyhot.serve.request_head import allowed_hosts
from manyhot.serve.settings import ServeSettings

PROC = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")

# Enough for 20,000 rows on a busy machine.
MANY = ("--max-rows", 20_000, "--max-waiting", 100_000, "--timeout", PATIENCE)


def post(body, *headers):
    lines = [b"POST /predict HTTP/1.1", b"Host: localhost", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def open_files(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def answer_of(server, content):
    """All that comes until the connection is closed."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
        client.sendall(content)
        found = b""
        while part := client.recv(65536):
            found += part
    return found


@PROC
def test_a_client_that_reads_nothing_is_cut_off(folders):
    server = Server(folders["texts"], "--receive-timeout", 1, *MANY)
    before = open_files(server)
    body = json.dumps({"inputs": ["salt"] * 20_000, "top": 6}).encode()
    clients = [socket.socket() for _ in range(2)]
    for client in clients:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(post(body))
    server.wait_until(lambda: b'path="/predict",status="200"} 2' in server.ask("GET", "/metrics")[1].encode())
    # More waits for each of them than the system holds for a connection.
    server.wait_until(lambda: open_files(server) <= before)
    assert server.predict(["salt"])[0] == 200
    for client in clients:
        client.close()
    assert server.stop()[0] == 0


def test_a_client_that_reads_slowly_gets_everything(folders):
    server = Server(folders["texts"], "--receive-timeout", 1, *MANY)
    body = json.dumps({"inputs": ["salt"] * 20_000, "top": 6}).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        client.connect(("127.0.0.1", server.port))
        client.sendall(post(body, b"Connection: close"))
        found = b""
        for _ in range(6):
            found += client.recv(1 << 20, socket.MSG_WAITALL)
            time.sleep(0.6)
        while part := client.recv(1 << 20):
            found += part
    head, content = found.split(b"\r\n\r\n", 1)
    assert len(content) == int(re.search(rb"content-length: (\d+)", head)[1])
    assert len(json.loads(content)["predictions"]) == 20_000
    assert server.stop()[0] == 0


def test_a_long_body_may_take_longer_than_a_short_one_and_one_that_stalls_is_refused(folders):
    server = Server(folders["texts"], "--receive-timeout", 4)
    body = json.dumps({"inputs": ["salt"], "top": 1}).encode().ljust(PACE + 1000)
    for parts, status in (([body[:PACE], body[PACE:]], b"200"), ([body[:1000], body[1000:]], b"408")):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
            client.sendall(post(parts[0], b"Connection: close").replace(b"%d" % len(parts[0]), b"%d" % len(body), 1))
            time.sleep(5)
            with contextlib.suppress(ConnectionError):
                client.sendall(parts[1])
            assert client.recv(65536).split()[1] == status
    assert server.stop()[0] == 0


def test_more_connections_than_allowed_are_told_so(folders):
    server = Server(folders["texts"], "--max-connections", 5, "--receive-timeout", 60)
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(5)]
    found = answer_of(server, post(b'{"inputs": ["salt"]}'))
    assert found.startswith(b"HTTP/1.1 429 Too Many Requests")
    assert b"5 connections are open already" in found
    for client in idle:
        client.close()
    server.wait_until(lambda: server.predict(["salt"])[0] == 200)
    assert server.stop()[0] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits of open files are set in a process of their own")
def test_there_are_no_more_connections_than_the_system_has_files_for():
    import multiprocessing

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        raised, bounded = pool.apply(_rooms)
    assert raised == 500
    assert bounded == 600 - OTHER_FILES


def _rooms():
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 600))
    raised = connection_limit(300), connection_limit(5000)
    return raised[0] + 200, raised[1]


def test_a_request_with_a_length_and_chunks_ends_its_connection(texts_server):
    both = post(b"", b"Transfer-Encoding: chunked").replace(b"Length: 0", b"Length: 5")
    found = answer_of(texts_server, both + b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.count(b"HTTP/1.1") == 1
    assert b"must have Content-Length or Transfer-Encoding" in found


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "LOCALHOST:8000"}, 200),
        ({"Host": "model.localhost"}, 200),
        ({"Host": "127.0.0.1:1"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "192.168.0.7"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example:80"}, 421),
        ({"Host": "[::1].evil.example"}, 421),
        ({"Host": ""}, 421),
    ],
)
def test_pages_of_other_sites_may_not_ask(texts_server, headers, status):
    got, told = texts_server.ask("POST", "/predict", {"inputs": ["salt"]}, headers)
    assert got == status, told


def test_old_clients_name_no_host(texts_server):
    assert answer_of(texts_server, b"GET /health HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_page_of_another_site_may_link_to_this_one(texts_server):
    assert texts_server.ask("GET", "/", None, {"Sec-Fetch-Site": "cross-site"})[0] == 200


@pytest.mark.parametrize(
    ("hosts", "address", "allowed"),
    [
        ("", "127.0.0.1", set()),
        ("", "::1", set()),
        ("", "0.0.0.0", None),
        ("*", "127.0.0.1", None),
        ("Example.org, b.example", "127.0.0.1", {"example.org", "b.example"}),
        ("example.org", "0.0.0.0", {"example.org"}),
    ],
)
def test_names_are_asked_for_where_a_server_is_for_this_machine(hosts, address, allowed):
    assert allowed_hosts(ServeSettings(hosts=hosts), address) == allowed


def test_a_name_that_was_allowed_is_answered(folders):
    server = Server(folders["texts"], "--hosts", "models.example")
    assert server.ask("GET", "/health", None, {"Host": "models.example"})[0] == 200
    assert server.ask("GET", "/health", None, {"Host": "other.example"})[0] == 421
    assert server.stop()[0] == 0


def test_hosts_are_words():
    with pytest.raises(ValueError, match="`hosts` must be names separated by commas; got 5"):
        ServeSettings(hosts=5)
