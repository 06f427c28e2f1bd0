"""Runs a share of the corpus: each case in a process forked from this one, its memory and time measured and bounded.

python runner.py SHARE SHARES FOLDER   # a JSON line for each case
"""

import contextlib
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

# A case is a hang where its processor time or the time on the clock is above this; the machine may be busy with others.
CPU_SECONDS, WALL_SECONDS = 40, 400
AFFORDED = 4 * 2**30


def memory(field):
    """A field of /proc/self/status, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def child(case, folder):
    """Write the file, run the commands; what happened goes to ``result``."""
    from manyhot.cli.main import main

    inputs, run = folder / "in", folder / "run"
    inputs.mkdir()
    path = case.write(inputs)
    before = sorted(str(each) for each in folder.rglob("*"))
    limit = memory("VmSize") + AFFORDED
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    Path("/proc/self/clear_refs").write_text("5")
    start, codes = memory("VmRSS"), []
    codes += [main(arguments) for arguments in case.commands(path, run)]
    peak = memory("VmHWM") - start
    kept = {str(folder / name) for name in ("out", "err")}
    left = [str(each) for each in folder.rglob("*") if str(each) not in kept and str(each) not in before]
    (folder / "result").write_text(json.dumps({"codes": codes, "peak": peak, "left": left if codes[-1] else []}))


def run(case, folder):
    """One case; a dict of what it did."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.monotonic()
    process = os.fork()
    if process == 0:
        code = 99
        try:
            child(case, folder)
            code = 0
        except BaseException as error:
            sys.stderr.write(f"Traceback of {type(error).__name__}: {error}\n")
        finally:
            sys.stderr.flush()
            os._exit(code)
    done, status, used = 0, 0, None
    while not done and time.monotonic() - started < WALL_SECONDS:
        done, status, used = os.wait4(process, os.WNOHANG)
        time.sleep(0 if done else 0.002)
    if not done:
        os.kill(process, signal.SIGKILL)
        _, status, used = os.wait4(process, 0)
    seconds = used.ru_utime + used.ru_stime
    said = (folder / "err").read_text(errors="replace") if (folder / "err").exists() else ""
    result = folder / "result"
    found = json.loads(result.read_text()) if result.exists() else {"codes": None, "peak": 0, "left": []}
    shutil.rmtree(folder)
    return {**found, "case": str(case), "ended": status == 0, "seconds": seconds, "said": said[-2000:]}


def preload(every, folder):
    """Import here what commands import as they run, found by scouts, so that each case does not do so again."""
    scouts = [case for case in every if case.harm == "nothing" and case.format in ("jsonl", "csv", "npz", "parquet", "conll")]
    for case in scouts:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        process = os.fork()
        if process == 0:
            try:
                child(case, folder)
                (folder / "modules").write_text("\n".join(sys.modules))
            finally:
                os._exit(0)
        os.waitpid(process, 0)
        for name in (folder / "modules").read_text().split("\n"):
            if name != "__main__":
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        shutil.rmtree(folder)


def main():
    from data.hostile.corpus import cases
    from data.hostile.harms import newlines_gz, zeros_gz, zeros_xz

    share, shares, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    wanted = sys.argv[4] if len(sys.argv) > 4 else ""
    for bomb in (zeros_gz, newlines_gz, zeros_xz):
        bomb()
    every = cases()
    preload(every, folder / str(share))
    chosen = [case for case in every if wanted in str(case) and (case.special or "special" not in sys.argv)]
    for case in chosen[share::shares]:
        sys.stdout.write(json.dumps(run(case, folder / str(share))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
