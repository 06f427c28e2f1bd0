"""One process that serves a model: its socket, signals, and the check for a new model."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import uvicorn

from manyhot._cores import available_cores
from manyhot.serve.app import Service, make_app
from manyhot.serve.counters import Counters
from manyhot.serve.guard import Guard
from manyhot.serve.listening import SETTLE, accept_waiting, room_for, turn_away
from manyhot.serve.protocol import PatientProtocol
from manyhot.serve.request_head import MAX_HEADERS, allowed_hosts
from manyhot.serve.settings import ServeSettings

log = logging.getLogger("manyhot.serve")
KEEP_ALIVE = 30
# Seconds after which a worker that was told to stop does so, also if its supervisor does not say that all of them stop.
ALONE = 5.0


class ModelServer(uvicorn.Server):
    """uvicorn's server that stops without losing an answer and reloads its model.

    On SIGTERM or SIGINT it answers for ``drain`` seconds more, telling every client to close its connection, so that load
    balancers and clients with open connections can leave; then it turns new clients away, answers those that have connected
    and ends. On SIGHUP it looks for a new model. A worker of several leaves the socket that they share to its supervisor,
    which sends SIGUSR1 when all of them are to end, and SIGQUIT when they are to end at once.

    Args:
        config: uvicorn's.
        service: what answers.
        guard: the application.
        listening: the socket.
        supervised: whether other workers listen on the same socket.
    """

    def __init__(
        self, config: uvicorn.Config, service: Service, guard: Guard, listening: socket.socket, *, supervised: bool
    ) -> None:
        super().__init__(config)
        self.service, self.guard, self.listening, self.supervised = service, guard, listening, supervised
        self._background: set[asyncio.Task[Any]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals for as long as the server runs."""
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGTERM: self._begin_to_stop,
            signal.SIGINT: self._begin_to_stop,
            signal.SIGHUP: lambda: self._keep(self.service.reload()),
        }
        if self.supervised:
            handlers |= {signal.SIGUSR1: self._end, signal.SIGQUIT: self._end_at_once}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        # It was blocked until there was a handler: without one it ends the process.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        self._keep(self._look_for_models())
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)
            for task in self._background:
                task.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept every connection that was made, stop listening, and end when all of them are answered."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.listening)
        # asyncio makes the transport of a connection one step after it was accepted, and drops it where the server is closed
        # between the two.
        await asyncio.sleep(0)
        for client in accept_waiting(self.listening):
            with contextlib.suppress(OSError):
                await loop.connect_accepted_socket(self._protocol, client)
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        own: Any = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        protocol: asyncio.Protocol = self.config.http_protocol_class(**own)
        return protocol

    def _begin_to_stop(self) -> None:
        if not self.guard.stopping:
            self.guard.stopping = True
            self._keep(self._drain())
        elif not self.supervised:
            # Asked twice: a person who does not want to wait. Workers hear of a signal from several sides.
            self._end_at_once()

    async def _drain(self) -> None:
        await asyncio.sleep(self.service.settings.drain)
        if self.supervised:
            await asyncio.sleep(ALONE)
        else:
            turn_away(self.listening)
            await asyncio.sleep(SETTLE)
        self._end()

    def _end(self) -> None:
        self.should_exit = self.guard.stopping = True

    def _end_at_once(self) -> None:
        self.force_exit = True
        self._end()

    async def _look_for_models(self) -> None:
        parent, every = os.getppid(), self.service.settings.reload_every
        while True:
            await asyncio.sleep(min(every, 1.0) if every else 1.0)
            if self.supervised and os.getppid() != parent:
                # The supervisor is gone: all workers stop.
                self.supervised = False
                self._begin_to_stop()
                return
            if every:
                await asyncio.sleep(max(0.0, every - 1.0))
                await self.service.reload()

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def run_worker(
    folder: Path, settings: ServeSettings, listening: socket.socket, counters: Counters, *, workers: int = 1
) -> None:
    """Serve a model on a socket until a signal comes.

    Args:
        folder: the folder of a model or a run.
        settings: limits and timing.
        listening: a socket that listens.
        counters: of this worker.
        workers: how many share the cores.
    """
    torch.set_num_threads(settings.threads or max(1, available_cores() // workers))
    service = Service(folder, settings, counters)
    _, guard = make_app(service, hosts=allowed_hosts(settings, listening.getsockname()[0]))
    own = {"receive_timeout": settings.receive_timeout, "grace": settings.grace}
    protocol = type("Protocol", (PatientProtocol,), {**own, "max_connections": room_for(settings.max_connections)})
    config = uvicorn.Config(
        guard,
        http=protocol,
        # ``ModelServer.shutdown`` knows how this loop accepts connections.
        loop="asyncio",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        h11_max_incomplete_event_size=MAX_HEADERS,
        limit_concurrency=None,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(settings.timeout + settings.grace) + 5,
    )
    # The guard passes the lifespan on to the application.
    ModelServer(config, service, guard, listening, supervised=workers > 1).run(sockets=[listening])


def set_up_log() -> None:
    """Messages of the server to the standard error, one line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
