"""The command in a process forked from one that has everything loaded: real processes to be killed, started fast."""

import multiprocessing
import os
import resource
import shutil
import tempfile
from pathlib import Path

from cli.processes import Done
from manyhot.cli.commands import COMMANDS

COMMAND_MODULES = sorted({f"manyhot.cli.commands.{module}" for module, _ in COMMANDS.values()})
PRELOADED = [*COMMAND_MODULES, "manyhot.training.rows.train", "manyhot.evaluation", "scipy.sparse", "sklearn.isotonic"]


def _command(arguments, folder, limit):
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    from manyhot.cli.main import main

    raise SystemExit(main(arguments))


class Forked:
    """A command that runs.

    Args:
        arguments: of the command.
        limit: the most bytes a file may have.
    """

    def __init__(self, *arguments, limit=None):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self.folder = Path(tempfile.mkdtemp())
        self.process = context.Process(target=_command, args=([str(each) for each in arguments], self.folder, limit))
        self.process.start()

    def err(self):
        """What it said so far."""
        path = self.folder / "err"
        return path.read_text() if path.exists() else ""

    def kill(self):
        """SIGKILL; how it ended."""
        self.process.kill()
        return self.done()

    def done(self):
        """How it ended, once it has."""
        self.process.join(120)
        out = self.folder / "out"
        done = Done(self.process.exitcode, out.read_text() if out.exists() else "", self.err())
        shutil.rmtree(self.folder)
        return done
