"""The command as a process of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import manyhot


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self):
        return json.loads(self.out)


def command(*arguments):
    return [sys.executable, "-m", "manyhot.cli", *map(str, arguments)]


def environment():
    source = str(Path(manyhot.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}


def real(*arguments, stdin=None, cwd=None):
    """Run the command to its end."""
    done = subprocess.run(command(*arguments), input=stdin, capture_output=True, cwd=cwd, env=environment(), timeout=120)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
