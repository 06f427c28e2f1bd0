"""The command in a process forked from one that has everything loaded: real processes to be killed, started fast."""

import contextlib
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


def _command(arguments, folder, limit, before, out):
    os.dup2(os.open(out or folder / "out", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    os.dup2(os.open(folder / "err", os.O_WRONLY), 2)
    if before is not None:
        before()
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    from manyhot.cli.main import main

    raise SystemExit(main(arguments))


class Forked:
    """A command that runs.

    Args:
        arguments: of the command.
        limit: the most bytes a file may have.
        before: is called in the process first.
        out: the file of the standard output, where it is not caught.
    """

    def __init__(self, *arguments, limit=None, before=None, out=None):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self.folder = Path(tempfile.mkdtemp())
        # A pipe, which no limit on files stops, and which nothing fills that a command says.
        os.mkfifo(self.folder / "err")
        self.pipe = os.open(self.folder / "err", os.O_RDONLY | os.O_NONBLOCK)
        self.said = b""
        given = ([str(each) for each in arguments], self.folder, limit, before, out)
        self.process = context.Process(target=_command, args=given)
        self.process.start()

    def err(self):
        """What it said so far."""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.pipe, 65536):
                self.said += part
        return self.said.decode()

    def kill(self):
        """SIGKILL; how it ended."""
        self.process.kill()
        return self.done()

    def done(self):
        """How it ended, once it has."""
        self.process.join(120)
        out = self.folder / "out"
        done = Done(self.process.exitcode, out.read_text() if out.exists() else "", self.err())
        os.close(self.pipe)
        shutil.rmtree(self.folder)
        return done
