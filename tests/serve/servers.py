"""Servers in processes of their own, and a client that says little."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import manyhot

SOURCE = str(Path(manyhot.__file__).parents[1])
# Seconds after which a server or an answer is given up: far more than a busy machine needs, so that only what hangs fails.
PATIENCE = 300


class Server:
    """A running ``manyhot serve``."""

    def __init__(self, folder, *flags, wait=True):
        environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        words = [sys.executable, "-m", "manyhot.cli", "serve", str(folder), "--port", "0", *map(str, flags)]
        self.process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                break
        else:
            raise AssertionError("".join(self.lines))
        if wait:
            self.wait_until(lambda: self.ask("GET", "/health")[0] == 200)

    def wait_until(self, holds):
        """Wait for a condition, as long as the server lives."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if holds():
                    return
            time.sleep(0.05)
        ended = self.process.poll()
        raise AssertionError("waited in vain" if ended is None else f"the server ended with {ended}: {self.stop()[1]}")

    def ask(self, method, path, body=None, headers=None):
        """``(status, body)``; JSON is decoded."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            content = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
            connection.request(method, path, content, headers or {})
            answer = connection.getresponse()
            data = answer.read()
            told = answer.getheader("content-type") or ""
            return answer.status, json.loads(data) if "json" in told else data.decode()
        finally:
            connection.close()

    def predict(self, inputs, **more):
        return self.ask("POST", "/predict", {"inputs": inputs, **more})

    def stop(self, number=signal.SIGTERM):
        """The exit code and what was logged."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            _, err = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, err = self.process.communicate()
        return self.process.returncode, "".join(self.lines) + err
