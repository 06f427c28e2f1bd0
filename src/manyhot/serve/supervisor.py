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
from manyhot.serve.listening import HANDSHAKE_WAIT, listen, refuse_connections
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
    """Serve a model over HTTP until SIGTERM or SIGINT; SIGHUP checks for a new model at once.

    Args:
        folder: the folder of a model or of a run.
        host: the address to listen on; the default accepts connections from this machine only.
        port: the port; 0 chooses a free one.
        workers: the number of worker processes.
        settings: limits and timing.

    Returns:
        0 after a normal stop, 1 if the workers keep failing at startup.
    """
    chosen, folder = settings or ServeSettings(), Path(folder).absolute()
    set_up_log()
    listening = listen(host, port)
    # SIGHUP is blocked while the server starts: without a handler it would end the process.
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
            # The worker inherits the mask, and unblocks SIGHUP when it has a handler.
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
            # A worker that was asked to stop exits with code 0.
            self.failures = self.failures + 1 if lived < SHORT_LIFE and process.returncode else 0
            if self.failures >= MOST_FAILURES:
                log.error("workers exit as soon as they are started; giving up")
                return False
            log.info("worker %d exited with code %d, starting another", own, process.returncode)
            self.processes[own], self.started[own] = self._start(own), time.monotonic()
        return True

    def _stop(self, *_: Any) -> None:
        # A second signal stops the workers at once.
        self._pass_on(signal.SIGQUIT if self.stopping else signal.SIGTERM)
        self.stopping = True

    def _close(self) -> None:
        """Refuse new connections while the workers still answer; then tell the workers to accept the waiting ones and exit."""
        deadline = time.monotonic() + self.settings.drain
        while time.monotonic() < deadline and any(process.poll() is None for process in self.processes):
            time.sleep(0.05)
        refuse_connections(self.listening)
        time.sleep(HANDSHAKE_WAIT)
        # Nothing accepts connections in this process; the last worker closes the socket.
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
    """The main function of a worker process."""
    told = json.loads(os.environ["MANYHOT_SERVE_WORKER"])
    set_up_log()
    with os.fdopen(told["shared"], "r+b", buffering=0) as shared:
        counters = Counters(told["workers"], told["own"], shared)
    settings = ServeSettings.from_dict(told["settings"])
    run_worker(Path(told["folder"]), settings, socket.socket(fileno=told["socket"]), counters, workers=told["workers"])


if __name__ == "__main__":
    _worker()
