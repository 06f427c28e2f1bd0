"""Several processes that train together, by gloo on this machine."""

import os
import socket
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
WATCHED = """
import faulthandler, runpy
faulthandler.dump_traceback_later({seconds}, exit=True)
runpy.run_path({script!r}, run_name="__main__")
"""


def run_together(script, arguments_of, count=2, seconds=300):
    """Start ``script`` once a rank with ``arguments_of(rank)``, and wait for all; errors of all are shown. Processes that take
    longer show where they are, and are killed."""
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
        program = WATCHED.format(seconds=seconds, script=str(TESTS / "integrations" / script))
        command = [sys.executable, "-c", program, *map(str, arguments_of(rank))]
        workers.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    try:
        ends = [(worker.communicate(timeout=seconds + 60)[1], worker.returncode) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert all(code == 0 for _, code in ends), "\n\n".join(f"exit code {code}\n{errors[-2000:]}" for errors, code in ends)
