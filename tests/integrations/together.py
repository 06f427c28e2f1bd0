"""Several processes that train together, by gloo on this machine."""

import os
import socket
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def run_together(script, arguments_of, count=2):
    """Start ``script`` once a rank with ``arguments_of(rank)``, and wait for all; errors of all are shown."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = []
    for rank in range(count):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "NODE_RANK": "0",
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        }
        command = [sys.executable, str(TESTS / "integrations" / script), *map(str, arguments_of(rank))]
        workers.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    ends = [(worker.communicate(timeout=600)[1], worker.returncode) for worker in workers]
    assert all(code == 0 for _, code in ends), "\n\n".join(errors[-2000:] for errors, _ in ends)
