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
from manyhot.serve.listening import HANDSHAKE_WAIT, accept_waiting, connection_limit, refuse_connections
from manyhot.serve.protocol import LimitedProtocol
from manyhot.serve.request_head import MAX_HEADERS, allowed_hosts
from manyhot.serve.settings import ServeSettings

log = logging.getLogger("manyhot.serve")
KEEP_ALIVE = 30
# Seconds that a stopping worker waits for SIGUSR1 from its supervisor before it exits by itself.
SUPERVISOR_TIMEOUT = 5.0


class ModelServer(uvicorn.Server):
    """uvicorn's server with a stop that loses no response, and with reloading of the model.

    On SIGTERM or SIGINT it keeps answering for ``drain`` seconds, with ``Connection: close`` on every response, so that load
    balancers and clients can leave. Then it refuses new connections, answers the open ones and exits. On SIGHUP it checks for
    a new model. If several workers share a socket, only the supervisor closes it: it sends SIGUSR1 when all workers should
    exit, and SIGQUIT when they should exit at once.

    Args:
        config: the configuration of uvicorn.
        service: the model and its requests.
        guard: the application.
        listening: the listening socket.
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
        """Handle signals while the server runs."""
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
        # SIGHUP was blocked until now: without a handler it would end the process.
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
        """Accept all waiting connections, stop listening, and exit when all of them are answered."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.listening)
        # asyncio creates the transport of a connection one step after accepting it, and drops the connection if the server is
        # closed in between.
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
            # A second signal stops at once. Workers ignore it, since they may get one signal several times.
            self._end_at_once()

    async def _drain(self) -> None:
        await asyncio.sleep(self.service.settings.drain)
        if self.supervised:
            await asyncio.sleep(SUPERVISOR_TIMEOUT)
        else:
            refuse_connections(self.listening)
            await asyncio.sleep(HANDSHAKE_WAIT)
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
    """Serve a model on a socket until a signal stops it.

    Args:
        folder: the folder of a model or a run.
        settings: limits and timing.
        listening: the listening socket.
        counters: the counters of this worker.
        workers: the number of workers that share the cores.
    """
    torch.set_num_threads(settings.threads or max(1, available_cores() // workers))
    service = Service(folder, settings, counters)
    _, guard = make_app(service, hosts=allowed_hosts(settings, listening.getsockname()[0]))
    own = {"receive_timeout": settings.receive_timeout, "grace": settings.grace}
    protocol = type("Protocol", (LimitedProtocol,), {**own, "max_connections": connection_limit(settings.max_connections)})
    config = uvicorn.Config(
        guard,
        http=protocol,
        # ``ModelServer.shutdown`` depends on how this loop accepts connections.
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
    """Log the messages of the server to standard error, one line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
