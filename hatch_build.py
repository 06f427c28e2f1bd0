"""Builds the native engine with the package: a hook for hatchling, and ``python hatch_build.py`` for work in place.

The C file is compiled next to itself where a C compiler is found, and the wheel then is one for this platform and every
Python 3. Without a compiler, or where the build fails, a pure wheel comes out, and a line says why.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:  # for work in place the compiler is enough
    BuildHookInterface = object

NATIVE = Path(__file__).resolve().parent / "src" / "manyhot" / "engines" / "native"
LIBRARY = NATIVE / "_native.so"
# The instruction sets are chosen at run time, so nothing here names the machine it is built on; infinite and NaN scores
# must keep their meaning, so none of the unsafe parts of -ffast-math are here either.
FLAGS = ["-O3", "-std=gnu11", "-fPIC", "-shared", "-pthread", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"]


def find_compiler() -> list[str]:
    """The command of the C compiler: ``CC``, or the first of the usual names; empty where there is none."""
    asked = os.environ.get("CC")
    if asked:
        return shlex.split(asked) if shutil.which(shlex.split(asked)[0]) else []
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    return [found] if found else []


def sources_digest() -> str:
    """A digest of the C files; the package compares it with that of the library (``native/library.py``)."""
    digest = hashlib.sha256()
    for path in sorted(NATIVE.glob("*.[ch]")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def compile_native(library: Path = LIBRARY) -> str:
    """Compile ``engine.c`` to ``library``; returns why that could not be done, or nothing."""
    if sys.platform == "win32":
        return "the native engine needs POSIX threads, which Windows does not have"
    compiler = find_compiler()
    if not compiler:
        return "no C compiler was found (looked for CC, cc, gcc, clang)"
    unfinished = library.with_suffix(".unfinished")
    problem = ""
    # A compiler that cannot build for wider vectors than its default still gives a good engine.
    for narrower in ([], ["-DMANYHOT_PLAIN"]):
        built_from = f'-DMANYHOT_SOURCES="{sources_digest()}"'
        command = [*compiler, *FLAGS, *narrower, built_from, str(NATIVE / "engine.c"), "-o", str(unfinished)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            unfinished.replace(library)
            return ""
        unfinished.unlink(missing_ok=True)
        problem = problem or f"{shlex.join(command)} failed: {done.stderr.strip()[:2000]}"
    return problem


def platform_tag() -> str:
    """The wheel tag: any Python 3, no Python binary interface, this platform."""
    name = sysconfig.get_platform().replace("universal2", platform.machine())
    return "py3-none-" + name.replace("-", "_").replace(".", "_")


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled engine into wheels."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile, then tag the wheel for what is in it."""
        if self.target_name != "wheel":
            return
        why = compile_native()
        if why:
            self.app.display_warning(f"manyhot is built without its native engine: {why}. Everything works; the CPU is slower.")
            return
        build_data["artifacts"].append(f"/{LIBRARY.relative_to(self.root).as_posix()}")
        build_data["pure_python"] = False
        build_data["tag"] = platform_tag()


if __name__ == "__main__":
    problem = compile_native()
    print(f"not built: {problem}" if problem else f"built {LIBRARY}")
    sys.exit(1 if problem else 0)
