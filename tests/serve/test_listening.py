"""A server that stops: whoever has connected is answered, at whatever moment the socket is closed."""

import asyncio
import socket
import sys

import pytest

from manyhot.serve.listening import accept_waiting, listen, refuse_connections

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="packet filters are Linux's")
def test_new_clients_are_turned_away_and_those_that_wait_are_kept():
    listening = listen("127.0.0.1", 0)
    with socket.create_connection(listening.getsockname()) as early:
        early.sendall(b"hello")
        assert refuse_connections(listening)
        with pytest.raises(TimeoutError):
            socket.create_connection(listening.getsockname(), timeout=0.2)
        listening.setblocking(False)
        (accepted,) = accept_waiting(listening)
        listening.close()
        accepted.setblocking(True)
        assert accepted.recv(10) == b"hello"
        accepted.sendall(b"and back")
        assert early.recv(10) == b"and back"
        accepted.close()


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_connections_that_were_not_accepted_yet_are_answered(turns):
    """After no turn of the loop they wait in the kernel; after two, asyncio has accepted them and made no transport yet."""
    uvicorn = pytest.importorskip("uvicorn", reason="the extra `serve` is not installed; make test-production installs it")
    from manyhot.serve.server import LimitedProtocol, ModelServer

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def stopped_under_load():
        listening = listen("127.0.0.1", 0)
        config = uvicorn.Config(app, http=LimitedProtocol, loop="asyncio", ws="none", log_config=None, lifespan="off")
        config.load()
        server = ModelServer(config, None, None, listening, supervised=False)
        server.lifespan = config.lifespan_class(config)
        await server.startup([listening])
        clients = [socket.create_connection(listening.getsockname(), timeout=10) for _ in range(20)]
        for client in clients:
            client.sendall(REQUEST)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.shutdown([listening])
        answers = [client.recv(4096) for client in clients]
        for client in clients:
            client.close()
        return answers

    answers = asyncio.run(stopped_under_load())
    assert [answer[:15] for answer in answers] == [b"HTTP/1.1 200 OK"] * 20
