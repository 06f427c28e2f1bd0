"""Several processes that serve a model from one socket; one that exits is restarted."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from manyhot.serve.counters import Counters
from manyhot.serve.listening import SETTLE, listen, turn_away
from manyhot.serve.server import run_worker, set_up_log
from manyhot.serve.settings import ServeSettings

log = logging.getLogger("manyhot.serve")
# Workers that exit within this time of their start, this often in a row, are not restarted.
SHORT_LIFE, MOST_FAILURES = 5.0, 3


def serve(
    folder: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    settings: ServeSettings | None = None,
) -> int:
    """Serve a model over HTTP until SIGTERM or SIGINT comes; SIGHUP looks for a new model at once.

    Args:
        folder: the folder of a model or of a run.
        host: the address to listen on; the default is reached from this machine alone.
        port: the port; 0 takes a free one.
        workers: processes that answer.
        settings: limits and timing.

    Returns:
        0 after a stop that was asked for, 1 where workers could not be kept alive.
    """
    chosen, folder = settings or ServeSettings(), Path(folder).absolute()
    set_up_log()
    listening = listen(host, port)
    # A request to reload that comes while the server starts waits, and does not end it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    address = listening.getsockname()
    name = f"[{address[0]}]" if ":" in address[0] else address[0]
    log.info("serving %s on http://%s:%d, %d worker%s", folder, name, address[1], workers, "" if workers == 1 else "s")
    if workers == 1:
        run_worker(folder, chosen, listening, Counters())
        log.info("stopped")
        return 0
    with tempfile.TemporaryFile() as shared:
        shared.truncate(Counters.size(workers))
        return _Supervisor(folder, chosen, listening, shared, workers).run()


class _Supervisor:
    def __init__(
        self, folder: Path, settings: ServeSettings, listening: socket.socket, shared: IO[bytes], workers: int
    ) -> None:
        self.folder, self.settings, self.listening, self.shared, self.workers = folder, settings, listening, shared, workers
        self.processes: list[subprocess.Popen[bytes]] = []
        self.started: list[float] = []
        self.failures = 0
        self.stopping = False

    def run(self) -> int:
        """Keep the workers alive until told to stop."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, lambda *_: self._pass_on(signal.SIGHUP))
        for own in range(self.workers):
            self.processes.append(self._start(own))
            self.started.append(time.monotonic())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        failed = False
        while not self.stopping:
            time.sleep(0.1)
            if not self._keep_alive():
                failed = True
                self._stop()
        self._close()
        self._wait()
        return int(failed)

    def _start(self, own: int) -> subprocess.Popen[bytes]:
        told = {
            "folder": str(self.folder),
            "settings": self.settings.to_dict(),
            "socket": self.listening.fileno(),
            "shared": self.shared.fileno(),
            "own": own,
            "workers": self.workers,
        }
        environment = {**os.environ, "MANYHOT_SERVE_WORKER": json.dumps(told)}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        try:
            # The worker inherits the mask, and lifts it when it has a handler.
            return subprocess.Popen(
                [sys.executable, "-m", "manyhot.serve.supervisor"],
                env=environment,
                pass_fds=(self.listening.fileno(), self.shared.fileno()),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _keep_alive(self) -> bool:
        for own, process in enumerate(self.processes):
            if process.poll() is None or self.stopping:
                continue
            lived = time.monotonic() - self.started[own]
            # The worker was asked to stop.
            self.failures = self.failures + 1 if lived < SHORT_LIFE and process.returncode else 0
            if self.failures >= MOST_FAILURES:
                log.error("workers end as soon as they are started; giving up")
                return False
            log.info("worker %d ended with %d, starting another", own, process.returncode)
            self.processes[own], self.started[own] = self._start(own), time.monotonic()
        return True

    def _stop(self, *_: Any) -> None:
        # Asked twice: a person who does not want to wait.
        self._pass_on(signal.SIGQUIT if self.stopping else signal.SIGTERM)
        self.stopping = True

    def _close(self) -> None:
        """While the workers still answer, turn new clients away; then let the workers accept the others and end."""
        deadline = time.monotonic() + self.settings.drain
        while time.monotonic() < deadline and any(process.poll() is None for process in self.processes):
            time.sleep(0.05)
        turn_away(self.listening)
        time.sleep(SETTLE)
        # The last worker closes the socket; nobody would accept from this one.
        self.listening.close()
        self._pass_on(signal.SIGUSR1)

    def _pass_on(self, number: int) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)

    def _wait(self) -> None:
        deadline = time.monotonic() + self.settings.drain + self.settings.grace + self.settings.timeout + 10
        for process in self.processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        log.info("stopped")


def _worker() -> None:
    """What a started process does."""
    told = json.loads(os.environ["MANYHOT_SERVE_WORKER"])
    set_up_log()
    with os.fdopen(told["shared"], "r+b", buffering=0) as shared:
        counters = Counters(told["workers"], told["own"], shared)
    settings = ServeSettings.from_dict(told["settings"])
    run_worker(Path(told["folder"]), settings, socket.socket(fileno=told["socket"]), counters, workers=told["workers"])


if __name__ == "__main__":
    _worker()
